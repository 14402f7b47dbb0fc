"""The types of the kernel in the probe language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import replace
from usdt.btf import types as btf_types
from usdt.btf.format import Kind
from usdt.engine.compiler.ir import PointerExpr
from usdt.engine.compiler.resolve.btf_types import BtfTypes

if TYPE_CHECKING:
    from usdt.engine.compiler.ir import Node
    from usdt.engine.language.tree import Member

__all__ = ("KernelTypes",)


class KernelTypes(BtfTypes):
    """The types of the kernel, or of a module, for probes there."""

    def member(self, tree: Member, target: Node) -> Node | None:
        """Resolve a member, also of a structure that a module's BTF only declares."""
        return super().member(tree, self._completed(target))

    def _completed(self, target: Node) -> Node:
        if not isinstance(target, PointerExpr) or target.type_id is None:
            return target
        found = self.btf.resolve(target.type_id)
        if not isinstance(found, btf_types.Forward):
            return target
        kind = Kind.UNION if found.union else Kind.STRUCT
        whole = self.btf.find(found.name, kind)
        if not whole:
            return target
        size = ValueType(ValueClass.BYTES, self.btf.size_of(whole[0]))
        return replace(target, target=size, type_id=whole[0])

    def variable_hint(self, name: str) -> str:
        """Return the end of a message about an unknown name: a variable that was meant."""
        from kprobe.functions.variables import running_variables  # noqa: PLC0415 - only for a message

        return running_variables().hint(name)
