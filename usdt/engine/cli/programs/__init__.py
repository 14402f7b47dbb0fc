"""``run``: :mod:`.command` has its options, :mod:`.run` runs the program.

:mod:`.text_output` decides when what the program prints is written.

:mod:`.listing` lists the probes of a pattern or a program, for ``-l``; :mod:`.details` has what
``-lv`` shows of each, and types. :mod:`.info` shows what the kernel offers, for ``--info``.
:mod:`.selftests` reports ``--test`` and ``--bench``.
"""
