"""The formatter of events of the Python API."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from usdt.arch.locations import Unreadable
from usdt.engine.compiler.record.columns import IntFormat
from usdt.engine.compiler.record.length_prefix import NULL, reason_of
from usdt.engine.output import cgroup_names
from usdt.engine.output.formatters.event_records import Event, Span
from usdt.engine.output.formatters.formatter import (
    FieldSource,
    constant,
    decode_text,
    is_cut,
    numbers,
    text_capacity,
)
from usdt.engine.output.socket_addresses import socket_address
from usdt.engine.output.stacks import StackResolver
from usdt.engine.output.truncated import TruncatedHex, TruncatedInt, TruncatedList, TruncatedStr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.cgroups.labels import CgroupName
    from usdt.engine.compiler.record.columns import (
        AnyStack,
        ArrayColumn,
        BufferColumn,
        IntColumn,
        StringColumn,
        StructColumn,
        StructListColumn,
        SymbolKind,
    )
    from usdt.engine.compiler.record.layout import RecordLayout, SpanLayout
    from usdt.engine.compiler.value_names import ValueNames

__all__ = ("EventFormatter",)


class EventFormatter:
    """A formatter that makes :class:`Event` objects for Python callers.

    Args:
        stacks: resolves stacks and addresses; by default user addresses have no symbols.
    """

    def __init__(self, stacks: StackResolver | None = None) -> None:
        self.stacks = stacks or StackResolver()
        self._span: SpanLayout | None = None
        self.names: dict[str, Any] = {
            "Event": Event,
            "Span": Span,
            "TruncatedHex": TruncatedHex,
            "TruncatedInt": TruncatedInt,
            "stacks": self.stacks,
            "text": _event_text,
            "array": _event_array,
            "socket_address": _event_socket_address,
        }
        self.return_names: dict[str, Any] = {"Event": functools.partial(Event, event="return")}

    def begin(self, layout: RecordLayout) -> None:
        self.stacks.expect(layout)
        self._span = layout.span

    def half(self) -> None:
        pass

    def context(
        self, pid: int, tid: int, cpu: int, comm: str, probe: str
    ) -> tuple[int, int, int, str, str]:
        return pid, tid, cpu, comm, probe

    def as_return(self, context: Any) -> Any:
        return context

    def record(self, values: Sequence[FieldSource]) -> str:
        if self._span is None:
            return f"Event(time, *contexts[key], {_dict(values)})"
        starts, ends = map(_dict, self._span.halves(values))
        end = repr(self._span.end_probe)
        return f"Span(time, {values[0].source}, *contexts[key], {end}, {starts}, {ends})"

    def integer(self, value: str) -> str:
        return value

    def hexadecimal(self, value: str) -> str:
        return f"hex({value})"

    def low_part(self, key: str, value: str, column: IntColumn) -> str:
        del key
        made = "TruncatedHex" if column.format is IntFormat.HEX else "TruncatedInt"
        return f"{made}({value})"

    def floating(self, value: str) -> str:
        return value

    def raw_bytes(self, value: str) -> str:
        return value

    def text(self, value: str, length: str, key: str, column: StringColumn | BufferColumn) -> str:
        del key
        return f"text({value}, {length}, {text_capacity(column)})"

    def socket_address(self, value: str, length: str, order: str) -> str:
        return f"socket_address({value}, {length}, {order!r})"

    def struct(
        self, value: str, length: str, key: str, column: StructColumn | StructListColumn, order: str
    ) -> str:
        from usdt.engine.output.formatters.structures import StructValueFormatter  # noqa: PLC0415 - rarely needed

        return (
            f"{constant(self.names, StructValueFormatter(key, column, order))}({length}, {value})"
        )

    def boolean(self, value: str) -> str:
        return f"({value} != 0)"

    def array(self, value: str, length: str, key: str, column: ArrayColumn, order: str) -> str:
        del key
        return f"array({value}, {length}, {order + column.element_code!r})"

    def named(self, key: str, value: str, names: ValueNames) -> str:
        del key
        return f"{constant(self.names, names.number)}({value})"

    def comm(self) -> str:
        return "contexts[key][3]"

    def constant(self, text: str) -> str:
        return constant(self.names, text)

    def unreadable(self, reason: str) -> str:
        return constant(self.names, Unreadable(reason))

    def stack(self, column: AnyStack, value: str, length: str) -> str:
        return f"stacks.value({constant(self.names, column)}, contexts[key][0], {value}, {length})"

    def symbol(self, kind: SymbolKind, value: str) -> str:
        return f"stacks.frame({constant(self.names, kind)}, contexts[key][0], {value})"

    def cgroup(self, kind: CgroupName, value: str) -> str:
        show, which = constant(self.names, cgroup_names.value), constant(self.names, kind)
        return f"{show}(stacks.cgroups(), {which}, {value})"


def _dict(values: Sequence[FieldSource]) -> str:
    return f"{{{', '.join(f'{one.field.key!r}: {one.source}' for one in values)}}}"


def _event_text(value: bytes, length: int, capacity: int) -> str | Unreadable:
    if length < 0:
        return Unreadable(reason_of(length))
    found = decode_text(value, length, capacity)
    return TruncatedStr(found) if is_cut(length, len(value), capacity) else found


def _event_socket_address(
    value: bytes, length: int, order: str
) -> dict[str, Any] | Unreadable | None:
    if length == NULL:
        return None
    return Unreadable(reason_of(length)) if length < 0 else socket_address(value[:length], order)


def _event_array(value: bytes, length: int, code: str) -> list[int] | Unreadable:
    if length < 0:
        return Unreadable(reason_of(length))
    found = numbers(value, length, code)
    return TruncatedList(found) if length > len(value) else found
