"""The kernel's interface: bpf(2), perf_event_open(2), programs, maps, links, the ring buffer.

Each module is one concept. A *spec* is a value, made and tested without a kernel; ``load()``,
``create()`` or ``attach()`` makes an *object* of it.

asm/                       instructions: assembled, encoded, shown as text
program, maps              specs and objects; ``objects``: those that others made, and BTF objects
link, kprobes              attaching to user space, tracepoints, functions and iterators; ``rcu``
rings/                     the BPF ring buffer; several of them, read as one
perf/                      counters that run programs; mappings, execs and forks of all processes
features                   what the kernel supports; ``optimized_nops``: by a trial of its probes
capabilities, privileges   what this process lacks; what each thing needs, and giving up the rest

    from usdt import bpf

    btf = bpf.BTF.from_kernel()
    with bpf.MapSpec(bpf.MapType.HASH, key_size=4, value_size=8, entries=1024).create() as counts:
        counts.set(b"key1", bytes(8))

Names are loaded on first use, so importing the package is cheap and makes no system call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from usdt.bpf._uapi import Helper, MapType, ProgType
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Alu, Jump, Reg
    from usdt.bpf.maps import Map, MapSpec
    from usdt.bpf.program import Program, ProgramSpec
    from usdt.btf.reader import Btf as BTF  # noqa: N814 - an abbreviation

__all__ = (
    "BTF",
    "Alu",
    "Assembler",
    "Helper",
    "Jump",
    "Map",
    "MapSpec",
    "MapType",
    "ProgType",
    "Program",
    "ProgramSpec",
    "Reg",
)

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "usdt.bpf._uapi": ("Helper", "MapType", "ProgType"),
        "usdt.bpf.asm.assembler": ("Assembler",),
        "usdt.bpf.asm.insn": ("Alu", "Jump", "Reg"),
        "usdt.bpf.maps": ("Map", "MapSpec"),
        "usdt.bpf.program": ("Program", "ProgramSpec"),
        "usdt.btf.reader": ("Btf as BTF",),
    },
)
