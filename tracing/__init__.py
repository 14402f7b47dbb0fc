"""The engine: probe language → plan → bytecode; sessions; decoding; output.

Stands on :mod:`bpf` and knows nothing of ELF files, processes or kernel symbols: fronts
(:mod:`usdt`, :mod:`kprobe`) say where to attach and how to fetch each argument.
"""
