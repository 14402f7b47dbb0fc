"""A tracing run without its output: what the commands and the Python API share.

options     frozen records: which processes, how to attach, what to write
registry    the kinds of probes, and the modules that provide them
protocols   what providers implement
attach      probes of all kinds attached to one session
loop        take records until the run ends; signals that stop it
"""
