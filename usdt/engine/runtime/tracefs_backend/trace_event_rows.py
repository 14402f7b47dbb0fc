"""Plans on a trace event that exists, and conversion of its records to rows.

A record is what a BPF program on the event has as its context, so the locations of arguments are
the same. What a record only points to, in the kernel or in the process, cannot be read later.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from usdt.arch.locations import ContextArea, Register
from usdt.base.frozen import frozen
from usdt.engine.compiler.ir import (
    U32,
    U64,
    ArgumentValue,
    Builtin,
    Deref,
    Node,
    Number,
    StringEquals,
    Unavailable,
    children,
    wrap,
)
from usdt.engine.compiler.record.columns import ArrayColumn, BufferColumn, StringColumn
from usdt.engine.runtime.tracefs_backend.evaluate import Rejected, evaluate, rejected
from usdt.engine.runtime.tracefs_backend.event_filter import kernel_filter
from usdt.engine.runtime.tracefs_backend.event_planner import HEADS, PlanWalk, collect
from usdt.engine.runtime.tracefs_backend.fetch_args import UnsupportedFetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.arch.locations import ValueType
    from usdt.engine.compiler.outputs import Output
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.runtime.tracefs_backend.event_plan import EventContext
    from usdt.tracefs.format import EventFormat, FormatField

__all__ = ("TraceEventRows", "trace_event_rows")

_EFAULT = -14
_COMM = "COMM"  # the filter's name of the thread's name; an event may have a field "comm"
_OUTSIDE = "memory, which the event's record only points to"
_NOT_READABLE = Unavailable("memory not readable")


def trace_event_rows(plan: ProbePlan, form: EventFormat) -> TraceEventRows:
    """Return the converter of the records of an event for a plan.

    Raises:
        TracingError: a predicate needs a value that a record does not have.
    """
    walk = _RecordWalk(form)
    layout, problems = collect(walk, plan)
    condition = kernel_filter(plan.predicates, walk.field_name).text
    return TraceEventRows(plan, layout, problems, condition)


class _RecordWalk(PlanWalk):
    # Checks that the values of a plan are in the records of an event.
    def __init__(self, form: EventFormat) -> None:
        self._at = {field.offset: field for field in form.own}

    def leaf(self, leaf: Node) -> None:
        match leaf:
            case ArgumentValue(fetch=Register() | ContextArea()):
                pass
            case Deref(address=address) if _in_record(address):
                pass
            case Builtin(name=name) if name in HEADS:
                pass
            case Builtin(name=name):
                raise UnsupportedFetch(f"{name}, which an event does not record")
            case StringEquals(left=left, right=right):
                self.compared(left)
                self.compared(right)
            case _:
                raise UnsupportedFetch(_OUTSIDE)

    def compared(self, address: Node) -> None:
        if not _is_area(address):
            raise UnsupportedFetch(_OUTSIDE)

    def text(self, output: Output) -> None:
        self.compared(output.node)

    def buffer(self, output: Output) -> None:
        self.compared(output.node)
        if output.length is not None:
            self.expression(output.length)

    def array(self, output: Output) -> None:
        self.buffer(output)

    def aggregate(self, output: Output, size: int) -> None:  # noqa: ARG002 - no record has one
        raise UnsupportedFetch(f"a structure of {size} bytes")

    def field_name(self, node: Node | None, *, text: bool) -> str | None:
        """Return the field for a filter, as :meth:`EventPlanner.field_name`."""
        if node is None:
            return _COMM
        location = node.fetch if isinstance(node, ArgumentValue) else None
        if not isinstance(location, ContextArea if text else Register):
            return None
        field = self._at.get(location.offset)
        return field.name if field is not None and _filterable(field, location) else None


def _filterable(field: FormatField, location: Register | ContextArea) -> bool:
    # A filter compares a field by the size and sign that the kernel knows.
    if isinstance(location, ContextArea):
        return field.kind == "string"
    return field.kind == "integer" and field.element == field.size == location.size


def _is_area(node: Node) -> bool:
    return isinstance(node, ArgumentValue) and isinstance(node.fetch, ContextArea)


def _in_record(address: Node) -> bool:
    return _is_area(address) or any(map(_in_record, children(address)))


@frozen
class TraceEventRows:
    """A converter of the records of an event to rows, which formatters take.

    Attributes:
        plan: the plan.
        layout: the layout of rows; items that a record does not have are unreadable.
        problems: (item, reason why a record does not have it).
        filter: filter in the kernel's language; it passes at least the hits for which the
            predicates are true.
    """

    plan: ProbePlan
    layout: RecordLayout
    problems: tuple[tuple[str, str], ...]
    filter: str

    def row(
        self, record: bytes, context: bytes, head: EventContext, comm: bytes
    ) -> tuple[Any, ...] | Rejected:
        """Return the row of a record, or why it is not shown.

        Args:
            record: the bytes of the record.
            context: bytes 8 to 40 of a BPF program's record.
            head: time, process, thread and CPU of the hit.
            comm: the thread's name.
        """
        values = _Values(record, head, comm)
        why = values.rejected(self.plan.predicates)
        if why is not None:
            return why
        marks = 0
        parts: list[Any] = []
        for index, output in enumerate(self.plan.outputs):
            if self.layout.fields[index].offset is None:
                continue
            match output.column:
                case StringColumn():
                    parts += values.string(output)
                case ArrayColumn() | BufferColumn():
                    parts += values.array(output)
                case _:
                    found = values.of(output.node)
                    marks |= 0 if isinstance(found, Number) else 1 << index
                    parts.append(found.value if isinstance(found, Number) else 0)
        bitmap = [marks] if self.layout.bitmap_offset is not None else []
        return (head.time, context, *bitmap, *parts)


class _Values:
    # The values of expressions at one record.
    def __init__(self, record: bytes, head: EventContext, comm: bytes) -> None:
        self._record = record
        self._comm = comm
        self._heads = {"pid": head.pid, "tid": head.tid, "cpu": head.cpu, "ts": head.time}

    def of(self, node: Node) -> Node:
        """Return the value of an expression: a Number, or Unavailable."""
        return evaluate(node, self._leaf, self._text)

    def rejected(self, predicates: Sequence[Node]) -> Rejected | None:
        """Return why the record is not shown; None if all predicates are true."""
        return rejected(predicates, self._leaf, self._text)

    def string(self, output: Output) -> tuple[int, bytes]:
        """Return (length prefix, bytes) of a string, as a program stores it."""
        found = self._text(output.node)
        if found is None:
            return _EFAULT, b""
        if len(found) >= output.size:
            return output.size, found[: output.size - 1]
        return len(found) + 1, found

    def array(self, output: Output) -> tuple[int, bytes]:
        """Return (length prefix, bytes) of an array or a buffer, as a program stores it."""
        start, length = self.of(output.node), self.of(output.length or Number(0, U64))
        if not isinstance(start, Number) or not isinstance(length, Number):
            return (0, b"") if isinstance(output.column, ArrayColumn) else (_EFAULT, b"")
        found = self._record[start.value :][: max(0, min(length.value, output.size))]
        return len(found), found

    def _leaf(self, node: Node) -> Node:
        match node:
            case Builtin(name=name, type=kind):
                return Number(wrap(self._heads[name], kind), kind)
            case ArgumentValue(fetch=Register(offset=offset, size=size), type=kind):
                return self._loaded(offset, size, kind)
            case ArgumentValue(fetch=ContextArea() as area):
                found = self._area(area)
                return _NOT_READABLE if found is None else Number(found[0], U64)
            case Deref(address=address, type=kind):
                at = self.of(address)
                return self._loaded(at.value, kind.size, kind) if isinstance(at, Number) else at
        return Unavailable(_OUTSIDE)

    def _loaded(self, offset: int, size: int, kind: ValueType) -> Node:
        data = self._record[offset : offset + size] if offset >= 0 else b""
        if len(data) != size:
            return _NOT_READABLE
        return Number(wrap(int.from_bytes(data, sys.byteorder), kind), kind)

    def _area(self, area: ContextArea) -> tuple[int, int] | None:
        # (offset, bytes) of data in the record; None if there are none.
        if area.location == "here":
            return area.offset, area.size
        word = self._loaded(area.offset, 4, U32)
        if not isinstance(word, Number) or not word.value >> 16:
            return None
        start = word.value & 0xFFFF
        return start + (area.offset + 4) * (area.location == "rel_loc"), word.value >> 16

    def _text(self, address: Node | None) -> bytes | None:
        # The bytes before the NUL; None if the kernel could not read the string.
        if address is None:
            return self._comm
        area = address.fetch if isinstance(address, ArgumentValue) else None
        found = self._area(area) if isinstance(area, ContextArea) else None
        if found is None:
            return None
        return self._record[found[0] :][: found[1]].partition(b"\0")[0]
