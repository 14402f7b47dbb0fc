"""The kernel's interface: bpf(2), perf_event_open(2), programs, maps, links, the ring buffer.

Knows nothing of ELF files, probes or commands. Each module is one concept; a *spec* is a value
that can be made and tested anywhere, and becomes an *object* with ``load()`` or ``attach()``.

    from usdt import bpf

    btf = bpf.BTF.from_kernel()
    with bpf.MapSpec(bpf.MapType.HASH, key_size=4, value_size=8, entries=1024).create() as counts:
        counts.set(b"key1", bytes(8))

Names are loaded when they are first used: importing the package is cheap, and asks no kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from usdt.bpf._uapi import MapType
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.maps import Map, MapSpec
    from usdt.bpf.program import Program, ProgramSpec
    from usdt.btf.reader import Btf as BTF  # noqa: N814 - an abbreviation

__all__ = ("BTF", "Assembler", "Map", "MapSpec", "MapType", "Program", "ProgramSpec")

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "usdt.bpf._uapi": ("MapType",),
        "usdt.bpf.asm.assembler": ("Assembler",),
        "usdt.bpf.maps": ("Map", "MapSpec"),
        "usdt.bpf.program": ("Program", "ProgramSpec"),
        "usdt.btf.reader": ("Btf as BTF",),
    },
)
