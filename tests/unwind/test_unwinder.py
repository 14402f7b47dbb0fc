"""The unwinder at the edge of the copied stack.

The tables are made by hand: a real program stops there in one of some hundred cases.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, cast

from usdt.arch.unwinding import CPUS
from usdt.unwind.rules import Cfa, RegisterRule, Row, RuleKind
from usdt.unwind.thread_state import ThreadState
from usdt.unwind.unwinder import unwind

if TYPE_CHECKING:
    from usdt.unwind.frame_table import FrameTable

RBX, RSP, RETURN = 3, 7, 16
TOP = 0x8000  # the stack pointer, where the copy begins


class Code:
    """Code at 0x1000 to 0x1FFF: ends of functions that have just popped rbx."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def table(self, address: int) -> tuple[FrameTable, int] | None:
        return cast("FrameTable", self), 0

    def row(self, address: int) -> Row | None:
        return self._row

    def module(self, address: int) -> str | None:
        return "program" if 0x1000 <= address < 0x2000 else None

    def code(self, address: int, size: int) -> bytes:
        return b""


def _unwound(saved: dict[int, int], *words: int) -> tuple[tuple[int, ...], str]:
    rules = {number: RegisterRule(RuleKind.SAVED, offset) for number, offset in saved.items()}
    stack = struct.pack(f"<{len(words)}Q", *words)
    state = ThreadState(CPUS["x86_64"], {RSP: TOP, RBX: 5}, 0x1000, TOP, stack)
    found = unwind(state, Code(Row(Cfa(RSP, 8), rules, RETURN)), max_frames=9)
    return found.addresses, found.reason


def test_a_popped_register_below_the_copy_is_not_known() -> None:
    assert _unwound({RETURN: -8, RBX: -16}, 0x1100, 0x1200, 0) == ((0x1000, 0x1100, 0x1200), "")


def test_a_return_address_below_the_copy_ends_the_stack() -> None:
    addresses, reason = _unwound({RETURN: -16}, 0x1100, 0)
    assert (addresses, reason) == ((0x1000,), "the stack at 0x7ff8 was not recorded")
