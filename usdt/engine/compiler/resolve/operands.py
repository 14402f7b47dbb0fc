"""Resolution of operands that must be integers, addresses, strings or containers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from usdt.arch.locations import ContextArea, ValueClass
from usdt.engine.compiler.arguments import Display
from usdt.engine.compiler.ir import (
    ArgumentValue,
    LValue,
    Node,
    Number,
    PointerExpr,
    RegisterAggregate,
    Unavailable,
)
from usdt.engine.compiler.limits import MAX_READ
from usdt.engine.language.tree import Call, Cast, Index, Member, Name, Text, Unary

if TYPE_CHECKING:
    from usdt.engine.compiler.scope import DefaultFormat, Scope
    from usdt.engine.language.tree import Expression

__all__ = ("OperandResolver", "address_of_lvalue", "is_string")


class OperandResolver(ABC):
    """Resolves operands that must be of a certain kind.

    Args:
        scope: the meaning of names.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @abstractmethod
    def resolve(self, tree: Expression) -> Node:
        """Return the typed expression of ``tree``.

        Raises:
            LanguageError: a name is unknown, or operands do not fit.
        """

    def scalar(self, tree: Expression) -> Node:
        """Return the typed expression of an integer or a pointer.

        Raises:
            LanguageError: as :meth:`resolve`; also if it is a float, an aggregate or a string.
        """
        return self.check_scalar(tree, self.resolve(tree))

    def check_scalar(self, tree: Expression, node: Node) -> Node:
        """Return ``node``, the typed expression of ``tree``, if it is an integer or a pointer.

        Raises:
            LanguageError: it is a float, an aggregate or a string.
        """
        if node.type.kind is ValueClass.FLOAT:
            if isinstance(node, Unavailable):
                raise self.scope.error(tree, f"not readable: {node.reason}")
            raise self.scope.error(
                tree, "floating-point values can be shown, not calculated with or compared"
            )
        if node.type.kind is ValueClass.BYTES:
            raise self.scope.error(
                tree, f"a value of {node.type.size} bytes can be shown, not calculated with"
            )
        if node.type.kind is ValueClass.STRING:
            raise self.scope.error(tree, 'a string is compared with another, as in comm == "nginx"')
        return node

    def address_of(self, tree: Expression) -> Node:
        """Return the address of a string or an array, or the integer that is used as an address.

        Raises:
            LanguageError: as :meth:`scalar`.
        """
        if isinstance(tree, (Name, Member, Index)):
            node = self.resolve(tree)
            contents = self.container_contents(tree)
            if (
                contents is not None
                and contents.begin is not None
                and contents.display is not Display.TAGGED_UNION
            ):
                return contents.begin
            if isinstance(node, LValue):
                return address_of_lvalue(node)
            if isinstance(node, ArgumentValue) and isinstance(node.fetch, ContextArea):
                return node
        return self.scalar(tree)

    def container_contents(self, tree: Expression) -> DefaultFormat | None:
        """Return the contents of a C++ or Rust container; None for every other expression."""
        if self.scope.types is None or not isinstance(tree, (Name, Member, Index, Unary, Cast)):
            return None
        node = self.resolve(tree)
        shown = self.scope.types.shown(node) if isinstance(node, (LValue, PointerExpr)) else None
        return shown if shown is not None and shown.begin is not None else None

    def string_address(self, tree: Expression) -> Node | None:
        """Return the address of an expression that is a string without str(); None for others."""
        if isinstance(tree, Name) and tree.name == "pcomm" and "pcomm" not in self.scope.arguments:
            node = self.resolve(tree)
            return address_of_lvalue(node) if isinstance(node, LValue) else node
        if isinstance(tree, Name) and tree.name in self.scope.arguments:
            argument = self.scope.arguments[tree.name]
            if argument.display is Display.STRING:
                return self.resolve(tree)
        if self.scope.types is None or not isinstance(tree, (Name, Member, Index, Unary, Cast)):
            return None
        node = self.resolve(tree)
        if isinstance(node, LValue):
            return address_of_lvalue(node) if node.type.kind is ValueClass.STRING else None
        if isinstance(node, PointerExpr):
            shown = self.scope.types.shown(node)
            return node if shown is not None and shown.display is Display.STRING else None
        return None

    def string_capacity(self, tree: Expression) -> int:
        """Return the maximum size, in bytes, of a string that string_address() finds."""
        node = self.resolve(tree)
        return node.type.size if isinstance(node, LValue) else MAX_READ

    def given_limit(self, call: Call) -> int | None:
        """Return MAX of ``str(EXPR, MAX)``; None if it is not given.

        Raises:
            LanguageError: it is not a constant, or out of range.
        """
        if len(call.arguments) == 1:
            return None
        limit = self.scalar(call.arguments[1])
        if isinstance(limit, Number) and 0 < limit.value < MAX_READ:
            return limit.value
        reason = f"the second argument of str() is a constant from 1 to {MAX_READ - 1}"
        raise self.scope.error(call.arguments[1], reason)


def address_of_lvalue(lvalue: LValue) -> Node:
    """Return the address of an lvalue; ``Unavailable`` if the value is in registers."""
    if isinstance(lvalue.address, RegisterAggregate):
        return Unavailable("it lies in registers and has no address")
    if isinstance(lvalue.address, Unavailable) or not lvalue.kernel:
        return lvalue.address
    return PointerExpr(lvalue.address, lvalue.type, type_id=lvalue.type_id, kernel=True)


def is_string(tree: Expression) -> bool:
    """Return True if ``tree`` is a string by its syntax: a constant, ``comm``, str(), ….

    ``func`` and ``pcomm`` are, too.
    """
    if isinstance(tree, Name):
        return tree.name in ("comm", "func", "pcomm")
    return isinstance(tree, Text) or (isinstance(tree, Call) and tree.function == "str")
