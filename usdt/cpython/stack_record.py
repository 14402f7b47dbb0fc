"""The frames of a Python stack as a BPF program records them.

A slot for each frame of the interpreter, innermost first (24 bytes):

    0   u64  address of the code object; 0 for a frame that belongs to the C stack
    8   u64  address of its line table, XOR the hash of its name
    16  u32  offset of the instruction in its bytecode (24 bits), and flags: 8 bits
    20  u32  first line number

The addresses of a code object and of its parts are used again after its end; the numbers together
identify it.
The number before the slots is their size in bytes plus one of ``COMPLETE``, ``MORE`` and
``BROKEN``, or a negative reason why there are none.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "BROKEN",
    "COMPLETE",
    "ENTRY_FLAG",
    "IDLE",
    "MORE",
    "NOT_KNOWN",
    "NO_THREAD",
    "OFFSET_BITS",
    "OWNER_MASK",
    "SLOT_SIZE",
    "UNREADABLE",
    "CodeKey",
    "Slot",
    "ending",
    "slots_in",
)

SLOT_SIZE = 24
OFFSET_BITS = 24
OWNER_MASK = 7  # of the flags: who owns the frame
ENTRY_FLAG = 8  # 3.11: a C function called this frame's function
GENERATOR = 1  # the owner of a generator's frame
COMPLETE, MORE, BROKEN = 0, 1, 2  # all frames; there are more; the next one cannot be read
NOT_KNOWN, NO_THREAD, IDLE, UNREADABLE = -1, -2, -3, -4
_ENDINGS = {
    MORE: "the stack has more frames",
    BROKEN: "the next frame cannot be read",
}


@frozen
class CodeKey:
    """What identifies a code object of a process."""

    address: int
    content: int  # the address of its line table, XOR the hash of its name
    first_line: int


@frozen
class Slot:
    """A frame.

    Attributes:
        code: its code object.
        offset: of the instruction in the bytecode, in bytes; negative before the first.
        owner: who owns the frame.
        outermost: whether it is the last frame before those of C code.
    """

    code: CodeKey
    offset: int
    owner: int
    outermost: bool


def slots_in(data: bytes, order: str = "=") -> Iterator[Slot]:
    """Yield the Python frames in the slots of a record."""
    whole = len(data) - len(data) % SLOT_SIZE
    rows = list(struct.iter_unpack(f"{order}QQII", data[:whole]))
    for position, (code, table, word, first) in enumerate(rows):
        if not code:
            continue
        offset = word & (1 << OFFSET_BITS) - 1
        if offset >> OFFSET_BITS - 1:
            offset -= 1 << OFFSET_BITS
        flags = word >> OFFSET_BITS
        after = position + 1 == len(rows) or not rows[position + 1][0]
        outermost = bool(flags & ENTRY_FLAG) or after
        yield Slot(CodeKey(code, table, first), offset, flags & OWNER_MASK, outermost)


def ending(length: int) -> str:
    """Return why a stack of a number before its slots ends early; "" if it does not."""
    return _ENDINGS.get(length & 7, "")
