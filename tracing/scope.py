"""What names mean at one probe, and what a front that knows types adds to the language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bpf.errors import LanguageError
from bpf.frozen import frozen
from tracing.ir import U32, U64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracing.ir import Node
    from tracing.language.tree import Cast, Expression, Index, Member, Unary
    from tracing.names import Names
    from tracing.values import Argument

__all__ = ("DEFAULT_STRING", "INTEGER_BUILTINS", "MAX_READ", "Scope", "Types")

INTEGER_BUILTINS = {
    "pid": U32,
    "tid": U32,
    "uid": U32,
    "gid": U32,
    "cpu": U32,
    "ts": U64,
    "cgroup": U64,
}
MAX_READ = 1 << 16  # bytes of one string or buffer
DEFAULT_STRING = 128  # bytes that str() keeps unless told otherwise


class Types(Protocol):
    """What a front that knows types adds to the language: BTF's, DWARF's.

    Each method may answer None: then the error says that the type is not known here.
    """

    def argument(self, argument: Argument, node: Node) -> Node:
        """An argument with its type, where its ``handle`` says one."""

    def index(self, tree: Index, target: Node, index: Node) -> Node | None:
        """``target[index]``."""

    def deref(self, tree: Unary, target: Node) -> Node | None:
        """``*target``."""

    def names(self, node: Node) -> Names | None:
        """Names of an expression's values: those of its enum."""

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
        types: what knows members and named types; None: nothing does.
    """

    text: str
    probe: str
    arguments: Mapping[str, Argument]
    declared: int
    function: str = ""
    max_string: int = DEFAULT_STRING
    types: Types | None = None

    def error(self, where: Expression, reason: str) -> LanguageError:
        """An error that points at ``where``."""
        return LanguageError(self.text, where.start, reason)
