"""Unwind tables in compact form, for the program that walks stacks in the kernel.

A file has tens of thousands of rows, so most are not made one by one: the instructions between two
addresses are few and repeat, so what they do to a state, and the row of that state, are kept.
"""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING

from usdt.arch.unwind_rows import (
    MAX_OFFSET,
    MAX_SLOT,
    CompactTable,
    Special,
    plain_row,
    special_row,
)
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.unwind.instructions import row_of, rows_of, state_after
from usdt.unwind.rules import Cfa, Expression, RuleKind

if TYPE_CHECKING:
    from usdt.arch.unwinding import Cpu
    from usdt.unwind.frame_table import FrameTable, Function
    from usdt.unwind.instructions import CommonInformation, State
    from usdt.unwind.rules import RegisterRule, Row

__all__ = ("compact_row", "compact_table")

_MAX_ROWS = 4 << 20
_NO_ROW = special_row(Special.NO_ROW)
_COMPLEX = special_row(Special.COMPLEX)

_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"  # LEB128
# Instructions that do not advance, without those that have expressions.
_PLAIN = b"|".join(
    (
        rb"[\x80-\xbf]" + _NUMBER,
        rb"[\xc0-\xff\x00\x0a\x0b\x2d]",
        rb"[\x06-\x08\x0d\x0e\x13\x2e]" + _NUMBER,
        rb"[\x05\x09\x0c\x11\x12\x14\x15\x2f]" + _NUMBER + _NUMBER,
    )
)
_STEPS = re.compile(rb"([\x40-\x7f]|\x02.|\x03..|\x04....|)((?:" + _PLAIN + rb")*)", re.DOTALL)

# PLT stubs: rsp + 8 + ((rip & 15) >= N) * 8, as linkers write it.
_PLT = re.compile(rb"\x77\x08\x80\x00\x3f\x1a([\x30-\x3f])\x2a\x33\x24\x22", re.DOTALL)
# A function that aligns its stack: the CFA is saved below the frame pointer.
_REALIGNED = re.compile(rb"\x76([\x40-\x7f])\x06", re.DOTALL)
_FRAME_AT_ITSELF = b"\x76\x00"


def compact_row(row: Row, cpu: Cpu) -> int:
    """Return the offset and the rules of a row: :func:`usdt.arch.unwind_rows.plain_row`."""
    if row.signal:
        return special_row(Special.SIGNAL)
    returned = row.rules.get(row.return_register)
    if returned is not None and returned.kind is RuleKind.UNDEFINED:
        return special_row(Special.OUTERMOST)
    in_link = cpu.link == row.return_register
    return_slot = _slot(returned) if returned is not None or in_link else None
    if return_slot is None or (not return_slot and not in_link):
        return _above_register(row, cpu)
    if isinstance(row.cfa, Expression):
        return _by_expression(row.cfa, row.rules.get(cpu.frame_pointer), return_slot, cpu)
    frame_slot = _slot(row.rules.get(cpu.frame_pointer))
    if row.cfa is None or frame_slot is None:
        return _COMPLEX
    offset = _offset(row.cfa, cpu)
    if offset is None:
        return _COMPLEX
    return plain_row(
        by_frame=row.cfa.register == cpu.frame_pointer,
        offset=offset,
        frame_slot=frame_slot,
        return_slot=return_slot,
    )


def _offset(cfa: Cfa, cpu: Cpu) -> int | None:
    # Words from the stack pointer or the frame pointer to the CFA; None: another register.
    words, rest = divmod(cfa.offset, 8)
    usable = cfa.register in (cpu.sp, cpu.frame_pointer)
    return words if usable and not rest and 0 <= words <= MAX_OFFSET else None


def _above_register(row: Row, cpu: Cpu) -> int:
    # A large frame between the return address, far below the CFA, and the CFA: usual on arm64.
    returned = _saved(row.rules.get(row.return_register))
    if not isinstance(row.cfa, Cfa) or returned is None:
        return _COMPLEX
    offset, frame = _offset(row.cfa, cpu), row.rules.get(cpu.frame_pointer)
    slot, rest = divmod(row.cfa.offset + returned, 8)
    if offset is None or rest or not 0 <= slot <= MAX_SLOT:
        return _COMPLEX
    by_stack = row.cfa.register == cpu.sp
    if frame is None or frame.kind is RuleKind.SAME:
        return special_row(Special.RETURN_BY_STACK, offset, slot) if by_stack else _COMPLEX
    if not slot or _saved(frame) != returned - 8:
        return _COMPLEX
    kind = Special.RECORD_BY_STACK if by_stack else Special.RECORD_BY_FRAME
    return special_row(kind, offset, slot)


def _saved(rule: RegisterRule | None) -> int | None:
    # The offset from the CFA where a register is saved; None: it is not.
    if rule is None or rule.kind is not RuleKind.SAVED:
        return None
    return rule.operand if isinstance(rule.operand, int) else None


def _slot(rule: RegisterRule | None) -> int | None:
    # Words below the CFA where a register is saved; 0: it is unchanged; None: another rule.
    if rule is None or rule.kind is RuleKind.SAME:
        return 0
    saved = _saved(rule)
    if saved is None:
        return None
    words, rest = divmod(-saved, 8)
    return words if not rest and 1 <= words <= MAX_SLOT else None


