"""Comparisons of arrays, with one another and with constants.

They become comparisons of numbers, eight bytes at once, so that every back end knows them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from usdt.arch.locations import ContextArea, ValueClass, ValueType
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S32,
    U64,
    ArgumentValue,
    Arithmetic,
    Compare,
    Deref,
    LValue,
    Node,
    Not,
    Number,
    PointerExpr,
    ShortCircuit,
    of_kernel,
)
from usdt.engine.compiler.resolve.conversions import convert
from usdt.engine.compiler.resolve.operands import OperandResolver, address_of_lvalue, is_string
from usdt.engine.language.tree import Cast, Index, Member, Name, Text, Unary

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.language.tree import Binary, Expression

__all__ = ("ArrayComparisons",)

MAX_BYTES = 256  # of a comparison


class ArrayComparisons(OperandResolver):
    """Resolves comparisons of arrays."""

    def compare_array(self, tree: Binary) -> Node | None:
        """Resolve a comparison of an array with a constant; None for any other.

        Raises:
            LanguageError: the constant does not have as many bytes, they are too many, or the
                operator is not ``==`` or ``!=``.
        """
        value, text = tree.left, tree.right
        if isinstance(value, Text):
            value, text = text, value
        if not isinstance(text, Text) or not isinstance(value, (Name, Member, Index, Unary, Cast)):
            return None
        array = None if is_string(value) else _array_of(self.resolve(value))
        if array is None:
            return None
        return self._result(tree, _equal_constant(array[0], self._constant(text, array[1])))

    def compare_arrays(self, tree: Binary, left: Node, right: Node) -> Node | None:
        """Resolve a comparison of two arrays; None if neither side is one.

        Raises:
            LanguageError: one side is none, or as :meth:`compare_array`.
        """
        one, other = _array_of(left), _array_of(right)
        if one is None and other is None:
            return None
        if one is None or other is None or one[1] != other[1]:
            found = one or other
            size = 0 if found is None else found[1]
            reason = (
                f"an array of {size} bytes is compared with an array, or a string constant, of as "
                "many; or one of its elements with a number"
            )
            raise self.scope.error(tree, reason)
        self._check_size(tree, one[1])
        return self._result(tree, _equal(one[0], other[0], one[1]))

    def _result(self, tree: Binary, same: Node) -> Node:
        if tree.op not in ("==", "!="):
            raise self.scope.error(tree, "bytes can be compared with == and != only")
        return same if tree.op == "==" else fold(Not(same))

    def _constant(self, text: Text, size: int) -> bytes:
        if len(text.parts) > 1:
            reason = r"bytes are compared exactly, without patterns: write a star as \*"
            raise self.scope.error(text, reason)
        constant = text.parts[0]
        self._check_size(text, len(constant))
        if len(constant) != size:
            reason = f"the array has {size} bytes and the constant {len(constant)}"
            raise self.scope.error(text, reason)
        return constant

    def _check_size(self, tree: Expression, size: int) -> None:
        if size > MAX_BYTES:
            reason = f"at most {MAX_BYTES} bytes can be compared, not {size}"
            raise self.scope.error(tree, reason)


def _array_of(node: Node) -> tuple[Node, int] | None:
    """Return the address and the size of an array that is no string; None for other values."""
    if isinstance(node, LValue) and node.type.kind is ValueClass.BYTES and node.element is not None:
        return address_of_lvalue(node), node.type.size
    if isinstance(node, ArgumentValue) and isinstance(node.fetch, ContextArea):
        fixed = node.fetch.location == "here" and node.type.kind is ValueClass.BYTES
        return (node, node.fetch.size) if fixed else None
    return None


def _equal_constant(address: Node, wanted: bytes) -> Node:
    def piece(at: int, kind: ValueType) -> Node:
        return Number(int.from_bytes(wanted[at : at + kind.size], sys.byteorder), kind)

    return _all_equal(address, len(wanted), piece)


def _equal(one: Node, other: Node, size: int) -> Node:
    return _all_equal(one, size, lambda at, kind: _loaded(other, at, kind))


def _all_equal(address: Node, size: int, piece: Callable[[int, ValueType], Node]) -> Node:
    same: Node = Number(1, S32)
    at = 0
    while at < size:
        width = next(width for width in (8, 4, 2, 1) if width <= size - at)
        kind = ValueType(ValueClass.UNSIGNED, width)
        equal = fold(Compare("==", _loaded(address, at, kind), piece(at, kind), kind))
        same = equal if not at else fold(ShortCircuit("&&", same, equal))
        at += width
    return same


def _loaded(address: Node, offset: int, kind: ValueType) -> Node:
    start = address.address if isinstance(address, PointerExpr) else address
    moved = fold(Arithmetic("+", convert(start, U64), Number(offset, U64), U64))
    return fold(Deref(moved, kind, None, of_kernel(address)))
