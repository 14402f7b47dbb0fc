"""Predicates in the kernel's filter language (Documentation/trace/events.rst).

A filter compares a field, with its own size and signedness, to a constant; it has no arithmetic.
Predicates that a filter cannot express are omitted: the filter then passes more hits than
requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from usdt.arch.locations import ValueClass
from usdt.base.frozen import frozen
from usdt.engine.compiler.ir import (
    ArgumentValue,
    Builtin,
    Compare,
    Convert,
    Deref,
    Not,
    Number,
    ShortCircuit,
    StringEqualsConst,
    StringMatches,
    bounds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.ir import Node

__all__ = ("Filter", "Naming", "kernel_filter")

_LONGEST = 250  # bytes of a string; MAX_FILTER_STR_VAL is 256
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_GLOB = frozenset("*?[\\")
_HEADS = {"tid": "common_pid", "cpu": "CPU"}


class Naming(Protocol):
    """A function that returns the names of an event's fields."""

    def __call__(self, node: Node | None, *, text: bool) -> str | None:
        """Return the field of a value, or of the string at an address; None if there is none."""


@frozen
class Filter:
    """A filter of an event.

    Attributes:
        text: the filter in the kernel's language; "" if there is none.
        exact: whether it passes only hits for which all predicates are true.
    """

    text: str
    exact: bool


def kernel_filter(predicates: Sequence[Node], naming: Naming) -> Filter:
    """Return a filter that passes every hit for which all predicates are true."""
    texts = [_filter_text(node, naming) for node in predicates]
    known = [text for text in texts if text is not None]
    together = [f"({text})" if len(known) > 1 and "||" in text else text for text in known]
    return Filter(" && ".join(together), len(known) == len(texts))


def _filter_text(node: Node, naming: Naming) -> str | None:
    match node:
        case ShortCircuit(op=op, left=left, right=right):
            both = _filter_text(left, naming), _filter_text(right, naming)
            return None if None in both else f"({both[0]}) {op} ({both[1]})"
        case Not(operand=inner):
            if (text := _filter_text(inner, naming)) is not None:
                return f"!({text})"
            return _compared(inner, "==", 0, naming)
        case Compare(op=op, left=left, right=Number(value=value)):
            return _compared(left, op, value, naming)
        case Compare(op=op, left=Number(value=value), right=right):
            return _compared(right, _MIRRORED[op], value, naming)
        case StringEqualsConst(address=address, text=text, prefix=prefix, equal=equal):
            name = naming(address, text=True)
            parts = (text, b"") if prefix else (text,)
            return None if name is None else _matched(name, parts, equal=equal)
        case StringMatches(address=address, parts=parts, length=None, cut=cut, equal=equal):
            name = naming(address, text=True)
            if name is None or (cut and address is not None):
                return None  # a filter matches the whole string
            return _matched(name, parts, equal=equal)
    return None


def _compared(node: Node, op: str, value: int, naming: Naming) -> str | None:
    # Conversions that preserve all values are dropped; a filter cannot express others.
    while isinstance(node, Convert):
        inner, outer = node.operand.type, node.type
        if inner.kind not in (ValueClass.SIGNED, ValueClass.UNSIGNED):
            return None
        low, high = bounds(outer)
        if bounds(inner)[0] < low or bounds(inner)[1] > high:
            return None
        node = node.operand
    if isinstance(node, Builtin):
        name = _HEADS.get(node.name)
    elif isinstance(node, ArgumentValue | Deref) and node.type.kind in (
        ValueClass.SIGNED,
        ValueClass.UNSIGNED,
    ):
        name = naming(node, text=False)
    else:
        return None
    low, high = bounds(node.type)
    if name is None or not low <= value <= high:
        return None
    return f"{name} {op} {value}"


def _matched(name: str, parts: tuple[bytes, ...], *, equal: bool) -> str | None:
    text = b"*".join(parts)
    if len(text) > _LONGEST or not all(32 <= byte < 127 for byte in text):
        return None
    texts, pattern = text.decode(), len(parts) > 1
    quote = '"' if '"' not in texts else "'"
    special = any(_GLOB & set(part.decode()) for part in parts)
    if quote in texts or (pattern and special) or (not pattern and not texts):
        return None
    if not pattern:
        return f"{name} {'==' if equal else '!='} {quote}{texts}{quote}"
    matched = f"{name} ~ {quote}{texts}{quote}"
    return matched if equal else f"!({matched})"
