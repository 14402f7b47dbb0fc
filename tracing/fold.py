"""Constant folding: expressions whose value is known when the program is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracing.ir import (
    Arithmetic,
    Compare,
    CompareText,
    Convert,
    Deref,
    Logic,
    Not,
    Number,
    Opaque,
    wrap,
)

if TYPE_CHECKING:
    from tracing.ir import Node
    from tracing.values import ValueType

__all__ = ("fold",)


def fold(node: Node) -> Node:
    """``node``, or the number it always is; operands have been folded before.

    An operand that cannot be read makes the whole expression so, except behind a ``&&`` or
    ``||`` that does not reach it.
    """
    match node:
        case Convert(operand=Number(value=value), type=kind):
            return Number(wrap(value, kind), kind)
        case Convert(operand=Opaque(reason=reason)) | Not(operand=Opaque(reason=reason)):
            return Opaque(reason, node.type)
        case Deref(address=Opaque(reason=reason)) | CompareText(address=Opaque(reason=reason)):
            return Opaque(reason, node.type)
        case Not(operand=Number(value=value), type=kind):
            return Number(int(not value), kind)
        case Logic():
            return _logic(node)
        case Arithmetic(left=Opaque(reason=reason)) | Arithmetic(right=Opaque(reason=reason)):
            return Opaque(reason, node.type)
        case Compare(left=Opaque(reason=reason)) | Compare(right=Opaque(reason=reason)):
            return Opaque(reason, node.type)
        case Arithmetic(op="/" | "%", right=Number(value=0), type=kind):
            return Opaque("division by zero", kind)
        case Arithmetic(op=op, left=Number(value=a), right=None, type=kind):
            return Number(wrap(-a if op == "-" else ~a, kind), kind)
        case Arithmetic(op=op, left=Number(value=a), right=Number(value=b), type=kind):
            return _arithmetic(op, a, b, kind)
        case Compare(op=op, left=Number(value=a), right=Number(value=b), type=kind):
            return Number(int(_COMPARE[op](a, b)), kind)
    return node


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
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # C cuts towards 0
        return Number(wrap(quotient if op == "/" else a - b * quotient, kind), kind)
    if op in ("<<", ">>"):
        b &= kind.size * 8 - 1  # as the machine does; C leaves larger counts undefined
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


def _logic(node: Logic) -> Node:
    settles = 1 if node.op == "||" else 0  # the value of the left side that decides alone
    match node.left, node.right:
        case Number(value=left), right:
            if bool(left) is bool(settles):
                return Number(settles, node.type)
            if isinstance(right, Number):
                return Number(int(bool(right.value)), node.type)
            return Opaque(right.reason, node.type) if isinstance(right, Opaque) else node
        case Opaque(reason=reason), _:
            return Opaque(reason, node.type)
    return node
