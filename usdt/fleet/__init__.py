"""The same command on many machines, and one answer.

``zipapp`` packs the toolkit into one file; ``far_end`` is the program that receives it there, keeps
it and supervises the command. ``nodes`` reads node sets; ``transport`` makes command lines.
``machine`` reads the stream of one machine; ``merged`` adds up their results, and ``attendance``
says who answered. ``engine`` runs the processes that reach machines.
"""
