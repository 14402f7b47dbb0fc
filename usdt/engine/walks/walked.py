"""The stacks that walks have left in the map of stacks."""

from __future__ import annotations

import struct
from typing import NamedTuple

from usdt.arch.unwind_rows import WalkEnd
from usdt.engine.language.tree import MAX_FRAMES
from usdt.engine.walks.walk_state import EXACT_MARK, VALUE_HEADER

__all__ = ("StackAddresses", "walked_addresses")

_FIRST = frozenset((0,))  # of most stacks: one object for all of them


class StackAddresses(NamedTuple):
    """The addresses of a stack.

    Attributes:
        addresses: innermost first.
        exact: positions of addresses that are no return addresses.
        reason: why it ends before its outermost function; "" if it does not, or that is not known.
    """

    addresses: tuple[int, ...] = ()
    exact: frozenset[int] = _FIRST
    reason: str = ""


_REASONS = {
    WalkEnd.OUTERMOST: "",
    WalkEnd.TOO_DEEP: f"more than {MAX_FRAMES} frames",
    WalkEnd.NO_PROCESS: "the unwind tables of the process were not loaded yet",
    WalkEnd.NO_MAPPING: "the return address was in no known program or library",
    WalkEnd.RETURN_PROBE: "a return probe has replaced the return address",
    WalkEnd.NOT_READ: "the stack could not be read",
    WalkEnd.NOT_ABOVE: "the caller's stack pointer is not above that of the function",
    WalkEnd.COMPLEX: "the rule of the unwind table is too complex for the kernel's program",
    WalkEnd.NO_FRAME_POINTER: "the code has no unwind table, and no frame pointer",
    WalkEnd.CHANGED: "the mappings of the process changed meanwhile",
    WalkEnd.NARROW: "unwind tables of 32-bit programs are not read: use --unwind fp",
    WalkEnd.NO_TABLE_SPACE: "there was no more space for unwind tables",
}


def walked_addresses(data: bytes) -> StackAddresses:
    """Return the stack in a value of the map of walked stacks."""
    if not data:
        return StackAddresses()
    number, end = VALUE_HEADER.unpack_from(data)
    words = struct.unpack_from(f"={number}Q", data, VALUE_HEADER.size)
    if words[:1] == (EXACT_MARK,):  # a thread of the kernel
        return StackAddresses()
    exact = frozenset(at for at, word in enumerate(words) if word & EXACT_MARK)
    exact = _FIRST if exact == _FIRST else exact
    addresses = tuple(word & ~EXACT_MARK for word in words)
    if end == WalkEnd.TOO_DEEP and number < MAX_FRAMES:
        return StackAddresses(addresses, exact)  # ustack(N) asks for no more
    return StackAddresses(addresses, exact, _REASONS[WalkEnd(end)])
