"""Register names in definitions of events."""

from __future__ import annotations

import functools

from usdt.arch.pt_regs import INSTRUCTION_POINTERS, PT_REGS
from usdt.arch.register_names import KERNEL_NAMES
from usdt.base.frozen import frozen
from usdt.base.machine import BIG_ENDIAN, word_size

__all__ = ("RegisterPart", "register_part_at")


@frozen
class RegisterPart:
    """A part of a saved register.

    Attributes:
        name: the kernel's name of the register; "": it has none.
        shift: bits of the register below the part.
        width: bits of the register.
        pointer: whether it is the instruction pointer.
    """

    name: str
    shift: int
    width: int
    pointer: bool


@functools.cache
def register_part_at(kernel: str, offset: int, size: int) -> RegisterPart | None:
    """Return the register with ``size`` bytes at an offset of ``struct pt_regs``, or None."""
    word = word_size(kernel)
    for name, start in PT_REGS.get(kernel, {}).items():
        if start <= offset and offset + size <= start + word:
            below = start + word - offset - size if kernel in BIG_ENDIAN else offset - start
            own = KERNEL_NAMES.get(kernel, {}).get(name, name)
            return RegisterPart(own, 8 * below, 8 * word, pointer=name in INSTRUCTION_POINTERS)
    return None
