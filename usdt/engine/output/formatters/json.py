"""The formatter of JSON lines."""

from __future__ import annotations

import json
import math
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any

from usdt.engine.compiler.record.columns import StringColumn
from usdt.engine.compiler.record.length_prefix import NULL, USERS, reason_of
from usdt.engine.output import cgroup_names
from usdt.engine.output.formatters.formatter import (
    FieldSource,
    constant,
    decode_text,
    is_cut,
    numbers,
    piece,
    text_capacity,
)
from usdt.engine.output.socket_addresses import socket_address
from usdt.engine.output.stacks import StackResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.cgroups.labels import CgroupName
    from usdt.engine.compiler.record.columns import (
        AnyStack,
        ArrayColumn,
        BufferColumn,
        IntColumn,
        StructColumn,
        StructListColumn,
        SymbolKind,
    )
    from usdt.engine.compiler.record.layout import RecordLayout, SpanLayout
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.output.wall_clock import WallClock

__all__ = ("JsonFormatter",)


class JsonFormatter:
    """A formatter that makes one JSON object per line, as docs/json.md specifies. Output is ASCII.

    Args:
        stacks: resolves stacks and addresses; by default user addresses have no symbols.
        clock: adds ``timestamp``, the date and time by this clock.
    """

    def __init__(
        self, stacks: StackResolver | None = None, *, clock: WallClock | None = None
    ) -> None:
        self._clock = clock
        self.stacks = stacks or StackResolver()
        self._span: SpanLayout | None = None
        self._notes = [_Notes()]  # of the values; of a span, those of its start and of its end
        self.return_names: dict[str, Any] = {}
        self.names: dict[str, Any] = {
            "stacks": self.stacks,
            "text": _json_text,
            "array": _json_array,
            "socket_address": _json_socket_address,
            "labels": _json_labels,
            "memory": _json_memory,
            "real": _json_real,
            "raw": _json_raw,
            "hexadecimal": _json_hexadecimal,
        }
        if clock is not None:
            self.names["iso"] = clock.iso

    def begin(self, layout: RecordLayout) -> None:
        self.stacks.expect(layout)
        self._span = layout.span
        self._notes = [_Notes()]

    def half(self) -> None:
        self._notes.append(_Notes())

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> tuple[str, str, int]:
        head = f'"pid": {pid}, "tid": {tid}, "cpu": {cpu}, "comm": {quote(comm)}'
        return f'{head}, "probe": {quote(probe)}', quote(comm), pid

    def as_return(self, context: Any) -> Any:
        return f'{context[0]}, "event": "return"', *context[1:]

    def record(self, values: Sequence[FieldSource]) -> str:
        when = '"time": {time}' + ("" if self._clock is None else ', "timestamp": "{iso(time)}"')
        head = f'{{{{{when}, {{contexts[key][0]}}, "args": '
        if self._span is not None:
            head = f'{{{{{when}, {self._ends(self._span, values)}"args": '
        tail = self.notes()
        args = self.arguments(values)
        if self._span is not None:
            starts, ends = self._span.halves(values)
            args = f"{self.arguments(starts)}"
            args += f', "end_args": {self.arguments(ends)}' if self._span.end_probe else ""
        return f"f'''{head}{args}{tail}}}}}\\n'''"

    def notes(self) -> str:
        """Return the part of an f-string that makes what is said of values beside them."""
        halves = zip(("", "end_"), self._notes, strict=False)
        return "".join(notes.members(half) for half, notes in halves)

    def _ends(self, span: SpanLayout, values: Sequence[FieldSource]) -> str:
        # The members of a span before its values.
        end = f', "end_probe": {piece(quote(span.end_probe))}' if span.end_probe else ""
        lasted = "duration" if end else "age"
        return f'"{lasted}": {{{values[0].source}}}, {{contexts[key][0]}}{end}, '

    def arguments(self, values: Sequence[FieldSource]) -> str:
        """Return the part of an f-string that makes the object of all values."""
        args = ", ".join(f"{piece(quote(one.field.key))}: {{{one.source}}}" for one in values)
        return f"{{{{{args}}}}}"

    def integer(self, value: str) -> str:
        return value

    def hexadecimal(self, value: str) -> str:
        return f"hexadecimal({value})"

    def low_part(self, key: str, value: str, column: IntColumn) -> str:
        size = f'"bytes": {column.type.size}, "size": {column.part_of}'
        name = constant(self.names, _PartMemory(f"{quote(key)}: {{{size}}}"))
        self._add_memory(name, "b''", "0", "True")
        return value

    def floating(self, value: str) -> str:
        return f"real({value})"

    def raw_bytes(self, value: str) -> str:
        return f"raw({value})"

    def text(self, value: str, length: str, key: str, column: StringColumn | BufferColumn) -> str:
        capacity = text_capacity(column)
        name = constant(self.names, _TextMemory(key, capacity))
        cut = f"{length} == {capacity}" if capacity else f"{length} > {column.size}"
        kernel = isinstance(column, StringColumn) and column.kernel
        self._add_memory(name, value, length, f"{length} >= {USERS} or {cut}" if kernel else cut)
        return f"text({value}, {length}, {capacity})"

    def _add_memory(self, name: str, value: str, length: str, condition: str) -> None:
        # Call ``name`` for a member of "memory", if the condition holds.
        self._notes[-1].memory.append((f"({name}, {length}, {value})", condition))

    def socket_address(self, value: str, length: str, order: str) -> str:
        return f"socket_address({value}, {length}, {order!r})"

    def struct(
        self, value: str, length: str, key: str, column: StructColumn | StructListColumn, order: str
    ) -> str:
        from usdt.engine.output.formatters.structures import StructJsonFormatter  # noqa: PLC0415 - rarely needed

        name = constant(self.names, StructJsonFormatter(key, column, order))
        self._add_memory(f"{name}.memory", value, length, "True")
        return f"{name}({length}, {value})"

    def boolean(self, value: str) -> str:
        return f"('true' if {value} else 'false')"

    def array(self, value: str, length: str, key: str, column: ArrayColumn, order: str) -> str:
        name = constant(self.names, _TextMemory(key, 0))
        self._add_memory(name, value, length, f"{length} > {column.size}")
        return f"array({value}, {length}, {order + column.element_code!r})"

    def named(self, key: str, value: str, names: ValueNames) -> str:
        both = constant(self.names, (quote(key), names.find))
        self._notes[-1].labels.append(f"({both}, {value})")
        return value

    def comm(self) -> str:
        return "contexts[key][1]"

    def constant(self, text: str) -> str:
        return constant(self.names, quote(text))

    def unreadable(self, reason: str) -> str:
        return constant(self.names, _json_error(reason))

    def stack(self, column: AnyStack, value: str, length: str) -> str:
        return f"stacks.json({constant(self.names, column)}, contexts[key][2], {value}, {length})"

    def symbol(self, kind: SymbolKind, value: str) -> str:
        return f"stacks.symbol_json({constant(self.names, kind)}, contexts[key][2], {value})"

    def cgroup(self, kind: CgroupName, value: str) -> str:
        show, which = constant(self.names, cgroup_names.json_text), constant(self.names, kind)
        return f"{show}(stacks.cgroups(), {which}, {value})"


