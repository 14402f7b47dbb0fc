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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usdt.bpf._uapi import MapType
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.maps import Map, MapSpec
    from usdt.bpf.program import Program, ProgramSpec
    from usdt.btf.reader import Btf as BTF  # noqa: N814 - an abbreviation

_HOMES = {
    "Assembler": ("usdt.bpf.asm.assembler", "Assembler"),
    "BTF": ("usdt.btf.reader", "Btf"),
    "Map": ("usdt.bpf.maps", "Map"),
    "MapSpec": ("usdt.bpf.maps", "MapSpec"),
    "MapType": ("usdt.bpf._uapi", "MapType"),
    "Program": ("usdt.bpf.program", "Program"),
    "ProgramSpec": ("usdt.bpf.program", "ProgramSpec"),
}

__all__ = ("BTF", "Assembler", "Map", "MapSpec", "MapType", "Program", "ProgramSpec")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'usdt.bpf' has no attribute {name!r}")
    home, there = _HOMES[name]
    value = getattr(import_module(home), there)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
