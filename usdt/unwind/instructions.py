"""Call frame instructions: the programs that make the rows of a function's unwind table.

DWARF 5, sections 6.4.2 and 7.24, with the extensions of GNU and arm64 (``DW_CFA_GNU_args_size``,
``DW_CFA_AARCH64_negate_ra_state``: "DWARF for the Arm 64-bit Architecture", section 4.4).
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from usdt.base.frozen import frozen
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.dwarf.units.forms import read_sleb128, read_uleb128
from usdt.unwind.rules import Cfa, Expression, RegisterRule, Row, RuleKind

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("CommonInformation", "State", "row_of", "rows_of", "state_after")

_MAX_SAVED = 64  # states that remember_state may keep; compilers nest one or two
_MAX_RULES = 1 << 19  # in all rows of one function; the largest function of libjvm has some 3,000
_MAX_REGISTER = 128

_NEGATE_RA_STATE = 0x2D


@frozen
class CommonInformation:
    """What the functions of a common information entry (CIE) share.

    Attributes:
        code_factor, data_factor: alignment factors of addresses and offsets.
        return_register: the column of the return address.
        pointer_encoding: of addresses (DW_EH_PE_…).
        augmented: whether entries have augmentation data.
        signal: whether its functions are signal trampolines.
        instructions: the instructions before those of each function.
    """

    code_factor: int
    data_factor: int
    return_register: int
    pointer_encoding: int
    augmented: bool
    signal: bool
    instructions: bytes


def rows_of(
    common: CommonInformation, instructions: bytes, start: int
) -> tuple[list[int], list[Row]]:
    """Run the instructions of a function.

    Args:
        common: the function's common information.
        instructions: the function's own instructions.
        start: its first address.

    Returns:
        The first addresses of its rows, ascending, and the rows.

    Raises:
        MalformedDwarf: an instruction is unknown or cut off, or there are too many rows.
    """
    machine = _Machine(common, start)
    machine.run(common.instructions)
    machine.initial = dict(machine.rules)
    machine.run(instructions)
    machine.end_row(machine.address)
    return machine.starts, machine.rows


class State(NamedTuple):
    """The rules between two instructions, in a form that can be compared."""

    cfa: Cfa | Expression | None = None
    rules: tuple[tuple[int, RegisterRule], ...] = ()
    initial: tuple[tuple[int, RegisterRule], ...] | None = None  # those of the common information
    signed: bool = False
    saved: tuple[State, ...] = ()


def state_after(common: CommonInformation, state: State | None, instructions: bytes) -> State:
    """Run instructions that do not advance the address.

    Args:
        common: the function's common information.
        state: the rules before; None before the first instruction of a function.
        instructions: the instructions.

    Raises:
        MalformedDwarf: an instruction is unknown or cut off.
    """
    machine = _Machine(common, 0)
    if state is None:
        machine.run(common.instructions)
        machine.initial = dict(machine.rules)
    else:
        machine.resume(state)
    machine.run(instructions)
    return machine.state()


def row_of(common: CommonInformation, state: State) -> Row:
    """Return the row of a state."""
    rules = dict(state.rules)
    return Row(state.cfa, rules, common.return_register, common.signal, state.signed)


class _Machine:
    def __init__(self, common: CommonInformation, start: int) -> None:
        self.common = common
        self.address = start
        self.cfa: Cfa | Expression | None = None
        self.rules: dict[int, RegisterRule] = {}
        self.initial: dict[int, RegisterRule] = {}
        self.signed = False
        self.saved: list[tuple[Cfa | Expression | None, dict[int, RegisterRule], bool]] = []
        self.starts: list[int] = []
        self.rows: list[Row] = []
        self.budget = _MAX_RULES
        self.data = b""
        self.at = 0

    def run(self, instructions: bytes) -> None:
        self.data, self.at = instructions, 0
        try:
            while self.at < len(self.data):
                self._step()
        except IndexError:
            raise MalformedDwarf("call frame instructions are cut off") from None

    def resume(self, state: State) -> None:
        """Continue from a state."""
        self.cfa, self.signed = state.cfa, state.signed
        self.rules, self.initial = dict(state.rules), dict(state.initial or ())
        self.saved = [(one.cfa, dict(one.rules), one.signed) for one in state.saved]

    def state(self) -> State:
        """Return the state."""
        rules, initial = (
            tuple(sorted(one.items(), key=itemgetter(0))) for one in (self.rules, self.initial)
        )
        saved = tuple(
            State(cfa, tuple(sorted(rules.items(), key=itemgetter(0))), None, signed)
            for cfa, rules, signed in self.saved
        )
        return State(self.cfa, rules, initial, self.signed, saved)

    def end_row(self, address: int) -> None:
        """Add the row that ends before ``address``, or that is the last one."""
        self.budget -= 1 + len(self.rules)
        if self.budget < 0:
            raise MalformedDwarf(f"more than {_MAX_RULES} rules in a function's unwind table")
        common = self.common
        self.starts.append(self.address)
        self.rows.append(
            Row(self.cfa, dict(self.rules), common.return_register, common.signal, self.signed)
        )
        self.address = address

    # ------------------------------------------------------------ operands

    def _uleb(self) -> int:
        value, self.at = read_uleb128(self.data, self.at)
        return value

    def _sleb(self) -> int:
        value, self.at = read_sleb128(self.data, self.at)
        return value

    def _fixed(self, size: int) -> int:
        value = self.data[self.at : self.at + size]
        if len(value) < size:
            raise IndexError
        self.at += size
        return int.from_bytes(value, "little")

    def _block(self) -> Expression:
        size = self._uleb()
        code = self.data[self.at : self.at + size]
        if len(code) < size:
            raise IndexError
        self.at += size
        return Expression(code)

    def _register(self) -> int:
        number = self._uleb()
        if number >= _MAX_REGISTER:
            raise MalformedDwarf(f"register {number} in call frame instructions")
        return number

    # ------------------------------------------------------------ instructions

    def _step(self) -> None:
        opcode = self.data[self.at]
        self.at += 1
        operand = opcode & 0x3F
        match opcode & 0xC0:
            case 0x40:
                self._advance(operand)
            case 0x80:
                self._save(operand, self._uleb() * self.common.data_factor)
            case 0xC0:
                self._restore(operand)
            case _:
                instruction = _INSTRUCTIONS.get(opcode)
                if instruction is None:
                    raise MalformedDwarf(f"unknown call frame instruction {opcode:#x}")
                instruction(self)

    def _advance(self, units: int) -> None:
        delta = units * self.common.code_factor
        if delta:
            self.end_row(self.address + delta)

    def _save(self, register: int, offset: int) -> None:
        self.rules[register] = RegisterRule(RuleKind.SAVED, offset)

    def _restore(self, register: int) -> None:
        if register in self.initial:
            self.rules[register] = self.initial[register]
        else:
            self.rules.pop(register, None)

    def _rule(self, kind: RuleKind, operand: Callable[[], int | Expression] | None = None) -> None:
        register = self._register()
        self.rules[register] = RegisterRule(kind, 0 if operand is None else operand())

    def _factored(self) -> int:
        return self._uleb() * self.common.data_factor

    def _signed_factored(self) -> int:
        return self._sleb() * self.common.data_factor

    def _negative_factored(self) -> int:
        return -self._uleb() * self.common.data_factor

    def _set_cfa_register(self) -> None:
        register = self._register()
        offset = self.cfa.offset if isinstance(self.cfa, Cfa) else 0
        self.cfa = Cfa(register, offset)

    def _set_cfa_offset(self, offset: int) -> None:
        if isinstance(self.cfa, Cfa):
            self.cfa = Cfa(self.cfa.register, offset)

    def _define_cfa(self, *, factored: bool) -> None:
        register = self._register()
        self.cfa = Cfa(register, self._signed_factored() if factored else self._uleb())

    def _compute_cfa(self) -> None:
        self.cfa = self._block()

    def _remember(self) -> None:
        if len(self.saved) >= _MAX_SAVED:
            raise MalformedDwarf("call frame states are remembered without end")
        self.saved.append((self.cfa, dict(self.rules), self.signed))

    def _restore_state(self) -> None:
        if not self.saved:
            raise MalformedDwarf("a call frame state is restored that was not remembered")
        self.cfa, self.rules, self.signed = self.saved.pop()

    def _skip(self) -> None:
        self._uleb()

    def _negate_ra_state(self) -> None:
        self.signed = not self.signed


def _advance_by(size: int) -> Callable[[_Machine], None]:
    return lambda self: self._advance(self._fixed(size))


_INSTRUCTIONS: dict[int, Callable[[_Machine], None]] = {
    0x00: lambda _: None,  # nop
    0x02: _advance_by(1),
    0x03: _advance_by(2),
    0x04: _advance_by(4),
    0x05: lambda self: self._rule(RuleKind.SAVED, self._factored),
    0x06: lambda self: self._restore(self._register()),
    0x07: lambda self: self._rule(RuleKind.UNDEFINED),
    0x08: lambda self: self._rule(RuleKind.SAME),
    0x09: lambda self: self._rule(RuleKind.REGISTER, self._register),
    0x0A: lambda self: self._remember(),
    0x0B: lambda self: self._restore_state(),
    0x0C: lambda self: self._define_cfa(factored=False),
    0x0D: lambda self: self._set_cfa_register(),
    0x0E: lambda self: self._set_cfa_offset(self._uleb()),
    0x0F: lambda self: self._compute_cfa(),
    0x10: lambda self: self._rule(RuleKind.SAVED_AT, self._block),
    0x11: lambda self: self._rule(RuleKind.SAVED, self._signed_factored),
    0x12: lambda self: self._define_cfa(factored=True),
    0x13: lambda self: self._set_cfa_offset(self._signed_factored()),
    0x14: lambda self: self._rule(RuleKind.IS, self._factored),
    0x15: lambda self: self._rule(RuleKind.IS, self._signed_factored),
    0x16: lambda self: self._rule(RuleKind.COMPUTED, self._block),
    0x1D: _advance_by(8),  # DW_CFA_MIPS_advance_loc8
    _NEGATE_RA_STATE: lambda self: self._negate_ra_state(),
    0x2E: lambda self: self._skip(),  # DW_CFA_GNU_args_size
    0x2F: lambda self: self._rule(RuleKind.SAVED, self._negative_factored),
}
