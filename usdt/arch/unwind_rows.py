"""Rows of unwind tables in eight bytes each, for programs that walk stacks in the kernel.

    u32  the first address of the row, relative to its table
    u16  offset of the canonical frame address (CFA), in words
    u16  rules:
         bit 0      the CFA is relative to the frame pointer, else to the stack pointer
         bits 1–7   the caller's frame pointer is saved so many words below the CFA; 0: unchanged
         bits 8–14  the return address, likewise; 0: in the link register
         bit 15     a special row: bits 0–7 are a :class:`Special`, bits 8–14 what it needs

A row holds until the next one begins. Addresses that no function has belong to a row of
``Special.NO_ROW``.
"""

from __future__ import annotations

import enum
import struct

from usdt.base.frozen import frozen

__all__ = (
    "BY_FRAME_POINTER",
    "MAX_OFFSET",
    "MAX_SLOT",
    "ROW",
    "SPECIAL",
    "CodeRange",
    "CompactTable",
    "Special",
    "WalkEnd",
    "plain_row",
    "special_row",
)

ROW = struct.Struct("=IHH")
BY_FRAME_POINTER = 1
SPECIAL = 1 << 15
MAX_OFFSET = (1 << 16) - 1  # words
MAX_SLOT = (1 << 7) - 1  # words

_FRAME_SLOT, _RETURN_SLOT, _RULES = 1, 8, 16


class Special(enum.IntEnum):
    """What a row says that has no CFA of register + offset."""

    NO_ROW = 0  # no function has this address
    OUTERMOST = 1  # there is no caller
    SIGNAL = 2  # a signal trampoline: the interrupted registers are on the stack
    PLT = 3  # CFA = sp + 8, or sp + 16 from the byte of the 16-byte stub on that the offset names
    COMPLEX = 4  # by a rule that has no short form
    REALIGNED = (
        5  # CFA = the word at frame pointer - offset; the frame pointer is saved where it points
    )
    # CFA = a register + offset, and bits 8–14 are the words from it to the return address. In a
    # record the caller's frame pointer is saved in the word before; without one it is unchanged.
    RECORD_BY_STACK = 6
    RECORD_BY_FRAME = 7
    RETURN_BY_STACK = 8


class WalkEnd(enum.IntEnum):
    """Why a walk in the kernel ended."""

    OUTERMOST = 0
    TOO_DEEP = 1  # there are more frames
    NO_PROCESS = 2  # nothing is known of the process yet
    NO_MAPPING = 3  # the next address is in no known mapping
    RETURN_PROBE = 4  # a return probe has replaced the return address
    NOT_READ = 5  # the stack could not be read
    NOT_ABOVE = 6  # the caller's stack pointer is not above the callee's
    COMPLEX = 7  # a rule without a short form
    NO_FRAME_POINTER = 8  # no table, and no frame pointer that leads to a return address
    CHANGED = 9  # the mappings were updated meanwhile
    NO_TABLE_SPACE = 10  # the maps of tables are full
    NARROW = 11  # a 32-bit program


@frozen
class CompactTable:
    """The rows of a file.

    Attributes:
        base: the link-time address that rows are relative to.
        rows: the rows, ascending, as :data:`ROW`.
        cached: whether they were in the cache of tables.
    """

    base: int
    rows: bytes
    cached: bool = False


@frozen
class CodeRange:
    """An executable mapping of a process.

    Attributes:
        start, end: its addresses.
        bias: the address of its file's address 0.
        table: the rows of its file; None if it has none.
        offset: of the mapping in its file.
        device: (major, minor) of the file.
        inode: of the file; 0: there is none.
        return_probes: whether functions with return probes return to it.
    """

    start: int
    end: int
    bias: int
    table: CompactTable | None
    offset: int = 0
    device: tuple[int, int] = (0, 0)
    inode: int = 0
    return_probes: bool = False


def plain_row(*, by_frame: bool, offset: int, frame_slot: int, return_slot: int) -> int:
    """Return the offset and the rules of a row, to be shifted above its address.

    Args:
        by_frame: whether the CFA is relative to the frame pointer.
        offset: its offset, in words.
        frame_slot: words below the CFA where the frame pointer is saved; 0: it is unchanged.
        return_slot: the same of the return address; 0: it is in the link register.
    """
    rules = by_frame | frame_slot << _FRAME_SLOT | return_slot << _RETURN_SLOT
    return offset | rules << _RULES


def special_row(kind: Special, offset: int = 0, slot: int = 0) -> int:
    """Return the offset and the rules of a special row."""
    return offset | (SPECIAL | slot << _RETURN_SLOT | kind) << _RULES
