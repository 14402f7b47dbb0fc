"""Constant folding: expressions whose value is known when the program is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.engine.compiler.ir import (
    Arithmetic,
    Compare,
    Convert,
    Deref,
    Not,
    Number,
    ShortCircuit,
    StringEquals,
    StringEqualsConst,
    StringMatches,
    Unavailable,
    bounds,
    can_fail,
    wrap,
)

if TYPE_CHECKING:
    from usdt.arch.locations import ValueType
    from usdt.engine.compiler.ir import Node

__all__ = ("fold", "range_of")


def fold(node: Node) -> Node:
    """Return ``node`` simplified: a number if its value is constant.

    The operands have been folded already. An unavailable operand makes the expression
    unavailable, unless it is the right side of ``&&`` or ``||``, which may not be evaluated.
    """
    match node:
        case Convert(operand=Number(value=value), type=kind):
            return Number(wrap(value, kind), kind)
        case Convert(operand=Unavailable(reason=reason)) | Not(operand=Unavailable(reason=reason)):
            return Unavailable(reason, node.type)
        case (
            Deref(address=Unavailable(reason=reason))
            | StringEqualsConst(address=Unavailable(reason=reason))
            | StringMatches(address=Unavailable(reason=reason))
            | StringMatches(length=Unavailable(reason=reason))
        ):
            return Unavailable(reason, node.type)
        case (
            StringEquals(left=Unavailable(reason=reason))
            | StringEquals(right=Unavailable(reason=reason))
        ):
            return Unavailable(reason, node.type)
        case Not(operand=Number(value=value), type=kind):
            return Number(int(not value), kind)
        case Not(operand=Not(operand=inner)) if isinstance(inner, _TRUTHS):
            return inner
        case Not(operand=Compare() as negated):
            return replace(negated, op=negated.opposite)
        case ShortCircuit():
            return _logic(node)
        case (
            Arithmetic(left=Unavailable(reason=reason))
            | Arithmetic(right=Unavailable(reason=reason))
        ):
            return Unavailable(reason, node.type)
        case Compare(left=Unavailable(reason=reason)) | Compare(right=Unavailable(reason=reason)):
            return Unavailable(reason, node.type)
        case Arithmetic(op="/" | "%", right=Number(value=0), type=kind):
            return Unavailable("division by zero", kind)
        case Arithmetic(op=op, left=Number(value=a), right=None, type=kind):
            return Number(wrap(-a if op == "-" else ~a, kind), kind)
        case Arithmetic(op=op, left=Number(value=a), right=Number(value=b), type=kind):
            return _arithmetic(op, a, b, kind)
        case Compare(op=op, left=Number(value=a), right=Number(value=b), type=kind):
            return Number(int(_COMPARE[op](a, b)), kind)
        case Arithmetic(left=left, right=Number(value=value)):
            return _neutral(node, left, value)
        case Compare(right=Number(value=value)):
            return _decided(node, range_of(node.left), (value, value))
        case Compare(left=Number(value=value)):
            return _decided(node, (value, value), range_of(node.right))
    return node


# Their value is 0 or 1.
_TRUTHS = (Compare, StringEqualsConst, StringEquals, StringMatches, ShortCircuit, Not)
_COMPARE = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}


def _arithmetic(op: str, a: int, b: int, kind: ValueType) -> Number:
    if op in ("/", "%"):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # C truncates towards 0
        return Number(wrap(quotient if op == "/" else a - b * quotient, kind), kind)
    if op in ("<<", ">>"):
        b &= kind.size * 8 - 1  # as eBPF does; C leaves larger counts undefined
    value = {
        "+": lambda: a + b,
        "-": lambda: a - b,
        "*": lambda: a * b,
        "&": lambda: a & b,
        "|": lambda: a | b,
        "^": lambda: a ^ b,
        "<<": lambda: a << b,
        ">>": lambda: a >> b,
    }[op]()
    return Number(wrap(value, kind), kind)


def _neutral(node: Arithmetic, left: Node, value: int) -> Node:
    # x + 0, x * 1 and the like are x. x * 0 and the like are 0, but only if x is always readable.
    if (value == 0 and node.op in ("+", "-", "|", "^", "<<", ">>")) or (
        value == 1 and node.op in ("*", "/")
    ):
        return left
    if (value == 0 and node.op in ("*", "&")) or (value == 1 and node.op == "%"):
        return node if can_fail(left) else Number(0, node.type)
    return node


def range_of(node: Node) -> tuple[int, int]:
    """Return the smallest and the largest value that a node of an integer type can have."""
    if isinstance(node, Number):
        return node.value, node.value
    low, high = bounds(node.type)
    if isinstance(node, _TRUTHS):
        return 0, 1
    if isinstance(node, Convert):
        inner = range_of(node.operand)
        if low <= inner[0] and inner[1] <= high:
            return inner
    return low, high


def _decided(node: Compare, left: tuple[int, int], right: tuple[int, int]) -> Node:
    # Fold a comparison that the ranges of both sides decide, if both are always readable.
    found = None
    if left[1] < right[0]:
        found = node.op in ("<", "<=", "!=")
    elif right[1] < left[0]:
        found = node.op in (">", ">=", "!=")
    elif node.op in ("<=", ">") and left[1] <= right[0]:
        found = node.op == "<="
    elif node.op in (">=", "<") and right[1] <= left[0]:
        found = node.op == ">="
    return node if found is None or can_fail(node) else Number(int(found), node.type)


def _logic(node: ShortCircuit) -> Node:
    settles = node.op == "||"  # the truth value of one side that decides the result
    match node.left, node.right:
        case Number(value=left), right:
            if bool(left) is settles:
                return Number(int(settles), node.type)
            return (
                Unavailable(right.reason, node.type)
                if isinstance(right, Unavailable)
                else _truth(right)
            )
        case Unavailable(reason=reason), _:
            return Unavailable(reason, node.type)
        case left, Number(value=right):
            if bool(right) is not settles:
                return _truth(left)
            return node if can_fail(left) else Number(int(settles), node.type)
    return node


def _truth(node: Node) -> Node:
    return node if isinstance(node, _TRUTHS) else fold(Not(fold(Not(node))))
