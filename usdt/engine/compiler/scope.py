"""Scopes: the meaning of names at a probe, and the interface to type information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from usdt.arch.context_registers import ContextRegisters
from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen
from usdt.engine.compiler.ir import U32, U64
from usdt.engine.compiler.limits import DEFAULT_STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from usdt.arch.locations import ValueType
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.compiler.arguments import Argument, Display
    from usdt.engine.compiler.ir import ArgumentValue, Node
    from usdt.engine.compiler.record.columns import StackCopyColumn
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.language.tree import Cast, Expression, Index, Member, Unary

__all__ = (
    "INTEGER_BUILTINS",
    "DefaultFormat",
    "Scope",
    "TypeProvider",
)

INTEGER_BUILTINS = {
    "pid": U32,
    "tid": U32,
    "uid": U32,
    "gid": U32,
    "cpu": U32,
    "ts": U64,
    "cgroup": U64,
}


@frozen
class DefaultFormat:
    """How a value of a known type is shown by default.

    Attributes:
        display: the format.
        shape: for STRUCT, the type of the structure, or the array type of a list of values.
        cast: the type of the value in C's syntax, or "".
        begin: for containers (BUFFER, ARRAY, a list of values), the address of the contents; for
            TAGGED_UNION, the number of the variant.
        length: for containers, the size of the contents in bytes.
        element: for ARRAY, the type of an element.
    """

    display: Display
    shape: TypeSnapshot | None = None
    cast: str = ""
    begin: Node | None = None
    length: Node | None = None
    element: ValueType | None = None


class TypeProvider(Protocol):
    """Type information of a probe, from BTF or DWARF.

    A method returns None if it does not know the type. The resolver then applies its own rules
    or reports an error. A method may raise :class:`~usdt.base.errors.BtfError`.
    """

    def argument(self, argument: Argument, node: ArgumentValue) -> Node:
        """Return ``node``, an argument, with the type of its ``type_ref``."""

    def index(self, tree: Index, target: Node, index: Node) -> Node | None:
        """Return ``target[index]``."""

    def deref(self, tree: Unary, target: Node) -> Node | None:
        """Return ``*target``."""

    def names(self, node: Node) -> ValueNames | None:
        """Return the names of an expression's values, which are those of its enum."""

    def shown(self, node: Node) -> DefaultFormat | None:
        """Return how an expression is shown if the item does not specify it."""

    def cast(self, tree: Cast, operand: Node) -> Node | None:
        """Return ``(struct X *)operand``, or the cast to an enum or a typedef."""

    def member(self, tree: Member, target: Node) -> Node | None:
        """Return ``target->name`` or ``target.name``."""

    def variable_hint(self, name: str) -> str:
        """Return the end of a message about an unknown name: a variable that was meant; or ""."""


@frozen
class Scope:
    """The meaning of names at one site of a probe.

    Attributes:
        text: the complete probe as written, for errors.
        probe: its name, for errors.
        arguments: the arguments of the site, by name.
        declared: the largest number of arguments at any site of the probe.
        function: the value of ``func``: a function's name, or ``provider:name`` of a USDT probe.
        max_string: bytes that str() keeps if no MAX is given.
        max_struct: bytes that are kept of a structure; 0: structures are not shown.
        types: resolves members and named types; None if no type information is available.
        duration: the value of ``duration`` at the end of a pair; None at all other probes.
        registers: the registers of the context, and the return address.
        stack_copy: returns the column of a copy of the user stack; None, or if it returns None: the
            kernel records what it unwinds by frame pointers.
        in_short: whether arguments that lead to structures are shown with them, in short.
    """

    text: str
    probe: str
    arguments: Mapping[str, Argument]
    declared: int
    function: str = ""
    max_string: int = DEFAULT_STRING
    max_struct: int = 0
    types: TypeProvider | None = None
    duration: Node | None = None
    registers: ContextRegisters = ContextRegisters()
    stack_copy: Callable[[], StackCopyColumn | None] | None = None
    in_short: bool = False

    def error(self, where: Expression, reason: str) -> LanguageError:
        """Return an error that points at ``where``."""
        return LanguageError(self.text, where.start, reason)
