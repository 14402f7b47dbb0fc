"""C's conversions, and arithmetic with pointers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import S32, S64, U64, Arithmetic, Convert, Node, Number, PointerExpr

if TYPE_CHECKING:
    from usdt.arch.locations import ValueType
    from usdt.engine.compiler.scope import Scope
    from usdt.engine.language.tree import Binary

__all__ = ("common", "convert", "moved", "no_pointers", "pointer_arithmetic", "promote")


def promote(node: Node) -> Node:
    """Return ``node`` after integer promotion: types smaller than ``int`` become ``int``."""
    if node.type.size < 4:
        return fold(Convert(node, S32))
    return node


def convert(node: Node, kind: ValueType) -> Node:
    """Return ``node`` converted to the integer type ``kind``."""
    return node if node.type == kind else fold(Convert(node, kind))


def common(left: ValueType, right: ValueType) -> ValueType:
    """Return the common type of two promoted operands: C17 6.3.1.8."""
    if left.size != right.size:
        return left if left.size > right.size else right
    return left if not left.signed else right


def pointer_arithmetic(tree: Binary, left: Node, right: Node, scope: Scope) -> Node:
    """Return the sum or difference of operands of which at least one is a pointer: C17 6.5.6.

    The unit is the size of the target.

    Raises:
        LanguageError: the operator or the operands are not valid for pointers.
    """
    if isinstance(left, PointerExpr) and isinstance(right, PointerExpr):
        if tree.op != "-" or left.target.size != right.target.size:
            raise scope.error(tree, no_pointers(tree.op))
        bytes_apart = fold(Arithmetic("-", _number(left), _number(right), S64))
        return fold(Arithmetic("/", bytes_apart, Number(left.target.size, S64), S64))
    if isinstance(left, PointerExpr) and tree.op in ("+", "-"):
        return moved(left, right, tree.op)
    if isinstance(right, PointerExpr) and tree.op == "+":
        return moved(right, left, tree.op)
    raise scope.error(tree, no_pointers(tree.op))


def no_pointers(op: str) -> str:
    """Return the error text for a pointer as operand of ``op``."""
    return f"{op} does not go with a pointer; for the address as a number write (long)(…)"


def _number(pointer: PointerExpr) -> Node:
    return fold(Convert(pointer.address, S64))


def moved(pointer: PointerExpr, count: Node, op: str) -> PointerExpr:
    """Return ``pointer`` moved by ``count`` elements; ``op`` is ``+`` or ``-``."""
    size = Number(pointer.target.size, S64)
    scaled = fold(Arithmetic("*", convert(count, S64), size, S64))
    address = fold(Arithmetic(op, pointer.address, convert(scaled, U64), U64))
    return replace(pointer, address=address)
