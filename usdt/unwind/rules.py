"""Rows of unwind tables: how to compute the registers of a function's caller.

DWARF 5, section 6.4. The *canonical frame address* (CFA) of a call is the stack pointer before the
call instruction. All other registers of the caller are relative to it, or unchanged.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("Cfa", "Expression", "RegisterRule", "Row", "RuleKind")


class RuleKind(enum.Enum):
    """Where the caller's value of a register is (DW_CFA_…)."""

    SAME = enum.auto()  # in the register: not changed so far
    UNDEFINED = enum.auto()  # nowhere; for the return address: there is no caller
    SAVED = enum.auto()  # in memory at CFA + offset
    IS = enum.auto()  # it is CFA + offset
    REGISTER = enum.auto()  # in another register
    SAVED_AT = enum.auto()  # in memory, at the address that an expression computes
    COMPUTED = enum.auto()  # an expression computes it


@frozen
class Expression:
    """A DWARF expression, not evaluated yet."""

    code: bytes


@frozen
class RegisterRule:
    """The rule of one register.

    Attributes:
        kind: how ``operand`` is used.
        operand: an offset from the CFA, the number of a register, or an expression.
    """

    kind: RuleKind
    operand: int | Expression = 0


@frozen
class Cfa:
    """The canonical frame address as register + offset."""

    register: int
    offset: int


@frozen
class Row:
    """The rules from one address to the next row's.

    Attributes:
        cfa: the canonical frame address; None in damaged tables.
        rules: register → rule; a register without a rule is unchanged, except for those that the
            calling convention does not preserve.
        return_register: the column of the return address.
        signal: whether the function is a signal trampoline: its "caller" was interrupted, so its
            address is that of an instruction, not a return address.
        signed: whether the return address is signed (pointer authentication on arm64).
    """

    cfa: Cfa | Expression | None
    rules: Mapping[int, RegisterRule]
    return_register: int
    signal: bool = False
    signed: bool = False
