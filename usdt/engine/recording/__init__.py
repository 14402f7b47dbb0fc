"""Recordings: the bytes of ring buffers in a self-describing file; see docs/recordings.md.

blocks          magic number and blocks of the file format
description     JSON contents of blocks, as values
writer          writes a recording
reader          reads a recording
processes       snapshots of processes, for the symbols of recorded stacks
pairing         which starts and ends of spans belong together
spans, tables   recordings as Chrome trace spans and as CSV
"""
