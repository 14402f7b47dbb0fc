"""Numbers of structures that are in registers, at a function's entry or return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import AtFunctionReturn, ForReturn, Unreadable
from usdt.engine.compiler.ir import ArgumentValue, Unavailable

if TYPE_CHECKING:
    from usdt.arch.locations import Register, ValueType
    from usdt.engine.compiler.ir import InRegisters, Node

__all__ = ("loaded", "readable", "unreadable")


def loaded(held: InRegisters, register: Register, kind: ValueType) -> ArgumentValue:
    """Return the number of type ``kind`` in a register of ``held``."""
    if held.for_return:
        return ArgumentValue(ForReturn(register), kind)
    return ArgumentValue(AtFunctionReturn(register) if held.returned else register, kind)


def unreadable(held: InRegisters, reason: str, kind: ValueType) -> Node:
    """Return an unreadable value of ``held``.

    At the return it keeps its location, so that the probe fires there.
    """
    if held.returned:
        return ArgumentValue(AtFunctionReturn(Unreadable(reason)), kind)
    return Unavailable(reason, kind)


def readable(node: Node) -> bool:
    """Return False for an unreadable value at the return."""
    fetch = node.fetch if isinstance(node, ArgumentValue) else None
    return not (isinstance(fetch, AtFunctionReturn) and isinstance(fetch.register, Unreadable))
