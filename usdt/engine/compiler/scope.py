"""What names mean at one probe, and what a front that knows types adds to the language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen
from usdt.engine.compiler.ir import U32, U64
from usdt.engine.compiler.limits import DEFAULT_STRING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from usdt.arch.locations import ValueType
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.compiler.arguments import Argument, Display
    from usdt.engine.compiler.ir import Node
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
    """How a value of a known type is shown.

    Attributes:
        display: how.
        shape: of STRUCT, the type of the structure, or of an array for a list of values.
        cast: its type in C.
        begin: of what a container holds (BUFFER, ARRAY, a list of values): its address; of
            TAGGED_UNION the number of the variant.
        length: of what a container holds, in bytes.
        element: of ARRAY, the type of an element.
    """

    display: Display
    shape: TypeSnapshot | None = None
    cast: str = ""
    begin: Node | None = None
    length: Node | None = None
    element: ValueType | None = None


class TypeProvider(Protocol):
    """What a front that knows types adds to the language: BTF's, DWARF's.

    Each method may answer None: then the error says that the type is not known here.
    """

    def argument(self, argument: Argument, node: Node) -> Node:
        """An argument with its type, where its ``handle`` says one."""

    def index(self, tree: Index, target: Node, index: Node) -> Node | None:
        """``target[index]``."""

    def deref(self, tree: Unary, target: Node) -> Node | None:
        """``*target``."""

    def names(self, node: Node) -> ValueNames | None:
        """Names of an expression's values: those of its enum."""

    def shown(self, node: Node) -> DefaultFormat | None:
        """How an expression of a known type is shown where nobody says how."""

    def cast(self, tree: Cast, operand: Node) -> Node | None:
        """``(struct X *)operand``, or to an enum or a typedef."""

    def member(self, tree: Member, target: Node) -> Node | None:
        """``target->name`` or ``target.name``."""


@frozen
class Scope:
    """What names mean at one probe.

    Attributes:
        text: the whole probe as written, for messages.
        probe: its name, for messages.
        arguments: by name.
        declared: how many arguments the probe has at most, over all its sites.
        function: what ``func`` is: of a function its name, of a USDT probe ``provider:name``.
        max_string: bytes that str() keeps where no MAX is given.
        max_struct: bytes that are kept of a structure; 0: structures are not shown.
        types: what knows members and named types; None: nothing does.
    """

    text: str
    probe: str
    arguments: Mapping[str, Argument]
    declared: int
    function: str = ""
    max_string: int = DEFAULT_STRING
    max_struct: int = 0
    types: TypeProvider | None = None

    def error(self, where: Expression, reason: str) -> LanguageError:
        """An error that points at ``where``."""
        return LanguageError(self.text, where.start, reason)
