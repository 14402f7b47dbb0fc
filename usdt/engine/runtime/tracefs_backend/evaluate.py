"""Evaluation of expressions from the fields of a record, by the C rules that programs follow."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from usdt.arch.locations import Constant
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    ArgumentValue,
    Arithmetic,
    Builtin,
    Compare,
    Convert,
    Deref,
    LValue,
    Not,
    Number,
    PointerExpr,
    ShortCircuit,
    StringEquals,
    StringEqualsConst,
    StringMatches,
    Unavailable,
    children,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.ir import Node

__all__ = ("Rejected", "evaluate", "leaves", "rejected")

_UNREADABLE = Unavailable("memory not readable")


class Rejected(enum.Enum):
    """Why a hit is not shown."""

    FALSE = enum.auto()  # a predicate is false
    UNDECIDED = enum.auto()  # a predicate needs a value that cannot be read, or divides by zero


def leaves(node: Node) -> Iterator[Node]:
    """Yield the leaves to fetch for an expression; a string comparison is one leaf."""
    match node:
        case ArgumentValue(fetch=Constant()) | Number() | Unavailable():
            return
        case (
            ArgumentValue()
            | Deref()
            | Builtin()
            | LValue()
            | StringEqualsConst()
            | StringEquals()
            | StringMatches()
        ):
            yield node
        case _:
            for child in children(node):
                yield from leaves(child)


def evaluate(
    node: Node, leaf: Callable[[Node], Node], text: Callable[[Node | None], bytes | None]
) -> Node:
    """Return the value of an expression: a Number, or Unavailable.

    Args:
        node: the expression.
        leaf: returns the value of a leaf: a Number, or Unavailable.
        text: returns the string at an address, or None if it cannot be read; for the address None,
            the thread's name.
    """
    # Each operator is written out: this runs for every record, and a generic copy of the node with
    # new operands takes half as long again.
    if isinstance(node, ShortCircuit):
        left = evaluate(node.left, leaf, text)
        if isinstance(left, Number) and bool(left.value) is (node.op == "||"):
            return Number(int(node.op == "||"), node.type)  # the right operand is not evaluated
        return fold(ShortCircuit(node.op, left, evaluate(node.right, leaf, text), node.type))
    match node:
        case Number() | Unavailable():
            return node
        case ArgumentValue(fetch=Constant(value=value), type=kind):
            return Number(value, kind)
        case StringEqualsConst(address=address, text=wanted, prefix=prefix, equal=equal, type=kind):
            found = text(address)
            if found is None:
                return _UNREADABLE
            same = found.startswith(wanted) if prefix else found == wanted
            return Number(int(same is equal), kind)
        case StringMatches(address=address, length=None, equal=equal, type=kind):
            found = text(address)
            return _UNREADABLE if found is None else Number(int(node.matches(found) is equal), kind)
        case StringEquals(left=one, right=other, limit=limit, equal=equal, type=kind):
            both = text(one), text(other)
            if both[0] is None or both[1] is None:
                return _UNREADABLE
            return Number(int((both[0][:limit] == both[1][:limit]) is equal), kind)
        case PointerExpr(address=inner):
            return evaluate(inner, leaf, text)
        case Convert(operand=inner, type=kind):
            return fold(Convert(evaluate(inner, leaf, text), kind))
        case Not(operand=inner, type=kind):
            return fold(Not(evaluate(inner, leaf, text), kind))
        case Arithmetic(op=op, left=one, right=two, type=kind):
            right = None if two is None else evaluate(two, leaf, text)
            return fold(Arithmetic(op, evaluate(one, leaf, text), right, kind))
        case Compare(op=op, left=one, right=two, operands=operands, type=kind):
            sides = evaluate(one, leaf, text), evaluate(two, leaf, text)
            return fold(Compare(op, *sides, operands, kind))
    return leaf(node)


def rejected(
    predicates: Sequence[Node],
    leaf: Callable[[Node], Node],
    text: Callable[[Node | None], bytes | None],
) -> Rejected | None:
    """Return why a hit is not shown; None if all predicates are true. See :func:`evaluate`."""
    for predicate in predicates:
        found = evaluate(predicate, leaf, text)
        if not isinstance(found, Number):
            return Rejected.UNDECIDED
        if not found.value:
            return Rejected.FALSE
    return None
