"""Decoder of records: the bytes of a ring buffer become lines or events, in bulk.

Records of one layout have one length, so one ``struct.iter_unpack`` decodes a run of them. Where
records of several layouts alternate, they are sorted by variant, unpacked variant by variant, and
put back into their order. The context of a record (probe, process, CPU, command)
repeats from record to record and is formatted once per distinct combination. The rest of a record
is one expression, compiled for each layout (as the standard library's dataclasses do). Runs of
records that show numbers become lines without any code per record, and those that show strings with
little, where the consumer takes encoded lines: :mod:`usdt.engine.output.formatters.line_template`.

The bytes may come from a damaged recording. Therefore every record's length is compared with that
of its variant before the record is read.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, assert_never, runtime_checkable

from usdt.base.errors import TracingError
from usdt.bpf.rings.ringbuf import DISCARD, HEADER, record_words, run_length
from usdt.engine.compiler.record.columns import (
    WORD,
    AnyStack,
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
    padded,
)
from usdt.engine.compiler.record.layout import HEADER_SIZE, RecordLayout
from usdt.engine.language.tree import StackKind
from usdt.engine.output.formatters.formatter import FieldSource
from usdt.engine.output.output_file import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.compiler.record.layout import RecordField
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.output.formatters.line_template import LineTemplate
    from usdt.engine.output.python_processes import PythonProcesses

__all__ = ("CONTEXT", "BadRecord", "Decoder", "RecordConsumer", "record_format", "swapped_words")

CONTEXT = struct.Struct(
    "=IIII16s"
)  # thread, process, CPU, variant number, command: bytes 8 to 40 of a record
_VARIANT_WORD = (HEADER + 20) // 4
_BATCH = 2048  # maximum records formatted between two reads of the ring buffer
# The same for encoded lines: what makes them, and they, stay in the second cache of a CPU.
_LINES = 4096
_RUN = 16  # shortest run of records of one layout that is decoded as a batch of its own
_MANY = 64  # least records of alternating layouts for which lines are made by the block
_PART = 256  # records that are rendered one by one if their template cannot show one of them
_NO_SHAPE = (-1, 0, None)
# Distinct contexts kept. All are dropped beyond that: a target may have many short-lived threads.
_CONTEXTS = 1 << 16


@runtime_checkable
class RecordConsumer(Protocol):
    """A consumer that a session passes its records to; :class:`Decoder` implements it."""

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Announce a variant before its first record arrives."""

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """Yield batches of results for complete records, as the session returns them."""

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs know the Python processes; see :class:`UserSymbols`."""


class Decoder:
    """A decoder of records: formats them as JSON lines, text lines or events.

    Args:
        form: the formatter that makes the results.
        byteorder: byte order of the records, as in :data:`sys.byteorder`.
        encoded: whether batches of a formatter of lines may be
            :class:`usdt.engine.output.output_file.Lines`, which are faster to make.
    """

    def __init__(
        self, form: Formatter, byteorder: str = sys.byteorder, *, encoded: bool = False
    ) -> None:
        self._form = form
        self._foreign = byteorder != sys.byteorder
        self._order = "<" if byteorder == "little" else ">"
        self._encoded = encoded and not self._foreign
        self._most = _LINES if self._encoded else _BATCH
        self._variants: dict[int, _Renderer] = {}
        self._sizes: dict[int, int] = {}
        # Length in bytes, words to the next record, and what renders it, if it is not hidden.
        self._shapes: dict[int, tuple[int, int, _Renderer | None]] = {}
        self._renderers: dict[RecordLayout, _Renderer] = {}
        self._hidden: set[int] = set()
        self._contexts = _Contexts(form, self._order)

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        """Announce a variant before its first record arrives."""
        self.add_layout(number, probe, plan.layout)

    def add_layout(
        self, number: int, probe: str, layout: RecordLayout, *, hidden: bool = False
    ) -> None:
        """Announce a variant by its layout alone; records of a ``hidden`` variant are skipped."""
        if hidden:
            self._hidden.add(number)
        self._contexts.probes[number] = probe
        if layout.returns:
            self._contexts.returns.add(number)
        self._sizes[number] = layout.size
        if layout not in self._renderers:
            self._renderers[layout] = _Renderer(layout, self._form, self._order)
        self._variants[number] = renderer = self._renderers[layout]
        self._shapes[number] = layout.size, record_words(layout.size), None if hidden else renderer
        if not hidden:
            renderer.shown.add(number)

    def batches(self, data: bytes) -> Iterator[list[Any]]:
        """Yield the lines or events of complete records in order, in batches of up to 4096 records.

        Raises:
            BadRecord: the bytes are not records of the announced variants.
        """
        words = memoryview(swapped_words(data) if self._foreign else data).cast("I")
        position = 0  # in 32-bit words
        while position < len(words):
            step = record_words(words[position])
            count = run_length(words, position, step, self._most)
            if count >= _RUN and position + _VARIANT_WORD < len(words):
                count = self._same_layout(words, position + _VARIANT_WORD, step, count)
            end = position + count * step
            if count < _RUN or end > len(words):
                end, rows = self._mixed(data, words, position)
            elif words[position] & DISCARD:
                rows = []
            else:
                variant = self._variant(words, position)
                records = memoryview(data)[position << 2 : end << 2]
                rows = [] if variant in self._hidden else self._run(variant, records, count)
            if len(self._contexts) > _CONTEXTS:
                self._contexts.clear()
            if rows:
                yield rows
            position = end

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        """Let programs that record Python stacks know the Python processes."""
        return self._form.stacks.python_processes(pids)

    def render(self, variant: int, rows: list[tuple[Any, ...]]) -> list[Any]:
        """Return the results for rows that were already unpacked with record_format()."""
        if len(self._contexts) > _CONTEXTS:
            self._contexts.clear()
        return self._variants[variant].render(rows, self._contexts)

    def _same_layout(self, words: memoryview, start: int, step: int, count: int) -> int:
        # Counts the leading records, all as long as the first, that are of its layout.
        same = run_length(words, start, step, count)
        if same == count or words[start] in self._hidden or words[start] not in self._variants:
            return same
        shown = self._variants[words[start]].shown
        width = _RUN
        while same < count:
            width = min(width * 4, count - same)
            begin = start + same * step
            variants = words[begin : begin + width * step : step].tolist()
            if not shown.issuperset(variants):
                return same + next(i for i, one in enumerate(variants) if one not in shown)
            same += width
        return same

    def _run(self, variant: int, records: bytes | memoryview, count: int) -> list[Any]:
        # The results for records of the layout of one variant.
        renderer = self._variants[variant]
        return self._lines(renderer, records, count) or self._rendered(renderer, records)

    def _rendered(self, renderer: _Renderer, records: bytes | memoryview) -> list[Any]:
        return renderer.render(renderer.format.iter_unpack(records), self._contexts)

    def _lines(self, renderer: _Renderer, records: bytes | memoryview, count: int) -> Lines | None:
        # The lines of records of a layout; None if they have no template.
        template = renderer.template() if self._encoded else None
        if template is None:
            return None
        lines = template.lines(records, count, self._contexts)
        if lines is not None:
            return lines
        if count <= _PART:
            text = "".join(self._rendered(renderer, records))
            return Lines([text.encode("utf-8", "backslashreplace")], count)
        # A value that was not read, for example, makes the template useless for a few records.
        found, size = Lines([], count), len(records) // count
        for start in range(0, count, _PART):
            part = records[start * size : (start + _PART) * size]
            found += self._lines(renderer, part, len(part) // size) or ()
        return found

    def _mixed(self, data: bytes, words: memoryview, position: int) -> tuple[int, list[Any]]:
        # Decodes up to a batch of records of any variant. Returns the position after them, and the
        # results.
        total = len(words)
        order: list[deque[Any]] = []  # for each record, where its result will come from
        results: dict[_Renderer, deque[Any]] = {}
        pieces: dict[_Renderer, list[bytes]] = {}
        known: dict[int, tuple[int, int, Callable[[bytes], None], deque[Any]]] = {}
        stop = min(position + (self._most << 4), total)  # if all are hidden or discarded
        longest = total - _VARIANT_WORD
        add = order.append
        while position < stop and len(order) < self._most:
            header = words[position]
            variant = words[position + _VARIANT_WORD] if position < longest else -1
            shape = known.get(variant)
            if shape is not None and shape[0] == header:
                _, step, keep, result = shape
                end = position + step
                if end <= total:
                    keep(data[position << 2 : end << 2])
                    add(result)
                    position = end
                    continue
            size, step, renderer = self._shapes.get(variant, _NO_SHAPE)
            end = position + step
            if size != header or end > total:
                end = position + record_words(header)
                if not header & DISCARD or end > total:
                    self._variant(words, position)  # raises BadRecord
                position = end
            elif renderer is None:
                position = end
            else:
                result = results.setdefault(renderer, deque())
                known[variant] = size, step, pieces.setdefault(renderer, []).append, result
        if self._add_lines(results, pieces):
            return position, Lines([b"\n".join(map(deque.popleft, order)), b"\n"], len(order))
        for renderer, records in pieces.items():
            results[renderer].extend(self._rendered(renderer, b"".join(records)))
        return position, [*map(deque.popleft, order)]

    def _add_lines(
        self, results: dict[_Renderer, deque[Any]], pieces: dict[_Renderer, list[bytes]]
    ) -> bool:
        # Adds the lines of records of several layouts, without their newlines; False if some have
        # no template, or there are few of them.
        if not self._encoded or sum(map(len, pieces.values())) < _MANY:
            return False
        if not all(map(_Renderer.template, pieces)):
            return False
        for renderer, records in pieces.items():
            lines = self._lines(renderer, b"".join(records), len(records)) or ()
            results[renderer].extend(b"".join(lines).split(b"\n"))
        return True

    def _variant(self, words: memoryview, position: int) -> int:
        # Returns the variant of the record at a position, which must be complete and as long as the
        # records of its variant.
        header = words[position]
        if position + record_words(header) > len(words):
            raise BadRecord(f"a record of {header:#x} bytes where {len(words) - position << 2} are")
        variant = words[position + _VARIANT_WORD] if header >= HEADER_SIZE else -1
        size = self._sizes.get(variant)
        if size != header:
            expected = "of no known probe" if size is None else f"where {size:#x} is expected"
            raise BadRecord(f"a record that begins with {header:#x}, variant {variant}: {expected}")
        return variant


class BadRecord(TracingError, ValueError):  # noqa: N818 - the name states the error
    """Bytes that are not a record of any variant; only a damaged recording has them."""


def swapped_words(data: bytes) -> memoryview:
    """Return the bytes with the byte order of every 32-bit word reversed."""
    from array import array  # noqa: PLC0415 - for recordings of other machines

    words = array("I", data)
    words.byteswap()
    return memoryview(words).cast("B")


class _Contexts(dict[bytes, Any]):
    # Maps bytes 8 to 40 of a record to the formatted context.
    def __init__(self, form: Formatter, order: str) -> None:
        self._form = form
        self._format = struct.Struct(order + CONTEXT.format[1:])
        self.probes: dict[int, str] = {}
        self.returns: set[int] = set()

    def __missing__(self, key: bytes) -> Any:
        tid, pid, cpu, variant, comm = self._format.unpack(key)
        name = comm.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        value = self._form.context(pid, tid, cpu, name, self.probes[variant])
        self[key] = value = self._form.as_return(value) if variant in self.returns else value
        return value


def record_format(layout: RecordLayout, order: str = "=") -> struct.Struct:
    """Return a struct that unpacks records of a layout, each preceded by the ring buffer's header.

    Args:
        layout: layout of the records.
        order: byte order: "=" (this machine's), "<" or ">".
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


class _Renderer:
    """What makes the results for records of one layout.

    The source of ``render`` consists of names, numbers and the keys of the items; the formatter
    quotes the keys.

    Args:
        layout: the layout.
        form: the formatter.
        order: as for :func:`record_format`; also the byte order of the elements of arrays.

    Attributes:
        format: unpacks a record.
        render: (rows, contexts) → results.
        shown: the variants of the layout that are not hidden.
    """

    def __init__(self, layout: RecordLayout, form: Formatter, order: str) -> None:
        self.format = record_format(layout, order)
        self.shown: set[int] = set()
        self._layout = layout
        names, self._source = _sources(layout, form, order)
        self._names = form.names | (form.return_names if layout.returns else {})
        source = f"lambda rows, contexts: [{self._source} for {', '.join(names)} in rows]"
        self.render: Callable[..., list[Any]] = eval(source, self._names)  # noqa: S307 - see above
        self._has_template = False
        self._template: LineTemplate | None = None

    def template(self) -> LineTemplate | None:
        """Return what makes lines of many records at once; None if nothing does."""
        if not self._has_template:
            from usdt.engine.output.formatters.line_template import LineTemplate  # noqa: PLC0415 - for many records

            self._has_template = True
            self._template = LineTemplate.of(self._layout, self._source, self._names)
        return self._template


def _sources(layout: RecordLayout, form: Formatter, order: str) -> tuple[list[str], str]:
    # The names that a row's values have, and the source of the expression for a record.
    names = ["time", "key"] + (["bitmap"] if layout.bitmap_offset is not None else [])
    values = []
    form.begin(layout)
    for index, field in enumerate(layout.fields):
        if layout.span is not None and index == layout.span.starts + 1:
            form.half()
        expression = _expression(index, layout.bit(index), field, form, order)
        if isinstance(field.column, AnyStack):
            data = _stack_data(index, layout)
            expression = form.stack(field.column, data, f"length{index}")
        values.append(FieldSource(field, expression))
        if field.column.prefix_size:
            names.append(f"length{index}")
        if field.column.stored:
            names.append(f"value{index}")
    return names, form.record(values)


def _stack_data(index: int, layout: RecordLayout) -> str:
    # The source of the bytes of a stack; those of a user stack with the Python stack of the hit.
    kinds = [isinstance(one.column, AnyStack) and one.column.kind for one in layout.fields]
    if layout.span is None and kinds[index] is StackKind.USER and StackKind.PYTHON in kinds:
        python = kinds.index(StackKind.PYTHON)
        return f"(value{index}, value{python}, length{python})"
    return f"value{index}"


def _expression(index: int, bit: int, field: RecordField, form: Formatter, order: str) -> str:
    value, length = f"value{index}", f"length{index}"
    column = field.column
    match column:
        case CommColumn():
            return form.comm()
        case UnavailableColumn():
            return form.unreadable(column.reason)
        case ConstColumn():
            return form.constant(column.text)
        case StringColumn():
            return form.text(value, length, field.key, column)
        case BufferColumn():
            return form.text(value, length, field.key, column)
        case SocketAddressColumn():
            return form.socket_address(value, length, order)
        case StructColumn() | StructListColumn():
            return form.struct(value, length, field.key, column, order)
        case ArrayColumn():
            return form.array(value, length, field.key, column, order)
        case StackColumn() | StackCopyColumn():
            return form.stack(column, value, length)
        case FloatColumn():
            expression = form.floating(value)
        case BytesColumn():
            expression = form.raw_bytes(value)
        case SymbolColumn():
            expression = form.symbol(column.kind, value)
        case CgroupColumn():
            expression = form.cgroup(column.kind, value)
        case IntColumn():
            expression = _integer(index, bit, field, column, form)
        case _:
            assert_never(column)
    if field.may_fault:
        return f"({form.unreadable(field.reason)} if bitmap & {1 << bit} else {expression})"
    return expression


def _integer(index: int, bit: int, field: RecordField, column: IntColumn, form: Formatter) -> str:
    value = f"value{index}"
    match column.format:
        case IntFormat.HEX:
            shown = form.hexadecimal(f"({value} & {(1 << 8 * column.type.size) - 1})")
            return form.low_part(field.key, shown, column) if column.part_of else shown
        case IntFormat.BOOL:
            return form.boolean(value)
        case IntFormat.DECIMAL:
            if column.part_of:
                return form.low_part(field.key, value, column)
            if column.names is None:
                return form.integer(value)
            shown = f"(None if bitmap & {1 << bit} else {value})" if field.may_fault else value
            return form.named(field.key, shown, column.names)
        case _:
            assert_never(column.format)
