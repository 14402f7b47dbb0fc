"""From the ring buffer's bytes to lines or events, in bulk.

Records of one case have one length and one layout, so a run of them is one
``struct.iter_unpack``. Records of several probes that take turns are sorted by case, unpacked case
by case, and put back into their order. What surrounds the values (probe, process, CPU, command)
repeats from record to record and is formatted once per distinct combination; the rest is one
expression per record, compiled for each layout (the standard library's dataclasses do the same).

Bytes may come from a recording that somebody damaged: every record's length is compared with that
of its case before it is read.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any, Protocol, assert_never, runtime_checkable

from usdt.base.errors import TracingError
from usdt.bpf.ringbuf import DISCARD, HEADER, record_words, run_length
from usdt.engine.compiler.record.columns import (
    WORD,
    ArrayColumn,
    BufferColumn,
    BytesColumn,
    CommColumn,
    ConstColumn,
    FloatColumn,
    IntColumn,
    IntFormat,
    StackColumn,
    StringColumn,
    StructColumn,
    StructListColumn,
    SymbolColumn,
    UnavailableColumn,
    padded,
)
from usdt.engine.compiler.record.layout import HEADER_SIZE, RecordLayout
from usdt.engine.output.formatters.formatter import FieldSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.compiler.record.layout import RecordField
    from usdt.engine.output.formatters import Formatter

__all__ = ("CONTEXT", "BadRecord", "Decoder", "RecordConsumer", "record_format", "swapped_words")

CONTEXT = struct.Struct(
    "=IIII16s"
)  # thread, process, CPU, case, command: bytes 8 to 40 of a record
_CASE_WORD = (HEADER + 20) // 4
_BATCH = 2048  # records formatted between two looks at the ring buffer
_RUN = 16  # records of one case in a row that are worth a batch of their own
_CONTEXTS = 1 << 16  # distinct contexts kept; a tracer of short-lived threads forgets them all


@runtime_checkable
class RecordConsumer(Protocol):
    """What a session gives its records to; :class:`Decoder` is one."""

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Announce a case before its first record comes."""

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """Yield, in portions, what callers of the session get for whole records."""


class Decoder:
    """Turns records into what a form makes of them: JSON lines, text lines or events.

    Args:
        form: what records become.
        byteorder: of the records, as :data:`sys.byteorder` has it.
    """

    def __init__(self, form: Formatter, byteorder: str = sys.byteorder) -> None:
        self._form = form
        self._foreign = byteorder != sys.byteorder
        self._order = "<" if byteorder == "little" else ">"
        self._cases: dict[int, tuple[struct.Struct, Callable[..., list[Any]]]] = {}
        self._sizes: dict[int, int] = {}
        self._renderers: dict[RecordLayout, tuple[struct.Struct, Callable[..., list[Any]]]] = {}
        self._hidden: set[int] = set()
        self._contexts = _Contexts(form, self._order)

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Announce a case before its first record comes."""
        self.add_layout(number, probe, plan.layout)

    def add_layout(
        self, number: int, probe: str, layout: RecordLayout, *, hidden: bool = False
    ) -> None:
        """The same from its layout alone; ``hidden``: its records are passed over."""
        if hidden:
            self._hidden.add(number)
        self._contexts.probes[number] = probe
        if layout.returns:
            self._contexts.returns.add(number)
        self._sizes[number] = layout.size
        if layout not in self._renderers:
            renderer = compile_renderer(layout, self._form, self._order)
            self._renderers[layout] = record_format(layout, self._order), renderer
        self._cases[number] = self._renderers[layout]

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """Yield the lines or events of whole records, some thousands at a time, in order.

        Raises:
            BadRecord: these are no records of the cases announced.
        """
        words = memoryview(swapped_words(data) if self._foreign else data).cast("I")
        position = 0  # in words
        while position < len(words):
            step = record_words(words[position])
            count = run_length(words, position, step, _BATCH)
            if count >= _RUN and position + _CASE_WORD < len(words):
                count = run_length(words, position + _CASE_WORD, step, count)
            end = position + count * step
            if count < _RUN or end > len(words):
                end, rows = self._mixed(data, words, position)
            elif words[position] & DISCARD:
                rows = []
            else:
                case = self._case(words, position)
                layout, render = self._cases[case]
                records = layout.iter_unpack(data[position << 2 : end << 2])
                rows = [] if case in self._hidden else render(records, self._contexts)
            if len(self._contexts) > _CONTEXTS:
                self._contexts.clear()
            if rows:
                yield rows
            position = end

    def render(self, case: int, rows: list[tuple[Any, ...]]) -> list[Any]:
        """What rows become that somebody else has unpacked, as record_format() says."""
        if len(self._contexts) > _CONTEXTS:
            self._contexts.clear()
        return self._cases[case][1](rows, self._contexts)

    def _mixed(self, data: bytes, words: memoryview, position: int) -> tuple[int, list[Any]]:
        # Up to a batch of records of any case: the position behind them, and what they became.
        total = len(words)
        cases: list[int] = []
        pieces: dict[int, list[bytes]] = {}
        last = position + (_BATCH << 4)  # in words, should all be hidden or discarded
        while position < min(total, last) and len(cases) < _BATCH:
            header = words[position]
            end = position + record_words(header)
            if not header & DISCARD or end > total:
                case = self._case(words, position)
                if case not in self._hidden:
                    cases.append(case)
                    pieces.setdefault(case, []).append(data[position << 2 : end << 2])
            position = end
        results = {}
        for case, records in pieces.items():
            layout, render = self._cases[case]
            results[case] = iter(render(layout.iter_unpack(b"".join(records)), self._contexts))
        return position, [next(results[case]) for case in cases]

    def _case(self, words: memoryview, position: int) -> int:
        # The case of the record there, which is whole and as long as that case's are.
        header = words[position]
        if position + record_words(header) > len(words):
            raise BadRecord(f"a record of {header:#x} bytes where {len(words) - position << 2} are")
        case = words[position + _CASE_WORD] if header >= HEADER_SIZE else -1
        size = self._sizes.get(case)
        if size != header:
            expected = "of no known probe" if size is None else f"where {size:#x} is expected"
            raise BadRecord(f"a record that begins with {header:#x}, case {case}: {expected}")
        return case


class BadRecord(TracingError, ValueError):  # noqa: N818 - short for what it says
    """Bytes that are no record of any case; only a damaged recording has them."""


def swapped_words(data: bytes) -> memoryview:
    """The bytes of words of 32 bits in this machine's byte order from those of the other."""
    words = array("I", data)
    words.byteswap()
    return memoryview(words).cast("B")


