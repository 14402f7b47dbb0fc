"""``run``: :mod:`.command` has its options, :mod:`.run` runs the program."""
