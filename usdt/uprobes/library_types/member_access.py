"""The protocol by which recognizers of C++ and Rust types access members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from usdt.btf import types as btf_types
    from usdt.btf.reader import Btf
    from usdt.engine.compiler.ir import LValue, Node

__all__ = ("MemberAccess",)


class MemberAccess(Protocol):
    """Access to members of a program's structures, in memory or in registers."""

    @property
    def btf(self) -> Btf:
        """The program's types."""

    @property
    def big_endian(self) -> bool:
        """True if the program's CPU is big-endian."""

    def type_named(self, name: str) -> int | None:
        """Return the ID of the type with this source-level name, or None."""

    def member_by_name(self, target: Node, name: str) -> Node | None:
        """Return the named member of a structure; None if it has none of that name."""

    def member_at(self, target: LValue, bits: int, member: btf_types.Member) -> Node | None:
        """Return a member that begins ``bits`` bits into a structure."""

    def lvalue_at(self, address: Node, number: int) -> Node | None:
        """Return the object of type ``number`` at an address."""
