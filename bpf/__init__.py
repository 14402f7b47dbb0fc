"""The kernel's interface: bpf(2), perf_event_open(2), programs, maps, links, the ring buffer.

Knows nothing of ELF files, probes or commands. Each module is one concept; a *spec* is a value
that can be made and tested anywhere, and becomes an *object* with ``load()`` or ``attach()``.

    import bpf

    btf = bpf.BTF.from_kernel()
    with bpf.MapSpec(bpf.MapType.HASH, key_size=4, value_size=8, entries=1024).create() as counts:
        counts.set(b"key1", bytes(8))

Names are loaded when they are first used: importing the package is cheap, and asks no kernel.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpf._uapi import MapType
    from bpf.assembler import Assembler
    from bpf.btf.reader import Btf as BTF  # noqa: N814 - an abbreviation
    from bpf.maps import Map, MapSpec
    from bpf.program import Program, ProgramSpec

_HOMES = {
    "Assembler": ("bpf.assembler", "Assembler"),
    "BTF": ("bpf.btf.reader", "Btf"),
    "Map": ("bpf.maps", "Map"),
    "MapSpec": ("bpf.maps", "MapSpec"),
    "MapType": ("bpf._uapi", "MapType"),
    "Program": ("bpf.program", "Program"),
    "ProgramSpec": ("bpf.program", "ProgramSpec"),
}

__all__ = ("BTF", "Assembler", "Map", "MapSpec", "MapType", "Program", "ProgramSpec")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bpf' has no attribute {name!r}")
    home, there = _HOMES[name]
    value = getattr(import_module(home), there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
