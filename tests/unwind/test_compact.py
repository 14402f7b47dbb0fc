"""Rows in compact form: those of every address of real files, and the forms that do not fit."""

from __future__ import annotations

import struct
from bisect import bisect_right
from pathlib import Path

import pytest

from usdt.arch.unwind_rows import ROW, Special, plain_row, special_row
from usdt.arch.unwinding import CPUS
from usdt.elf.file import ElfFile
from usdt.unwind.compact import compact_row, compact_table
from usdt.unwind.frame_table import FrameTable
from usdt.unwind.rules import Cfa, Expression, RegisterRule, Row, RuleKind

X86 = CPUS["x86_64"]
RETURN = {16: RegisterRule(RuleKind.SAVED, -8)}
FILES = (
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/bin/python3.11",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
)


@pytest.mark.parametrize("path", FILES)
def test_every_row_of_a_file_is_that_of_the_table(path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"needs {path}")
    with ElfFile(path) as elf:
        table = FrameTable(elf)
        compact = compact_table(table, X86)
        rows = list(struct.iter_unpack(ROW.format, compact.rows))
        starts = [start for start, _, _ in rows]
        assert starts == sorted(set(starts))
        for start, function in table.functions():
            assert function is not None
            # At its ends, and in the middle, where most rows begin.
            for address in (start, (start + function.end) // 2, function.end - 1, function.end):
                row = table.row(address)
                wanted = special_row(Special.NO_ROW) if row is None else compact_row(row, X86)
                _, offset, rules = rows[bisect_right(starts, address - compact.base) - 1]
                assert offset | rules << 16 == wanted, hex(address)


def test_a_row_by_the_stack_pointer() -> None:
    row = Row(Cfa(7, 64), {**RETURN, 6: RegisterRule(RuleKind.SAVED, -16)}, 16)
    found = plain_row(by_frame=False, offset=8, frame_slot=2, return_slot=1)
    assert compact_row(row, X86) == found


def test_a_row_by_the_frame_pointer() -> None:
    found = plain_row(by_frame=True, offset=2, frame_slot=0, return_slot=1)
    assert compact_row(Row(Cfa(6, 16), RETURN, 16), X86) == found


def test_the_link_register_of_arm64() -> None:
    found = plain_row(by_frame=False, offset=0, frame_slot=0, return_slot=0)
    assert compact_row(Row(Cfa(31, 0), {}, 30), CPUS["aarch64"]) == found


@pytest.mark.parametrize(
    ("cfa", "saved", "found"),
    [
        (Cfa(31, 2064), {29: -2064, 30: -2056}, special_row(Special.RECORD_BY_STACK, 258, 1)),
        (Cfa(31, 2064), {29: -2048, 30: -2040}, special_row(Special.RECORD_BY_STACK, 258, 3)),
        (Cfa(29, 2064), {29: -2064, 30: -2056}, special_row(Special.RECORD_BY_FRAME, 258, 1)),
        (Cfa(31, 2064), {30: -2064}, special_row(Special.RETURN_BY_STACK, 258)),
        (Cfa(29, 2064), {30: -2064}, special_row(Special.COMPLEX)),
        (Cfa(9, 2064), {29: -2064, 30: -2056}, special_row(Special.COMPLEX)),
        (Cfa(31, 2064), {29: -2040, 30: -2056}, special_row(Special.COMPLEX)),  # not together
        (Cfa(31, 2064), {30: -2080}, special_row(Special.COMPLEX)),  # below the stack pointer
        (Cfa(31, 4096), {30: -1032}, special_row(Special.COMPLEX)),  # in the middle of the frame
    ],
)
def test_a_large_frame_of_arm64_is_above_the_return_address(
    cfa: Cfa, saved: dict[int, int], found: int
) -> None:
    rules = {number: RegisterRule(RuleKind.SAVED, offset) for number, offset in saved.items()}
    assert compact_row(Row(cfa, rules, 30), CPUS["aarch64"]) == found


def test_an_outermost_function() -> None:
    row = Row(Cfa(7, 8), {16: RegisterRule(RuleKind.UNDEFINED)}, 16)
    assert compact_row(row, X86) == special_row(Special.OUTERMOST)


def test_a_signal_trampoline() -> None:
    row = Row(Expression(b"\x77\xa0\x01\x06"), {}, 16, signal=True)
    assert compact_row(row, X86) == special_row(Special.SIGNAL)


def test_a_plt_stub() -> None:
    code = bytes.fromhex("770880003f1a3b2a332422")
    assert compact_row(Row(Expression(code), RETURN, 16), X86) == special_row(Special.PLT, 11)


@pytest.mark.parametrize(
    ("cfa", "rules"),
    [
        (Cfa(5, 8), RETURN),  # by rdi
        (Cfa(7, 12), RETURN),  # no multiple of a word
        (Cfa(7, 8 << 16), RETURN),  # too large
        (Cfa(7, 8), {}),  # the return address is nowhere
        (Cfa(7, 8), {**RETURN, 6: RegisterRule(RuleKind.REGISTER, 9)}),
        (Cfa(7, 8), {**RETURN, 6: RegisterRule(RuleKind.SAVED, -8 * 128)}),
        (Expression(b"\x77\x08"), RETURN),
        (None, RETURN),
    ],
)
def test_what_has_no_short_form(
    cfa: Cfa | Expression | None, rules: dict[int, RegisterRule]
) -> None:
    assert compact_row(Row(cfa, rules, 16), X86) == special_row(Special.COMPLEX)
