"""Functions of maps."""

from __future__ import annotations

from usdt.base.frozen import replace
from usdt.engine.programs.check.functions.arguments import FunctionChecker
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    Delete,
    Emit,
    HasKey,
    If,
    JoinSteps,
    MapLength,
    Scalar,
    SetVariable,
    StackOf,
    Statement,
    TextLength,
    Value,
    saved,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    spelled,
)

__all__ = ("MapFunctions",)


class MapFunctions(FunctionChecker):
    """A checker of the functions of maps."""

    def _call_has_key(self, node: tree.Call) -> Scalar:
        whole, key = self.arguments(node, 2, 2)
        if not isinstance(whole, tree.Map):
            raise self.error(whole, "has_key() takes a map and a key")
        found = self.entries_of(whole)
        return self.step(HasKey(found.variable, self.key(found, key)), BOOLEAN)

    def _call___has_key(self, node: tree.Call) -> Scalar:
        # bpftrace's own function, which takes the addresses of both.
        given = [_under_address(one) for one in node.arguments]
        if len(given) != 2 or not isinstance(given[0], tree.Map):
            raise self.error(node, "__has_key() takes the addresses of a map and of a variable")
        return self._call_has_key(replace(node, function="has_key", arguments=tuple(given)))

    def _call_find(self, node: tree.Call) -> Scalar:
        whole, key, result = self.arguments(node, 3, 3)
        if not isinstance(whole, tree.Map) or not isinstance(result, tree.Variable):
            raise self.error(node, "find() takes a map, a key and a variable for the value")
        if self.lookup(result.name) is None:
            raise self.error(result, f"{result.name} is not there yet: let {result.name};")
        state = self.state.map(whole.name, whole.start)
        given = self.key(state, key)
        kept, has = self.new_variable(given.type), self.new_variable(BOOLEAN)
        once = self.value_of_variable(kept)
        there = Scalar(self.signed(saved(has), BOOLEAN), BOOLEAN)
        stored = If(there, (self.assigned(result, self.read_map(node, state, once)),))
        steps = (
            (self.new_variable(), JoinSteps((SetVariable(kept, given),), constant(0))),
            (has, HasKey(state.variable, once)),
            (self.new_variable(), JoinSteps((stored,), constant(0))),
        )
        return replace(there, before=steps)

    def assigned(self, target: tree.Variable, value: Value) -> Statement:
        """Return the statement that gives a variable a value."""
        raise NotImplementedError

    def _call_len(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        if not isinstance(first, tree.Map):
            return self._frames(first)
        found = self.entries_of(first)
        return self.step(MapLength(found.variable), INT64)

    def _frames(self, node: tree.Expression) -> Scalar:
        value = self.value(node)
        if not isinstance(value, StackOf):
            reason = f"len() takes a map, kstack or ustack, not {spelled(value.type)}"
            raise self.error(node, reason)
        if value.type.walked:
            raise self.error(node, "len() of dw_ustack() is not known at the hit: take ustack()")
        return self.step(TextLength(value), INT64)

    def _of_map(self, node: tree.Call, kind: EventKind) -> tuple[Statement, ...]:
        (first,) = self.arguments(node, 1, 1)
        if not isinstance(first, tree.Map):
            raise self.error(first, f"{node.function}() takes a map")
        found = self.state.map(first.name, first.start)
        return (Emit(self.state.event(kind, (), "", found.variable)),)

    def _do_clear(self, node: tree.Call) -> tuple[Statement, ...]:
        return self._of_map(node, EventKind.CLEAR)

    def _do_zero(self, node: tree.Call) -> tuple[Statement, ...]:
        return self._of_map(node, EventKind.ZERO)

    def _call_delete(self, node: tree.Call) -> Scalar:
        made = self._deletions(node)
        if len(made) != 1:
            raise self.error(node, "delete() of several keys has no value")
        return self.step(made[0], BOOLEAN)

    def _do_delete(self, node: tree.Call) -> tuple[Statement, ...]:
        return self._deletions(node)

    def _deletions(self, node: tree.Call) -> tuple[Delete, ...]:
        given = self.arguments(node, 1, 64)
        if len(given) == 2 and isinstance(given[0], tree.Map):
            whole = given[0]
            found = self.entries_of(whole)
            return (Delete(found.variable, self.key(found, given[1])),)
        made: list[Delete] = []
        for one in given:
            if not isinstance(one, tree.Map | tree.MapAccess):
                raise self.error(one, "delete() takes a map and a key")
            state, key = self.place(one)
            self.entries_of(one)
            made.append(Delete(state.variable, key))
        return tuple(made)


def _under_address(node: tree.Expression | tree.Type) -> tree.Expression | tree.Type:
    # What (void *)&x is the address of.
    while isinstance(node, tree.Cast):
        node = node.operand
    return node.operand if isinstance(node, tree.Unary) and node.op == "&" else node
