"""Functions of maps."""

from __future__ import annotations

from usdt.engine.programs.check.functions.arguments import FunctionChecker
from usdt.engine.programs.events import EventKind
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import (
    Delete,
    Emit,
    HasKey,
    MapLength,
    Scalar,
    Statement,
)
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
)

__all__ = ("MapFunctions",)


class MapFunctions(FunctionChecker):
    """A checker of the functions of maps."""

    def _call_has_key(self, node: tree.Call) -> Scalar:
        whole, key = self.arguments(node, 2, 2)
        if not isinstance(whole, tree.Map):
            raise self.error(whole, "has_key() takes a map and a key")
        found = self.state.map(whole.name, whole.start)
        return self.step(HasKey(found.variable, self.key(found, key)), BOOLEAN)

    def _call_len(self, node: tree.Call) -> Scalar:
        (first,) = self.arguments(node, 1, 1)
        if not isinstance(first, tree.Map):
            raise self.error(first, "len() takes a map")
        found = self.state.map(first.name, first.start)
        return self.step(MapLength(found.variable), INT64)

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

    def _do_delete(self, node: tree.Call) -> tuple[Statement, ...]:
        given = self.arguments(node, 1, 64)
        if len(given) == 2 and isinstance(given[0], tree.Map):
            whole = given[0]
            found = self.state.map(whole.name, whole.start)
            return (Delete(found.variable, self.key(found, given[1])),)
        made: list[Statement] = []
        for one in given:
            if not isinstance(one, tree.Map | tree.MapAccess):
                raise self.error(one, "delete() takes a map and a key")
            state, key = self.place(one)
            made.append(Delete(state.variable, key))
        return tuple(made)
