"""Reports of helpers of the kernel that fail: memory that cannot be read, keys that are not there.

With ``-k`` the program asks whether a value is there before it takes it, and sends an event if it
is not. Without, such a value is 0, and nothing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ContextArea
from usdt.base.frozen import replace
from usdt.engine.compiler import ir
from usdt.engine.compiler.ir import ArgumentValue, Deref
from usdt.engine.programs.check.calls import CallChecker
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    Emit,
    HasKey,
    If,
    JoinBytes,
    JoinSteps,
    Read,
    ReadStatus,
    ReadText,
    Scalar,
    SetVariable,
)
from usdt.engine.programs.types import BOOLEAN, INT64, UINT64, PointerType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.compiler.ir import Node
    from usdt.engine.programs.check.state import MapState
    from usdt.engine.programs.typed import Statement, Value
    from usdt.engine.programs.variables import Variable

__all__ = ("HelperErrorChecker",)

_READING = (tree.Call, tree.Identifier, tree.Index, tree.Member, tree.Unary)
_ABSENT = -2  # ENOENT


class HelperErrorChecker(CallChecker):
    """A checker of values that can be missing."""

    def value(self, node: tree.Expression) -> Value:
        """Return the value of an expression; what reads memory reports if it cannot."""
        found = super().value(node)
        if not self.state.helper_errors or not isinstance(node, _READING):
            return found
        if isinstance(found, Read | ReadText):
            if _in_context(found.address.node):
                return found
            kernel = isinstance(found.address.type, PointerType) and found.address.type.kernel
            helper = "probe_read_str" if isinstance(found, ReadText) else "probe_read"
            variable = self.new_variable(found.address.type)
            address = self._number_of(variable)
            check = self._check_read(node, address, helper, kernel=kernel)
            made = (SetVariable(variable, found.address), *check)
            return JoinBytes(made, replace(found, address=address), found.type)
        return self._number_read(node, found) if isinstance(found, Scalar) else found

    def _number_read(self, node: tree.Expression, found: Scalar) -> Scalar:
        known = [one.address.node for _, one in found.before if isinstance(one, ReadStatus)]
        before = found.before
        for one in _reads(found.node):
            if one.address not in known and not _in_context(one.address):
                address = Scalar(one.address, UINT64)
                check = self._check_read(node, address, "probe_read", kernel=one.kernel)
                before += self.step(JoinSteps(check, constant(0)), INT64).before
        if before == found.before:
            return found
        variable = self.new_variable(found.type)
        return replace(
            self._number_of(variable), before=((variable, replace(found, before=before)),)
        )

    def _number_of(self, variable: Variable) -> Scalar:
        value = self.value_of_variable(variable)
        if not isinstance(value, Scalar):
            raise TypeError(value)
        return value

    def _check_read(
        self, node: tree.Expression, address: Scalar, helper: str, *, kernel: bool
    ) -> tuple[Statement, ...]:
        status = self.step(ReadStatus(address, kernel), INT64)
        event = self.state.event(EventKind.HELPER_ERROR, (INT64,), helper, start=node.start)
        variable = self.new_variable(INT64)
        kept = self._number_of(variable)
        return (SetVariable(variable, status), If(kept, (Emit(event, (kept,)),)))

    def read_map(self, node: tree.Expression, found: MapState, key: Value) -> Value:
        """Return the value of a map for a key; a key that is not there is reported."""
        if not self.state.helper_errors:
            return super().read_map(node, found, key)
        variable = self.new_variable(key.type)
        kept = self.value_of_variable(variable)
        value = super().read_map(node, found, kept)
        there = self.step(HasKey(found.variable, kept), BOOLEAN)
        event = self.state.event(
            EventKind.HELPER_ERROR, (INT64,), "map_lookup_elem", start=node.start
        )
        made = (SetVariable(variable, key), If(there, (), (Emit(event, (constant(0),)),)))
        if isinstance(value, Scalar):
            return self.step(JoinSteps(made, value), value.type)
        return JoinBytes(made, value, value.type)

    def _call_delete(self, node: tree.Call) -> Scalar:
        made = super()._call_delete(node)
        if not self.state.helper_errors:
            return made
        variable = self.new_variable(BOOLEAN)
        kept = self._number_of(variable)
        report = If(kept, (), self._absent(node))
        return self.step(JoinSteps((SetVariable(variable, made), report), kept), BOOLEAN)

    def _do_delete(self, node: tree.Call) -> tuple[Statement, ...]:
        if not self.state.helper_errors:
            return super()._do_delete(node)
        report = self._absent(node)
        return tuple(If(self.step(one, BOOLEAN), (), report) for one in self._deletions(node))

    def _absent(self, node: tree.Call) -> tuple[Statement, ...]:
        event = self.state.event(
            EventKind.HELPER_ERROR, (INT64,), "map_delete_elem", start=node.start
        )
        return (Emit(event, (constant(_ABSENT),)),)


def _reads(node: Node) -> list[Deref]:
    # The memory that an expression reads, what others depend on first.
    return [one for one in _nodes(node) if isinstance(one, Deref)][::-1]


def _in_context(node: Node) -> bool:
    # Whether an address is in the record of a tracepoint: that can be read, and is no number.
    areas = (one for one in _nodes(node) if isinstance(one, ArgumentValue))
    return any(isinstance(one.fetch, ContextArea) for one in areas)


def _nodes(node: Node) -> Iterator[object]:
    ahead: list[object] = [node]
    while ahead:
        one = ahead.pop()
        yield one
        if type(one).__module__ == ir.__name__:
            ahead += [getattr(one, name) for name in getattr(one, "__match_args__", ())]
