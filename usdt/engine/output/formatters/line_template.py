"""Records of one probe as lines, many at a time: one ``%`` for a whole block of records.

A formatter gives the source of an f-string for one record. Where that shows nothing but numbers
beside what is the same for all records of a thread, it becomes a template of bytes: ``%d`` for
each number. The template repeated, and a struct repeated, then format a block of records by two
calls of C code. Strings, floats and numbers with names are formatted one by one, or not at all if
they have come before (:mod:`usdt.engine.output.formatters.value_memory`). What cannot be shown so
is left to the f-string: stacks, symbols, values that could not be read. Large blocks that show
integers alone are left to numpy, if it is installed
(:mod:`usdt.engine.output.formatters.array_lines`).

Times of day are made in one tenth of a second at a time: what stands before its digits is the same
for all of them, and eight digits fit in the word of the record that has the time.
"""

from __future__ import annotations

import ast
import itertools
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from usdt.bpf.rings.numpy_import import numpy_after
from usdt.bpf.rings.ringbuf import HEADER
from usdt.engine.compiler.record.columns import WORD, FloatColumn, IntColumn, padded
from usdt.engine.compiler.record.layout import HEADER_SIZE
from usdt.engine.compiler.value_names import ValueNames
from usdt.engine.output.formatters.block_parts import (
    CONTEXT_KEY,
    CONTEXT_WORDS,
    LEAST,
    TIME_WORD,
    Column,
    all_equal,
    changes,
    turns,
)
from usdt.engine.output.formatters.time_digits import fraction_digits
from usdt.engine.output.formatters.value_memory import ValueMemory
from usdt.engine.output.output_file import Lines
from usdt.engine.output.wall_clock import WallClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from usdt.engine.compiler.record.layout import RecordLayout
    from usdt.engine.output.formatters.array_lines import ArrayLines

__all__ = ("LineTemplate",)

_BLOCKS = (256, 16)  # records of one ``%``; what is left are less
_BITMAP_WORD = CONTEXT_WORDS.stop
_UNITS = 1 << 10  # lines of contexts that are kept


class _Part(NamedTuple):
    # A part of a line. Its rank is the order in which a struct unpacks it; -1: it is constant.
    rank: int
    literal: bytes = b""
    context: int = -1  # the index of a text of the context
    names: tuple[str, ...] = ()  # of the values that ``make`` takes columns of
    make: Callable[..., Iterable[bytes]] | None = None


_TIME, _CLOCK, _CONTEXT, _FIELDS = 0, 1, 2, 3  # ranks; fields have theirs from the last one on
_MADE = 1 << 20  # the rank of what is made of values
#: Functions of formatters that return text without a newline, the same for the same values.
_FUNCTIONS = frozenset(
    (
        *("array", "hex", "hexadecimal", "labels", "lasted", "memory", "raw", "real", "repr"),
        *("socket_address", "str", "text"),
    )
)