class _Contexts(dict[bytes, Any]):
    # Bytes 8 to 40 of a record → what the form shows for them.
    def __init__(self, form: Formatter, order: str) -> None:
        self._form = form
        self._format = struct.Struct(order + CONTEXT.format[1:])
        self.probes: dict[int, str] = {}
        self.returns: set[int] = set()

    def __missing__(self, key: bytes) -> Any:
        tid, pid, cpu, case, comm = self._format.unpack(key)
        name = comm.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        value = self._form.context(pid, tid, cpu, name, self.probes[case])
        self[key] = value = self._form.as_return(value) if case in self.returns else value
        return value


def record_format(layout: RecordLayout, order: str = "=") -> struct.Struct:
    """Return what unpacks records of a layout, each with the ring buffer's header before it.

    Args:
        layout: of the records.
        order: of the bytes: "=" this machine's, "<" or ">".
    """
    parts = [f"{order}{HEADER}xQ32s"]
    end = HEADER_SIZE
    if layout.bitmap_offset is not None:
        parts.append("Q")
        end += WORD
    for field in layout.fields:
        if field.offset is not None:
            parts.append(f"{field.offset - end}x{field.column.struct_code}")
            end = field.offset + field.column.prefix_size + padded(field.column.size)
    parts.append(f"{layout.size - end}x")
    return struct.Struct("".join(parts))


def compile_renderer(
    layout: RecordLayout, form: Formatter, order: str = "="
) -> Callable[..., list[Any]]:
    """Return a function (rows, contexts) → list, made for one layout.

    Its source is made of names, numbers and the keys of the items; a formatter quotes the keys.
    The elements of arrays have the byte order given.
    """
    names = ["t", "c"] + (["m"] if layout.bitmap_offset is not None else [])
    values = []
    form.begin(layout)
    for index, field in enumerate(layout.fields):
        values.append(FieldSource(field, _expression(index, field, form, order)))
        if field.column.prefix_size:
            names.append(f"n{index}")
        if field.column.stored:
            names.append(f"v{index}")
    source = f"lambda rows, contexts: [{form.record(values)} for {', '.join(names)} in rows]"
    names_known = form.names | (form.return_names if layout.returns else {})
    function: Callable[..., list[Any]] = eval(source, names_known)  # noqa: S307 - see above
    return function


def _expression(index: int, field: RecordField, form: Formatter, order: str) -> str:
    value, length = f"v{index}", f"n{index}"
    column = field.column
    match column:
        case CommColumn():
            return form.comm()
        case UnavailableColumn():
            return form.unreadable(column.reason)
        case ConstColumn():
            return form.constant(column.text)
        case StringColumn():
            return form.text(value, length, column.size, field.key if column.kernel else "")
        case BufferColumn():
            return form.text(value, length, 0)
        case StructColumn() | StructListColumn():
            return form.struct(value, length, field.key, column, order)
        case ArrayColumn():
            return form.array(value, length, order + column.element_code)
        case StackColumn():
            return form.stack(column.kind, value, length)
        case FloatColumn():
            expression = form.floating(value)
        case BytesColumn():
            expression = form.raw_bytes(value)
        case SymbolColumn():
            expression = form.symbol(column.kind, value)
        case IntColumn():
            expression = _integer(index, field, column, form)
        case _:
            assert_never(column)
    if field.may_fault:
        return f"({form.unreadable(field.reason)} if m & {1 << index} else {expression})"
    return expression


def _integer(index: int, field: RecordField, column: IntColumn, form: Formatter) -> str:
    value = f"v{index}"
    match column.format:
        case IntFormat.HEX:
            return form.hexadecimal(f"({value} & {(1 << 8 * column.type.size) - 1})")
        case IntFormat.BOOL:
            return form.boolean(value)
        case IntFormat.DECIMAL:
            if column.names is None:
                return form.integer(value)
            shown = f"(None if m & {1 << index} else {value})" if field.may_fault else value
            return form.named(field.key, shown, column.names)
        case _:
            assert_never(column.format)