class _Notes:
    # What is said of values beside them: names of numbers, and where memory was read.
    def __init__(self) -> None:
        self.labels: list[str] = []
        self.memory: list[tuple[str, str]] = []  # call of a member of "memory", its condition

    def members(self, half: str) -> str:
        # Returns the part of an f-string that makes the members; ``half`` is before their names.
        labels = ", ".join(self.labels)
        text = f"{{labels('{half}names', ({labels},))}}" if labels else ""
        if self.memory:
            calls, conditions = zip(*self.memory, strict=True)
            made = f"memory('{half}memory', ({', '.join(calls)},))"
            text += f"{{{made} if {' or '.join(conditions)} else ''}}"
        return text


def _json_error(reason: str) -> str:
    return f'{{"error": {quote(reason)}}}'


def _json_raw(value: bytes) -> str:
    return f'"{value.hex()}"'


def _json_hexadecimal(value: int) -> str:
    return f'"{value:#x}"'


def _json_text(value: bytes, length: int, capacity: int) -> str:
    if 0 < length < capacity:  # most strings are whole
        return quote(value[: length - 1].decode("utf-8", "surrogateescape"))
    if length < 0:
        return _json_error(reason_of(length))
    return quote(decode_text(value, length, capacity))


def _json_socket_address(value: bytes, length: int, order: str) -> str:
    if length == NULL:
        return "null"
    if length < 0:
        return _json_error(reason_of(length))
    return json.dumps(socket_address(value[:length], order))


def _json_array(value: bytes, length: int, code: str) -> str:
    if length < 0:
        return _json_error(reason_of(length))
    return str(numbers(value, length, code))


class _TextMemory:
    # What is said of a text or an array: that it is of the process where types of the kernel led to
    # it, and whether it was cut.
    def __init__(self, key: str, capacity: int) -> None:
        self._key = quote(key)
        self._capacity = capacity

    def __call__(self, length: int, value: bytes) -> str:
        parts = ['"space": "user"'] if length >= USERS else []
        if is_cut(length, len(value), self._capacity):
            size = f'"bytes": {len(value)}, "size": {length & (USERS - 1)}'
            parts.append('"truncated": true' if self._capacity else size)
        return f"{self._key}: {{{', '.join(parts)}}}" if parts else ""


class _PartMemory:
    # What is said of the low part of a number, at every hit.
    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, _length: int, _value: bytes) -> str:
        return self._text


def _json_memory(
    name: str, values: tuple[tuple[Callable[[int, bytes], str], int, bytes], ...]
) -> str:
    found = [text for member, length, value in values if (text := member(length, value))]
    return f', "{name}": {{{", ".join(found)}}}' if found else ""


def _json_labels(
    member: str, values: tuple[tuple[tuple[str, Callable[[int], str | None]], int], ...]
) -> str:
    found = [(key, find(value)) for (key, find), value in values if value is not None]
    named = ", ".join(f"{key}: {quote(name)}" for key, name in found if name is not None)
    return f', "{member}": {{{named}}}' if named else ""


def _json_real(value: float) -> str:
    # JSON has no tokens for these values; a parser would reject a line that contained them.
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
