"""The parts of a tracing run that the commands and the Python API share.

options     frozen records: which processes, how to attach, what to write
registry    the kinds of probes, and the modules that provide them
protocols   interfaces that probe providers implement
attach      attach probes of all kinds to one session
programs    attach a program of bpftrace's language, and start it
selftests   run the probes test: and bench: of such a program
dropping    give up capabilities once everything is attached
loop        the loop that takes records until the run ends; signals that stop it
"""
