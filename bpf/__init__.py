"""The kernel's interface: bpf(2), perf_event_open(2), programs, maps, links, the ring buffer.

Knows nothing of ELF files, probes or commands. Each module is one concept; a *spec* is a value
that can be made and tested anywhere, and becomes an *object* with ``load()`` or ``attach()``.
"""
