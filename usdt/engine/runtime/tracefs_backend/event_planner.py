"""The walk over a plan that collects the values that an event records.

:class:`EventPlanner` collects them as the fields of an event that is to be defined; its subclasses
name the fields, and decide what else a field may be made of. Events that exist have a subclass of
:class:`PlanWalk` of their own (:mod:`.trace_event_rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.base.errors import TracingError
from usdt.base.frozen import replace
from usdt.engine.compiler.ir import Number, StringEqualsConst, StringMatches, Unavailable
from usdt.engine.compiler.record.columns import (
    ArrayColumn,
    BufferColumn,
    BytesColumn,
    CgroupColumn,
    CommColumn,
    ConstColumn,
    FloatColumn,
    IntColumn,
    IntFormat,
    SocketAddressColumn,
    StackColumn,
    StackCopyColumn,
    StringColumn,
    StructColumn,
    StructListColumn,
    SymbolColumn,
    UnavailableColumn,
)
from usdt.engine.compiler.record.layout import RecordField
from usdt.engine.runtime.tracefs_backend.evaluate import leaves
from usdt.engine.runtime.tracefs_backend.fetch_args import UnsupportedFetch

if TYPE_CHECKING:
    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.outputs import Output
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.runtime.tracefs_backend.fetch_args import FetchArg, FetchArgBuilder

__all__ = ("COMM", "HEADS", "EventPlanner", "PlanWalk", "collect")

HEADS = ("pid", "tid", "cpu", "ts")  # built-ins that are in the head of every record
COMM = "comm"  # the field with the thread's name; filters know it by this name, too


class PlanWalk:
    """Visits the values that a plan needs. Its methods raise UnsupportedFetch if there is none."""

    def leaf(self, leaf: Node) -> None:
        """Visit a leaf that is not a comparison of a string with a constant."""
        raise NotImplementedError

    def compared(self, address: Node) -> None:
        """Visit the string at an address that is compared with a constant."""
        raise NotImplementedError

    def number(self, output: Output) -> None:
        """Visit an item that is an integer or float."""
        self.expression(output.node)

    def comm(self) -> None:
        """Visit the thread's name, which an item shows."""

    def text(self, output: Output) -> None:
        """Visit an item that is a string."""
        raise NotImplementedError

    def buffer(self, output: Output) -> None:
        """Visit an item that is a buffer."""
        raise NotImplementedError

    def aggregate(self, output: Output, size: int) -> None:
        """Visit an item that is the ``size`` bytes of a structure."""
        raise NotImplementedError

    def array(self, output: Output) -> None:
        """Visit an item that is an array."""
        raise NotImplementedError

    def expression(self, node: Node) -> None:
        """Visit the values from which an expression is computed."""
        if isinstance(node, Unavailable):
            raise UnsupportedFetch(node.reason)
        for leaf in leaves(node):
            if not isinstance(leaf, StringEqualsConst | StringMatches):
                self.leaf(leaf)
            elif leaf.length is not None if isinstance(leaf, StringMatches) else leaf.counted:
                raise UnsupportedFetch("a comparison of bytes that a NUL does not end")
            elif leaf.address is not None:
                self.compared(leaf.address)

    def output(self, output: Output) -> None:
        """Visit the values of an item."""
        column = output.column
        match column:
            case CommColumn():
                self.comm()
            case ConstColumn():
                pass
            case UnavailableColumn():
                raise UnsupportedFetch(column.reason)
            case StringColumn():
                self.text(output)
            case BufferColumn():
                self.buffer(output)
            case BytesColumn():
                self.aggregate(output, column.length)
            case IntColumn(format=IntFormat.BOOL):
                raise UnsupportedFetch("bool, which an event does not record")
            case IntColumn() | SymbolColumn() | FloatColumn():
                self.number(output)
            case CgroupColumn():
                raise UnsupportedFetch(f"{column.kind.value}, which an event does not record")
            case ArrayColumn():
                self.array(output)
            case SocketAddressColumn():
                raise UnsupportedFetch("a socket address, which an event does not record")
            case StructColumn() | StructListColumn():
                raise UnsupportedFetch("typed, which an event does not record")
            case StackColumn():
                raise UnsupportedFetch(f"{column.kind}, which an event does not record")
            case StackCopyColumn():
                raise UnsupportedFetch("ustack, which an event does not record")
            case _:
                assert_never(column)