def _by_expression(cfa: Expression, frame: RegisterRule | None, return_slot: int, cpu: Cpu) -> int:
    if return_slot != 1 or cpu.pc_number is None:
        return _COMPLEX
    stub = _PLT.fullmatch(cfa.code)
    if stub is not None and (frame is None or frame.kind is RuleKind.SAME):
        return special_row(Special.PLT, stub[1][0] - 0x30)
    aligned = _REALIGNED.fullmatch(cfa.code)
    saved = frame is not None and frame.kind is RuleKind.SAVED_AT
    if aligned is not None and saved and frame is not None and _is(frame, _FRAME_AT_ITSELF):
        words, rest = divmod(0x80 - aligned[1][0], 8)
        return _COMPLEX if rest else special_row(Special.REALIGNED, words)
    return _COMPLEX


def _is(rule: RegisterRule, code: bytes) -> bool:
    return isinstance(rule.operand, Expression) and rule.operand.code == code


def compact_table(table: FrameTable, cpu: Cpu) -> CompactTable:
    """Return the rows of a table, without those that repeat the one before.

    Raises:
        MalformedDwarf: the table is too large.
    """
    return _Compiler(cpu).compile(table)


class _Compiler:
    def __init__(self, cpu: Cpu) -> None:
        self.cpu = cpu
        self.rows: array[int] = array("Q")
        self.programs: dict[tuple[int, bytes], list[tuple[int, int]]] = {}
        self.commons: dict[int, CommonInformation] = {}
        # States are numbered, so that they are compared once.
        self.numbers: dict[tuple[int, State], int] = {}
        self.states: list[tuple[State, int]] = []
        self.after: dict[tuple[int, bytes], int] = {}
        self.first: dict[int, int] = {}

    def compile(self, table: FrameTable) -> CompactTable:
        ahead = table.functions()
        start, function = next(ahead, (0, None))
        base = start
        for following, another in ahead:
            self._add(base, start, function, following)
            start, function = following, another
        if function is not None:
            self._add(base, start, function, function.end)
            self._append(function.end - base, _NO_ROW)
        return CompactTable(base, self.rows.tobytes())

    def _add(self, base: int, start: int, function: Function | None, limit: int) -> None:
        # Adds the rows of a function that ends at ``limit`` at most.
        if start >= limit:
            return
        if function is None:
            self._append(start - base, _COMPLEX)
            return
        end = min(function.end, limit)
        before = self.rows[-1] >> 32 if self.rows else -1
        rows, shift = self.rows, function.start - base
        for offset, code in self._program(function):
            address = shift + offset
            if address >= end - base:
                break
            if code != before:
                before = code
                rows.append(address | code << 32)
        if end < limit and before != _NO_ROW:
            self._append(end - base, _NO_ROW)
        if len(rows) > _MAX_ROWS or end - base >> 32:
            raise MalformedDwarf("too many rows in an unwind table")

    def _append(self, address: int, code: int) -> None:
        if address >> 32 or address < 0:
            raise MalformedDwarf("an unwind table of more than 4 GiB of code")
        self.rows.append(address | code << 32)

    def _program(self, function: Function) -> list[tuple[int, int]]:
        # The offsets and rows of a function.
        common = function.common
        key = (id(common), function.instructions)
        found = self.programs.get(key)
        if found is None:
            self.commons[id(common)] = common
            steps = _STEPS.findall(function.instructions)
            try:
                if sum(len(a) + len(b) for a, b in steps) == len(function.instructions):
                    found = self._run(common, steps)
                else:
                    found = self._interpret(function)
            except MalformedDwarf:
                found = [(0, _COMPLEX)]
            self.programs[key] = found
        return found

    def _run(
        self, common: CommonInformation, steps: list[tuple[bytes, bytes]]
    ) -> list[tuple[int, int]]:
        after, states = self.after, self.states
        state = self._initial(common)
        address, factor = 0, common.code_factor
        found = [(0, states[state][1])]
        for advance, instructions in steps:
            if advance:
                few = len(advance) == 1
                delta = advance[0] - 0x40 if few else int.from_bytes(advance[1:], "little")
                address += delta * factor
            key = (state, instructions)
            number = after.get(key)
            if number is None:
                number = after[key] = self._state_after(common, state, instructions)
            state = number
            if address == found[-1][0]:
                found[-1] = address, states[state][1]
            else:
                found.append((address, states[state][1]))
        return found

    def _initial(self, common: CommonInformation) -> int:
        found = self.first.get(id(common))
        if found is None:
            found = self.first[id(common)] = self._state_after(common, None, b"")
        return found

    def _state_after(
        self, common: CommonInformation, state: int | None, instructions: bytes
    ) -> int:
        before = None if state is None else self.states[state][0]
        made = state_after(common, before, instructions)
        key = (id(common), made)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.states)
            self.states.append((made, compact_row(row_of(common, made), self.cpu)))
        return number

    def _interpret(self, function: Function) -> list[tuple[int, int]]:
        starts, rows = rows_of(function.common, function.instructions, 0)
        return [
            (start, compact_row(row, self.cpu)) for start, row in zip(starts, rows, strict=True)
        ]
