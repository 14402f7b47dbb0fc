"""Stacks of stopped processes, as our unwinder sees them."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from usdt.arch.pt_regs import PT_REGS_X86_64
from usdt.procfs.maps import read_maps

if TYPE_CHECKING:
    from usdt.engine.output.frames import Stack
    from usdt.symbolize import Symbolizer

__all__ = ("unwound",)

USER_CS = 0x33
PAGE = 4096
MAX_STACK = 1 << 20  # bytes of a stack that are compared


def unwound(symbolizer: Symbolizer, pid: int, registers: dict[str, int]) -> Stack:
    """The stack of a stopped process of x86-64, from its registers and its memory."""
    saved = bytearray(8 + max(PT_REGS_X86_64.values()))
    for name, value in {**registers, "cs": USER_CS}.items():
        struct.pack_into("<Q", saved, PT_REGS_X86_64[name], value)
    sp = registers["rsp"]
    start = sp & -PAGE
    top = next((one.end for one in read_maps(pid) if one.start <= sp < one.end), start)
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        stack = os.pread(memory.fileno(), min(top - start, MAX_STACK), start)
    symbolizer.observe(pid)
    return symbolizer.unwind(pid, "x86_64", bytes(saved), stack)