class LineTemplate:
    """The lines of records of one layout; :meth:`of` makes it.

    Args:
        layout: the layout of the records.
        parts: of a line.
        clock: makes times of day or dates, if they are shown.
        iso: whether they are dates.
        checks: whether some values may be unreadable.
    """

    def __init__(
        self,
        layout: RecordLayout,
        parts: list[_Part],
        clock: WallClock | None,
        *,
        iso: bool,
        checks: bool,
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._iso = iso
        self._words = (HEADER + layout.size) // WORD
        self._bitmap = checks
        ranks = [part.rank for part in parts if part.rank >= 0]
        self._clear = [rank for rank in ranks if rank != _CONTEXT]
        # Where threads alternate, the text of the thread is a value as well, if that has one place.
        self._made = _MADE in ranks
        by_column = self._made or ranks.count(_CONTEXT) > 1
        self._columns = _value_names(layout, ranks) if by_column else []
        timed = len({_TIME, _CLOCK}.intersection(ranks))
        self._keyed = [*self._columns[:timed], "key", *self._columns[timed:]]
        self._alternates = _CONTEXT in ranks and (by_column or ranks == sorted(set(ranks)))
        self._both = timed == 2
        self._width = len(ranks)
        self._place = ranks.index(_CONTEXT) if _CONTEXT in ranks else 0
        self._text = next((one.context for one in parts if one.rank == _CONTEXT), -1)
        self._format = _record_code(layout, ranks, "32x", iso=iso)
        self._mixed_format = _record_code(layout, ranks, "32s", iso=iso)
        self._structs: dict[tuple[str, int], struct.Struct] = {}
        self._units: dict[tuple[bytes | None, tuple[str, str]], bytes] = {}
        self._texts = {one.context: _Texts(one.context) for one in parts if one.rank == _CONTEXT}
        self._integers = None if self._made else _integers(layout, parts, iso=iso)
        self._arrays: ArrayLines | None = None

    @classmethod
    def of(cls, layout: RecordLayout, source: str, names: Mapping[str, Any]) -> LineTemplate | None:
        """Return the template for the f-string of a formatter; None if it needs that itself.

        Args:
            layout: the layout of the records.
            source: the expression of a complete record.
            names: the values of the names in the source.
        """
        parser = _Parser(layout, names)
        parts = parser.parts(source)
        if parts is None:
            return None
        ranks = [part.rank for part in parts if part.rank >= 0 and part.rank != _CONTEXT]
        shown = [
            _FIELDS + number for number, field in enumerate(layout.fields) if field.column.stored
        ]
        in_order = ranks == sorted(set(ranks)) and [r for r in ranks if r >= _FIELDS] == shown
        one_line = sum(part.literal.count(b"\n") for part in parts) == 1
        if not one_line or not (in_order or _MADE in ranks):
            return None
        return cls(layout, parts, parser.clock, iso=parser.iso, checks=parser.checks)

    def lines(
        self, records: bytes | memoryview, count: int, contexts: Mapping[bytes, Any]
    ) -> Lines | None:
        """Return the lines of records; None if some need the f-string.

        Args:
            records: their bytes, with the ring buffer's headers.
            count: how many there are.
            contexts: the formatted contexts by bytes 8 to 40 of a record.
        """
        clock = self._clock
        if clock is None:
            return self._lines(records, count, contexts)
        times = memoryview(records).cast("Q")[TIME_WORD :: self._words]
        starts = turns(times, count, clock)
        return self._joined(records, [*starts, count], contexts) if starts else None

    def _joined(
        self, records: bytes | memoryview, bounds: Sequence[int], contexts: Mapping[bytes, Any]
    ) -> Lines | None:
        # The lines of parts of records.
        size = self._words * WORD
        found = Lines([], bounds[-1])
        for start, end in itertools.pairwise(bounds):
            made = self._lines(records[start * size : end * size], end - start, contexts)
            if made is None:
                return None
            found += made
        return found

    def _lines(
        self, records: bytes | memoryview, count: int, contexts: Mapping[bytes, Any]
    ) -> Lines | None:
        # The lines of records whose times of day are in one tenth of a second.
        if count >= LEAST and self._integers and (made := self._by_array(records, count, contexts)):
            return made
        words = memoryview(records).cast("Q")
        step = self._words
        if self._bitmap and (words[_BITMAP_WORD] or not all_equal(words[_BITMAP_WORD::step])):
            return None
        alternate = not all(all_equal(words[word::step]) for word in CONTEXT_WORDS)
        if alternate:
            starts = changes(words, step, count)
            if starts or not self._alternates:
                return self._joined(records, [*starts, count], contexts) if starts else None
        around = ("", "")
        if self._clock is not None:
            begin, *texts = self._clock.tenth(words[TIME_WORD], iso=self._iso)
            digits = fraction_digits(words[TIME_WORD::step], begin)
            if digits is None:
                return None
            around = texts[0], texts[1]
            words = memoryview(bytearray(records)).cast("Q")
            if self._both:
                words[0::step] = words[TIME_WORD::step]
            words[TIME_WORD::step] = digits
        if alternate:
            for kept in self._texts.values():
                kept.contexts = contexts
            arrange: Callable[[Any], tuple[Any, ...]] | None = (
                partial(self._arranged, keys=True) if self._columns else self._with_texts
            )
        else:
            arrange = partial(self._arranged, keys=False) if self._made else None
        unit = self._unit(None if alternate else bytes(records[CONTEXT_KEY]), around, contexts)
        code = self._mixed_format if alternate else self._format
        pieces: list[bytes] = []
        for number, rows in self._blocks(code, words, count):
            block = unit * number
            pieces += [block % row for row in (map(arrange, rows) if arrange else rows)]
        return Lines(pieces, count)

    def _by_array(
        self, records: bytes | memoryview, count: int, contexts: Mapping[bytes, Any]
    ) -> Lines | None:
        # As _lines(); also None for the records of many contexts, and without numpy.
        if self._arrays is None:
            numpy = numpy_after(count)
            if numpy is None or self._integers is None:
                return None
            # Imported here: few traces have so many lines.
            from usdt.engine.output.formatters.array_lines import ArrayLines  # noqa: PLC0415

            self._arrays = ArrayLines(numpy, self._integers, self._words * WORD)
        words = memoryview(records).cast("Q")
        bitmap = [_BITMAP_WORD * WORD] if self._bitmap else []
        if (bitmap and words[_BITMAP_WORD]) or not self._arrays.alike(records, bitmap):
            return None
        found = self._arrays.contexts(records)
        if found is None:
            return None
        begin, around = 0, ("", "")
        if self._clock is not None:
            begin, *texts = self._clock.tenth(words[TIME_WORD], iso=self._iso)
            around = texts[0], texts[1]
        keys = [bytes(records[at * self._words * WORD :][CONTEXT_KEY]) for at in found.firsts]
        unit = self._unit(keys[0] if found.which is None else None, around, contexts)
        shown = {at: [_encoded(contexts[key][at]) for key in keys] for at in self._texts}
        lines = self._arrays.lines(records, unit, begin, found.which, shown)
        return None if lines is None else Lines([lines], count)

    def _blocks(
        self, code: str, words: memoryview, count: int
    ) -> Iterator[tuple[int, Iterable[tuple[Any, ...]]]]:
        # The number of records in a block, and the values of each block of so many.
        begin = 0
        for number in (*_BLOCKS, count % _BLOCKS[-1]):
            end = begin + (count - begin) // number * number if number else begin
            if end > begin:
                found = words[begin * self._words : end * self._words]
                yield number, self._struct(code, number).iter_unpack(found)
            begin = end

    def _with_texts(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        # The row of a block with the texts of contexts in place of their keys.
        found, width, place = list(row), self._width, self._place
        keys = row[place::width]
        found[place::width] = map(self._texts[self._text].__getitem__, keys)
        return tuple(found)

    def _arranged(self, row: tuple[Any, ...], *, keys: bool) -> tuple[Any, ...]:
        # The values of a block in the order of its lines, with what is made of them. ``keys``: the
        # row has the keys of contexts.
        names = self._keyed if keys else self._columns
        column = {name: row[at :: len(names)] for at, name in enumerate(names)}
        shown = [part for part in self._parts if part.rank >= 0 and (keys or part.rank != _CONTEXT)]
        found: list[Any] = [None] * (len(row) // len(names) * len(shown))
        for at, part in enumerate(shown):
            if part.make is not None:
                values: Iterable[Any] = part.make(*(column[name] for name in part.names))
            elif part.rank == _CONTEXT:
                values = map(self._texts[part.context].__getitem__, column["key"])
            else:
                values = column[_name(part.rank)]
            found[at :: len(shown)] = values
        return tuple(found)

    def _unit(
        self, key: bytes | None, around: tuple[str, str], contexts: Mapping[bytes, Any]
    ) -> bytes:
        # The template of one line; without a key, the context is a value.
        found = self._units.get((key, around))
        if found is None:
            if len(self._units) >= _UNITS:
                self._units.clear()
            parts = (self._piece(part, key, around, contexts) for part in self._parts)
            found = self._units[key, around] = b"".join(parts)
        return found

    def _piece(
        self,
        part: _Part,
        key: bytes | None,
        around: tuple[str, str],
        contexts: Mapping[bytes, Any],
    ) -> bytes:
        if part.rank == _CONTEXT:
            return b"%b" if key is None else _escaped(contexts[key][part.context])
        if part.rank == _CLOCK:
            return b"%b".join(map(_escaped, around))
        return part.literal if part.rank < 0 else b"%b" if part.make else b"%d"

    def _struct(self, code: str, count: int) -> struct.Struct:
        made = self._structs.get((code, count))
        if made is None:
            made = self._structs[code, count] = struct.Struct("=" + code * count)
        return made


class _Texts(dict[bytes, bytes]):
    # The encoded texts of contexts with an index. A context has several: a line may show the
    # command twice, in its head and as a value.
    contexts: Mapping[bytes, Any]

    def __init__(self, index: int) -> None:
        super().__init__()
        self._index = index

    def __missing__(self, key: bytes) -> bytes:
        if len(self) >= _UNITS:
            self.clear()
        found = self[key] = _encoded(self.contexts[key][self._index])
        return found


class _Parser(ast.NodeTransformer):
    # Reads the f-string of a formatter.
    def __init__(self, layout: RecordLayout, names: Mapping[str, Any]) -> None:
        self._layout = layout
        self._names = names
        self.clock: WallClock | None = None
        self.iso = False
        self.checks = False  # whether the bitmap of unreadable values matters

    def parts(self, source: str) -> list[_Part] | None:
        body = self.visit(ast.parse(source, mode="eval").body)
        if not isinstance(body, ast.JoinedStr):
            return None
        parts = [self._part(value) for value in body.values]
        known = [part for part in parts if part is not None]
        return known if len(known) == len(parts) else None

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        # Every value was read; else, there are no lines of blocks.
        self.generic_visit(node)
        match node.test:
            case ast.BinOp(left=ast.Name(id="bitmap"), op=ast.BitAnd()):
                self.checks = True
                return node.orelse
        return node

    def _part(self, value: ast.expr) -> _Part | None:
        match value:
            case ast.Constant(value=str(text)):
                return _Part(-1, _escaped(text))
            case ast.FormattedValue(value=shown, conversion=-1, format_spec=None):
                return self._shown(shown)
            case ast.FormattedValue(conversion=-1):
                return self._made(ast.JoinedStr([value]))
        return None

    def _shown(self, shown: ast.expr) -> _Part | None:
        match shown:
            case ast.Name(id="time"):
                return _Part(_TIME)
            case ast.Name(id=name) if name.startswith("value"):
                return _Part(_FIELDS + int(name.removeprefix("value")))
            case ast.Name(id=name):
                known = self._names.get(name)
                return _Part(-1, _escaped(known)) if isinstance(known, str) else None
            case ast.Call(func=ast.Name(id=name), args=[ast.Name(id="time")], keywords=[]):
                return self._time(self._names[name])
            case ast.Subscript(
                value=ast.Subscript(value=ast.Name(id="contexts"), slice=ast.Name(id="key")),
                slice=ast.Constant(value=int(index)),
            ):
                return _Part(_CONTEXT, context=index)
        return self._made(shown)

    def _made(self, shown: ast.expr) -> _Part | None:
        used: dict[str, None] = {}
        for node in ast.walk(shown):
            match node:
                case ast.Call(func=ast.Name(id=name)) if self._is_known(name):
                    pass
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="hex"), args=[]):
                    pass  # of bytes
                case ast.Attribute(value=ast.Name(id=name), attr="hex" | "memory"):
                    pass
                case ast.Call() | ast.Attribute() | ast.Lambda():
                    return None
                case ast.Name(id=name) if name.startswith(("value", "length")):
                    used[name] = None
                case ast.Name(id="time" | "key" | "contexts" | "bitmap"):
                    return None
        return _Part(_MADE, names=(*used,), make=self._maker(shown, (*used,))) if used else None

    def _is_known(self, name: str) -> bool:
        # Whether a function returns text without a newline, the same for the same values.
        function = self._names.get(name)
        names = isinstance(getattr(function, "__self__", None), ValueNames)
        return names or name in _FUNCTIONS or getattr(function, "pure", False)

    def _maker(self, shown: ast.expr, used: tuple[str, ...]) -> Callable[..., Iterable[bytes]]:
        # Returns what makes the bytes of columns of values.
        kept, made = True, _encoding(shown)
        match shown:
            case ast.IfExp(test=test, body=body, orelse=ast.Constant(value="")):
                kept = any(
                    isinstance(one, ast.Constant) and one.value is True for one in ast.walk(test)
                )
                made = f"{_encoding(body)} if {ast.unparse(test)} else b''"
        names = ", ".join(used)
        rows = f"{names} in zip({names})" if len(used) > 1 else f"{names} in {names}"
        source = f"lambda {names}: [{made} for {rows}]"
        function: Callable[..., list[bytes]]
        function = eval(source, dict(self._names))  # noqa: S307 - the formatter's own source
        columns = [
            self._layout.fields[int(name.removeprefix("value"))].column
            for name in used
            if name.startswith("value")
        ]
        # 0.0 and -0.0 are equal, and NaN equals nothing.
        if not kept or any(isinstance(column, FloatColumn) for column in columns):
            return function
        one = eval(f"lambda {names}: {made}", dict(self._names))  # noqa: S307 - as above
        return ValueMemory(one, function, sum(column.size for column in columns)).of

    def _time(self, function: Callable[[int], str]) -> _Part | None:
        clock = getattr(function, "__self__", None)
        if not isinstance(clock, WallClock) or function not in (clock.time_of_day, clock.iso):
            return None
        self.clock = clock
        self.iso = function == clock.iso
        return _Part(_CLOCK)


def _record_code(layout: RecordLayout, ranks: list[int], context: str, *, iso: bool) -> str:
    # What unpacks the parts of one record. The digits of a time replace it, and it the header.
    clock = "8s" if iso else "5s3x"
    both = f"{HEADER}xQ" if _CLOCK not in ranks else f"Q{clock}"
    time = both if _TIME in ranks else f"{HEADER}x{clock if _CLOCK in ranks else f'{WORD}x'}"
    codes = [f"{time}{context}"]
    end = HEADER_SIZE
    for field in layout.fields:
        if field.offset is not None:
            codes.append(f"{field.offset - end}x{field.column.struct_code}")
            end = field.offset + field.column.prefix_size + padded(field.column.size)
    codes.append(f"{layout.size - end}x")
    return "".join(codes)


def _integers(layout: RecordLayout, parts: list[_Part], *, iso: bool) -> list[Column] | None:
    # Where a line's values are in a record; None if some are no integers.
    found = []
    for rank, context in ((part.rank, part.context) for part in parts if part.rank >= 0):
        if rank == _CONTEXT:
            found.append(Column(CONTEXT_KEY.start, context=context))
            continue
        if rank < _FIELDS:
            found.append(Column(HEADER, digits=(8 if iso else 5) if rank == _CLOCK else 0))
            continue
        field = layout.fields[rank - _FIELDS]
        if field.offset is None or not isinstance(field.column, IntColumn):
            return None
        found.append(Column(HEADER + field.offset, signed=field.column.struct_code == "q"))
    return found


def _encoding(shown: ast.expr) -> str:
    # The source of the bytes of a text.
    return f"({ast.unparse(shown)}).encode('utf-8', 'backslashreplace')"


def _value_names(layout: RecordLayout, ranks: list[int]) -> list[str]:
    # The names of the values that _record_code() unpacks.
    names = [_name(rank) for rank in (_TIME, _CLOCK) if rank in ranks]
    for number, field in enumerate(layout.fields):
        names += [f"length{number}"] if field.column.prefix_size else []
        names += [f"value{number}"] if field.column.stored else []
    return names


def _name(rank: int) -> str:
    return f"value{rank - _FIELDS}" if rank >= _FIELDS else ("time", "clock", "key")[rank]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _escaped(text: str) -> bytes:
    # A literal of a template.
    return _encoded(text).replace(b"%", b"%%")