def collect(walk: PlanWalk, plan: ProbePlan) -> tuple[RecordLayout, tuple[tuple[str, str], ...]]:
    """Visit the values of a plan.

    Returns:
        (the plan's layout, in which items that no event has are unreadable; (item, reason) of
        these).

    Raises:
        TracingError: a predicate needs a value that no event has.
    """
    for predicate in plan.predicates:
        try:
            walk.expression(predicate)
        except UnsupportedFetch as err:
            raise TracingError(f"a predicate cannot be decided through tracefs: {err}") from err
    shown = list(plan.layout.fields)
    problems = []
    for index, output in enumerate(plan.outputs):
        try:
            walk.output(output)
        except UnsupportedFetch as err:
            problems.append((output.key, str(err)))
            shown[index] = RecordField(output.key, UnavailableColumn(str(err)))
    return replace(plan.layout, fields=tuple(shown)), tuple(problems)


class EventPlanner(PlanWalk):
    """Collects the fields of the event of one site.

    Its methods raise UnsupportedFetch for what no event can fetch.

    Attributes:
        fetching: makes the fetch arguments.
        fields: field name → fetch argument.
        numbers: leaf of an expression → name of its field.
        texts: address of a string → name of the string's field.
        parts: (node, type of its column) → names of the fields with the bytes of a buffer or
            structure.
    """

    def __init__(self, fetching: FetchArgBuilder) -> None:
        self.fetching = fetching
        self.fields: dict[str, FetchArg] = {}
        self.numbers: dict[Node, str] = {}
        self.texts: dict[Node, str] = {}
        self.parts: dict[tuple[Node, type], tuple[str, ...]] = {}

    def keep(self, key: str, field: FetchArg) -> str:
        """Add a field, which belongs to the item ``key``, and return its name."""
        raise NotImplementedError

    def compared(self, address: Node) -> None:
        """Add the field of a string that is compared, unless there is one."""
        if address not in self.texts:
            self.string("text", address)

    def string(self, key: str, address: Node) -> None:
        """Add the field of the string at an address."""
        self.texts[address] = self.keep(key, self.fetching.string(address))

    def text(self, output: Output) -> None:
        """Add the field of an item that is a string."""
        self.string(output.key, output.node)

    def buffer(self, output: Output) -> None:
        """Add the fields of an item that is a buffer of constant length."""
        if not isinstance(output.length, Number):
            raise UnsupportedFetch("a length that is not constant")
        size = min(output.length.value, output.size)
        self._keep_parts(output, self.fetching.buffer(output.node, size))

    def aggregate(self, output: Output, size: int) -> None:
        """Add the fields of an item that is the bytes of a structure."""
        self._keep_parts(output, self.fetching.array(output.node, size))

    def array(self, output: Output) -> None:  # noqa: ARG002 - no array can be fetched
        """Refuse an item that is an array."""
        raise UnsupportedFetch("array, which an event does not record")

    def _keep_parts(self, output: Output, fields: list[FetchArg]) -> None:
        names = tuple(self.keep(output.key, field) for field in fields)
        self.parts[output.node, type(output.column)] = names

    def field_name(self, node: Node | None, *, text: bool) -> str | None:
        """Return the field for a filter: of a value, or of the string at an address.

        None if there is none, or if it has a signed value without its sign, as the bits of a part
        of a register: a filter would compare it as what it is not.
        """
        if node is None:
            return COMM
        name = (self.texts if text else self.numbers).get(node)
        if name is None or text:
            return name
        return None if node.type.signed and self.fields[name].code.isupper() else name
