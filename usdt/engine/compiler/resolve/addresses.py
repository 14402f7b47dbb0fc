"""Resolution of ``&``: addresses of variables, members and elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.engine.compiler.ir import Convert, Deref, LValue, Node, PointerExpr, Unavailable
from usdt.engine.compiler.resolve.names import address_of_untyped
from usdt.engine.language.tree import Name

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.compiler.scope import Scope
    from usdt.engine.language.tree import Expression, Unary

__all__ = ("address_of",)


def address_of(tree: Unary, scope: Scope, resolve: Callable[[Expression], Node]) -> Node:
    """Return the typed expression of ``&operand``.

    Raises:
        LanguageError: the operand has no address.
    """
    operand = tree.operand
    untyped = address_of_untyped(operand, scope) if isinstance(operand, Name) else None
    if untyped is not None:
        return untyped
    node = resolve(operand)
    place = _pointer_in(node) or node
    match place:
        case LValue(registers=None, address=address):
            size = ValueType(ValueClass.BYTES, place.type.size)
            return PointerExpr(address, size, type_id=place.type_id, kernel=place.kernel)
        case Deref(address=address, type=kind):
            return PointerExpr(address, kind, type_id=place.type_id, kernel=place.kernel)
        case Unavailable(reason=reason):
            raise scope.error(operand, reason)
    written = scope.text[operand.start : operand.end]
    what = "a bit field" if isinstance(place, Convert) else "a value without one"
    reason = "'&' takes the address of a variable, a member or an element; "
    raise scope.error(tree, f"{reason}{written} is {what}")


def _pointer_in(node: Node) -> Node | None:
    # The place in memory that holds a pointer; None for other values.
    if not isinstance(node, PointerExpr):
        return None
    address = node.address
    return address.operand if isinstance(address, Convert) else address
