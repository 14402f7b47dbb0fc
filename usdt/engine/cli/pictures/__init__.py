"""Pictures and profiles of stacks, in place of lines: --flame, --speedscope and --pprof.

options  the options, and the files that they name
output   writes the files; an output of live commands that takes stacks
files    pictures of recordings, JSON streams and folded stacks
"""
