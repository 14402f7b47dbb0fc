"""The formatter of rows: each record becomes a tuple of Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.locations import Unreadable
from usdt.engine.compiler.record.columns import StringColumn
from usdt.engine.compiler.record.length_prefix import USERS, reason_of
from usdt.engine.output import cgroup_names
from usdt.engine.output.formatters.formatter import FieldSource, constant, numbers
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.parquet.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.cgroups.labels import CgroupName
    from usdt.engine.compiler.record.columns import ArrayColumn, BufferColumn
    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.output.parquet.kinds import Kind
    from usdt.engine.output.stacks import StackResolver

__all__ = ("Context", "Row", "RowFormatter", "RowPlan")

#: Process, thread, CPU, name of the thread, probe; "return" at a function's return.
Context = tuple[int, int, int, str, str, str | None]


class RowPlan:
    """What rows of one layout have in common.

    Attributes:
        size: bytes of a record.
        fields: the column of each value, and its kind.
        end_probe: of a span, the probe that ended it.
    """

    def __init__(
        self, size: int, fields: list[tuple[str, Kind | None]], end_probe: str | None
    ) -> None:
        self.size = size
        self.fields = fields
        self.end_probe = end_probe


#: One record: its plan, its time, its context, the members of its JSON object that say what its
#: values are (names, and where memory was read), and its values. A plain tuple is made fastest.
Row = tuple[RowPlan, int, Context, str, tuple[Any, ...]]


class RowFormatter(JsonFormatter):
    """A formatter that makes a :data:`Row` of each record.

    Stacks, symbols, structures and socket addresses are JSON text; strings are bytes.

    Args:
        stacks: resolves stacks and addresses.

    Attributes:
        columns: the columns of all layouts that were announced.
    """

    def __init__(self, stacks: StackResolver | None = None) -> None:
        super().__init__(stacks)
        self.columns = Columns()
        self._layout: RecordLayout
        self.names |= {
            "string": _string,
            "buffer": _buffer,
            "elements": _elements,
        }

    def begin(self, layout: RecordLayout) -> None:
        super().begin(layout)
        self._layout = layout

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> Any:
        return comm, (pid, tid, cpu, comm, probe, None), pid

    def as_return(self, context: Any) -> Any:
        comm, about, pid = context
        return comm, (*about[:-1], "return"), pid

    def record(self, values: Sequence[FieldSource]) -> str:
        fields = self.columns.add_layout(self._layout)
        span = self._layout.span
        plan = RowPlan(self._layout.size, fields, None if span is None else span.end_probe or None)
        name = constant(self.names, plan)
        notes = self.notes()
        text = f"f'''{notes}'''" if notes else "''"
        args = "".join(f"{value.source}, " for value in values)
        return f"({name}, time, contexts[key][1], {text}, ({args}))"

    def hexadecimal(self, value: str) -> str:
        return f"hex({value})"

    def floating(self, value: str) -> str:
        return value

    def raw_bytes(self, value: str) -> str:
        return value

    def text(self, value: str, length: str, key: str, column: StringColumn | BufferColumn) -> str:
        super().text(value, length, key, column)  # notes whether it was cut
        return f"{'string' if isinstance(column, StringColumn) else 'buffer'}({value}, {length})"

    def boolean(self, value: str) -> str:
        return f"({value} != 0)"

    def array(self, value: str, length: str, key: str, column: ArrayColumn, order: str) -> str:
        super().array(value, length, key, column, order)
        return f"elements({value}, {length}, {order + column.element_code!r})"

    def comm(self) -> str:
        return "contexts[key][0]"

    def constant(self, text: str) -> str:
        return constant(self.names, text)

    def unreadable(self, reason: str) -> str:
        return constant(self.names, Unreadable(reason))

    def cgroup(self, kind: CgroupName, value: str) -> str:
        show, which = constant(self.names, cgroup_names.value), constant(self.names, kind)
        return f"{show}(stacks.cgroups(), {which}, {value})"


def _string(value: bytes, length: int) -> bytes | Unreadable:
    if length < 0:
        return Unreadable(reason_of(length))
    return value[: (length & (USERS - 1)) - 1]


def _buffer(value: bytes, length: int) -> bytes | Unreadable:
    return Unreadable(reason_of(length)) if length < 0 else value[: length & (USERS - 1)]


def _elements(value: bytes, length: int, code: str) -> list[int] | Unreadable:
    return Unreadable(reason_of(length)) if length < 0 else numbers(value, length, code)
