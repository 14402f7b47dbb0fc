"""The layout of records, and its form in recordings.

A program writes this record into the ring buffer, and :mod:`usdt.engine.output.decode` reads it:

    0    u64   time, CLOCK_MONOTONIC nanoseconds
    8    u32   thread ID
    12   u32   process ID
    16   u32   CPU
    20   u32   number of the variant, which identifies the probe and the plan
    24   char  comm[16]
    40   u64   bitmap, only if a value may be unreadable: bit n = output n was not readable
    …          outputs, each padded to eight bytes

The record of a span (:class:`SpanLayout`) has a bitmap, the duration after it, and then the outputs
of both ends.

An s64, the length prefix (:mod:`usdt.engine.compiler.record.length_prefix`), precedes a string,
buffer, array, structure or stack. Between it and a structure is the structure's address.

A :class:`RecordLayout` contains no expressions, so it can be written into a recording and read on
another machine. A layout from a recording is checked as untrusted input, because the decoder
compiles code from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from usdt.arch.locations import ValueClass, ValueType
from usdt.arch.unwinding import STACK_UNIT
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.btf.values.type_snapshot import TypeSnapshot
from usdt.cgroups.labels import CgroupName
from usdt.cpython.stack_record import SLOT_SIZE
from usdt.engine.compiler.limits import MAX_OUTPUTS, MAX_READ
from usdt.engine.compiler.record.columns import (
    WORD,
    ArrayColumn,
    BufferColumn,
    BytesColumn,
    CgroupColumn,
    Column,
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
    StructForm,
    StructListColumn,
    SymbolColumn,
    SymbolKind,
    UnavailableColumn,
    padded,
)
from usdt.engine.compiler.value_names import ValueNames
from usdt.engine.language.tree import MAX_FRAMES, StackKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = (
    "DURATION_OFFSET",
    "END_BIT",
    "HEADER_SIZE",
    "BadLayout",
    "RecordField",
    "RecordLayout",
    "SpanLayout",
)

HEADER_SIZE = 40
DURATION_OFFSET = HEADER_SIZE + WORD  # in the record of a span, which has a bitmap
T = TypeVar("T")
END_BIT = 62  # the bit of a span's first value of its end; the others are below it
_MAX_TEXT = 1 << 16  # characters of a key or a reason
_MAX_RECORD = 1 << 30  # bytes: the ring buffer's own limit
_POINTER = ValueType(ValueClass.UNSIGNED, 8)


class BadLayout(TracingError, ValueError):  # noqa: N818 - named for the condition
    """A record layout that no plan can have."""


@frozen
class RecordField:
    """One value of a record.

    Attributes:
        key: the item as written, without unnecessary blanks.
        column: how it is stored and shown.
        offset: byte offset in the record, of the length prefix if it has one; None if it is not
            stored.
        may_fault: whether its bit in the bitmap of unreadable values can be set.
        reason: why it may be unreadable.
    """

    key: str
    column: Column
    offset: int | None = None
    may_fault: bool = False
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object; the keys are part of the format of recordings."""
        column = self.column
        form, kind, reason = _described(column)
        members: dict[str, Any] = {
            "key": self.key,
            "form": form,
            "kind": kind.kind.value,
            "bytes": kind.size,
            "offset": -1 if self.offset is None else self.offset,
            "size": column.size,
            "fallible": self.may_fault,
            "reason": self.reason if self.may_fault else reason,
        }
        if isinstance(column, IntColumn) and column.names is not None:
            members["names"] = column.names.to_json()
        if isinstance(column, IntColumn) and column.part_of:
            members["part_of"] = column.part_of
        if isinstance(column, StackColumn | StackCopyColumn) and column.frames != MAX_FRAMES:
            members["frames"] = column.frames
        if isinstance(column, StructColumn | StructListColumn):
            members["shape"] = column.shape.to_json()
        if isinstance(column, IntColumn | FloatColumn | BytesColumn) and column.cast:
            members["cast"] = column.cast
        return members

    @classmethod
    def from_json(cls, data: Any) -> RecordField:
        """Return the field that to_json() has made ``data`` from.

        Raises:
            BadLayout: to_json() cannot have made ``data``.
        """
        members = _members(data, "field")
        key, form = _text(members, "key"), _text(members, "form")
        reader = _READERS.get(form)
        if reader is None:
            raise BadLayout(f"field {key!r}: form {form!r} is not known to this version")
        offset = _number(members, "offset", -1, _MAX_RECORD)
        column = reader(members)
        if column is None or (offset >= 0) is not column.stored:
            raise BadLayout(f"field {key!r}: no {form} can be like this")
        may_fault = _flag(members, "fallible")
        reason = _text(members, "reason") if may_fault else ""
        return cls(key, column, offset if column.stored else None, may_fault, reason)


def _described(column: Column) -> tuple[str, ValueType, str]:
    # Return the values of "form", "kind" with "bytes", and "reason" in recordings.
    match column:
        case IntColumn():
            return column.format.value, column.type, ""
        case SymbolColumn():
            return column.kind.value, column.type, ""
        case CgroupColumn():
            return column.kind.value, _POINTER, ""
        case FloatColumn():
            return "float", ValueType(ValueClass.FLOAT, column.width), ""
        case BytesColumn():
            return "bytes", ValueType(ValueClass.BYTES, column.length), ""
        case StringColumn():
            return "string", _POINTER, "k" if column.kernel else ""
        case BufferColumn():
            return "buffer", _POINTER, ""
        case SocketAddressColumn():
            return "sockaddr", _POINTER, ""
        case ArrayColumn():
            return "array", _POINTER, column.element_code
        case StructColumn():
            flags = ("*" if column.by_pointer else "") + ("k" if column.kernel else "")
            return "typed", _POINTER, flags + column.form.value
        case StructListColumn():
            return "typed", _POINTER, "v"
        case StackColumn():
            return column.kind.value, _POINTER, ""
        case StackCopyColumn():
            return "stack_copy", ValueType(ValueClass.BYTES, column.registers), ""
        case CommColumn():
            return "comm", _POINTER, ""
        case ConstColumn():
            return "func", _POINTER, column.text
        case UnavailableColumn():
            return "opaque", _POINTER, column.reason
        case _:
            assert_never(column)


# Each reader returns None for members that no column of its kind can have.


def _int(members: dict[str, Any]) -> Column | None:
    kind = _type(members)
    is_integer = kind.kind in (ValueClass.SIGNED, ValueClass.UNSIGNED)
    if not is_integer or kind.size not in (1, 2, 4, 8) or _size(members) != WORD:
        return None
    names = None
    if "names" in members:
        names = ValueNames.from_json(members["names"], BadLayout)
    part_of = _number(members, "part_of", kind.size + 1, MAX_READ) if "part_of" in members else 0
    return IntColumn(kind, IntFormat(members["form"]), names, _cast(members), part_of)


def _symbol(members: dict[str, Any]) -> Column | None:
    plain = _int({**members, "form": "integer"})
    if not isinstance(plain, IntColumn):
        return None
    return SymbolColumn(plain.type, SymbolKind(members["form"]))


def _cgroup(members: dict[str, Any]) -> Column | None:
    return CgroupColumn(CgroupName(members["form"])) if _size(members) == WORD else None


def _float(members: dict[str, Any]) -> Column | None:
    kind = _type(members)
    if kind.kind is not ValueClass.FLOAT or kind.size not in (4, 8) or _size(members) != WORD:
        return None
    return FloatColumn(kind.size, _cast(members))


def _bytes(members: dict[str, Any]) -> Column | None:
    kind = _type(members)
    if kind.kind is not ValueClass.BYTES or not 0 < kind.size <= _size(members):
        return None
    column = BytesColumn(kind.size, _cast(members))
    return column if column.size == _size(members) else None


def _string(members: dict[str, Any]) -> Column | None:
    size = _size(members)
    kernel = not _flag(members, "fallible") and bool(_text(members, "reason"))
    return StringColumn(size, kernel) if size else None


def _buffer(members: dict[str, Any]) -> Column:
    return BufferColumn(_size(members))


def _socket_address(members: dict[str, Any]) -> Column:
    return SocketAddressColumn(_size(members))


def _array(members: dict[str, Any]) -> Column | None:
    code = _text(members, "reason")
    return ArrayColumn(_size(members), code) if code in set("bBhHiIqQ") else None


def _typed(members: dict[str, Any]) -> Column | None:
    if "shape" not in members:
        return None
    shape = TypeSnapshot.from_json(members["shape"], BadLayout)
    capacity, flags = _size(members) - WORD, _text(members, "reason")
    if not 0 < capacity <= min(shape.size, MAX_READ):
        return None
    if "v" in flags:
        return StructListColumn(shape, capacity)
    form = StructForm("".join(flag for flag in flags if flag in "ls")[:1])
    return StructColumn(shape, capacity, "*" in flags, "k" in flags, form)


def _stack(members: dict[str, Any]) -> Column | None:
    size = _size(members)
    kind = StackKind(members["form"])
    if size <= 0 or size % (SLOT_SIZE if kind is StackKind.PYTHON else WORD):
        return None
    return StackColumn(kind, size, _frames(members))


def _frames(members: dict[str, Any]) -> int:
    return _number(members, "frames", 1, MAX_FRAMES) if "frames" in members else MAX_FRAMES


def _stack_copy(members: dict[str, Any]) -> Column | None:
    size, registers = _size(members), _type(members).size
    stack = size - registers
    if registers % WORD or not 0 < registers <= MAX_READ or stack <= 0 or stack % STACK_UNIT:
        return None
    return StackCopyColumn(registers, stack, _frames(members))


_READERS: dict[str, Callable[[dict[str, Any]], Column | None]] = {
    "integer": _int,
    "bool": _int,
    "hex": _int,
    **{kind.value: _symbol for kind in SymbolKind},
    "float": _float,
    "bytes": _bytes,
    "string": _string,
    "buffer": _buffer,
    "sockaddr": _socket_address,
    "array": _array,
    "typed": _typed,
    **{kind.value: _stack for kind in StackKind},
    "stack_copy": _stack_copy,
    **dict.fromkeys([kind.value for kind in CgroupName], _cgroup),
    "comm": lambda _: CommColumn(),
    "func": lambda members: ConstColumn(_text(members, "reason")),
    "opaque": lambda members: UnavailableColumn(_text(members, "reason")),
}


@frozen
class SpanLayout:
    """What a record of a span has in addition: it is of two hits.

    Attributes:
        end_probe: the probe that ended it; "" for a span that has not ended.
        starts: the number of fields that were taken at the start. They follow the first field,
            which is the duration.
    """

    end_probe: str
    starts: int

    def halves(self, fields: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
        """Return the fields of the start and those of the end, of all fields of a record."""
        return fields[1 : 1 + self.starts], fields[1 + self.starts :]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"end_probe": self.end_probe, "starts": self.starts}

    @classmethod
    def from_json(cls, data: Any, fields: tuple[RecordField, ...]) -> SpanLayout:
        """Return the value that to_json() has made ``data`` from.

        Raises:
            BadLayout: to_json() cannot have made ``data``, or a record of ``fields`` is no span.
        """
        members = _members(data, "span")
        first = fields[0] if fields else None
        if first is None or first.offset != DURATION_OFFSET or first.may_fault:
            raise BadLayout("span: a duration expected as the first field")
        if not isinstance(first.column, IntColumn) or first.column.names is not None:
            raise BadLayout("span: a duration is a number")
        return cls(_text(members, "end_probe"), _number(members, "starts", 0, len(fields) - 1))


@frozen
class RecordLayout:
    """The layout of a record. Hashable: plans with equal layouts share a decoder.

    Attributes:
        size: bytes of the record, without the ring buffer's header.
        bitmap_offset: byte offset of the bitmap of unreadable values, or None.
        fields: the values in the order in which they are shown, which is that of their offsets.
        returns: whether its records are of a function's return.
        result: for whole system calls: index of the field with the result, before which are the
            arguments; else None.
        span: for records of spans, whose time and process are those of the start; else None.
    """

    size: int
    bitmap_offset: int | None
    fields: tuple[RecordField, ...]
    returns: bool = False
    result: int | None = None
    span: SpanLayout | None = None

    def bit(self, index: int) -> int:
        """Return the bit of a field in the bitmap of unreadable values."""
        if self.span is None or index <= self.span.starts:
            return index
        return END_BIT - (index - 1 - self.span.starts)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        fields = [field.to_json() for field in self.fields]
        marks = -1 if self.bitmap_offset is None else self.bitmap_offset
        members: dict[str, Any] = {"size": self.size, "marks": marks, "fields": fields}
        if self.returns:
            members["returns"] = True
        if self.result is not None:
            members["result"] = self.result
        if self.span is not None:
            members["span"] = self.span.to_json()
        return members

    @classmethod
    def from_json(cls, data: Any) -> RecordLayout:
        """Return the layout that to_json() has made ``data`` from.

        Raises:
            BadLayout: to_json() cannot have made ``data``.
        """
        members = _members(data, "layout")
        size = _number(members, "size", HEADER_SIZE, _MAX_RECORD)
        marks = _number(members, "marks", -1, HEADER_SIZE)
        given = members.get("fields")
        if not isinstance(given, list) or len(given) > MAX_OUTPUTS:
            raise BadLayout(f"layout: a list of at most {MAX_OUTPUTS} fields expected")
        fields = tuple(RecordField.from_json(item) for item in given)
        if size % WORD or marks not in (-1, HEADER_SIZE):
            raise BadLayout(f"layout: a record of {size} bytes with marks at {marks}")
        if "span" not in members and len({field.key for field in fields}) < len(fields):
            raise BadLayout("layout: one key is shown twice")
        end = HEADER_SIZE + (WORD if marks >= 0 else 0)
        for field in fields:
            if field.may_fault and marks < 0:
                raise BadLayout(f"field {field.key!r}: fallible, but the record has no bitmap")
            end = _end(field, end)
        if end > size:
            raise BadLayout(f"layout: {end} bytes of values in a record of {size}")
        returns = "returns" in members and _flag(members, "returns")
        result = _number(members, "result", 0, len(fields) - 1) if "result" in members else None
        span = SpanLayout.from_json(members["span"], fields) if "span" in members else None
        return cls(size, None if marks < 0 else marks, fields, returns, result, span)


def _end(field: RecordField, start: int) -> int:
    # Return the offset after a field, which must not begin before ``start``.
    if field.offset is None:
        return start
    if field.offset < start or field.offset % WORD:
        raise BadLayout(f"field {field.key!r}: offset {field.offset} is not behind {start}")
    return field.offset + field.column.prefix_size + padded(field.column.size)


def _members(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise BadLayout(f"{what}: an object expected, found {type(data).__name__}")
    return data


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise BadLayout(f"{name}: a string expected")
    return value


def _number(members: dict[str, Any], name: str, low: int, high: int) -> int:
    value = members.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadLayout(f"{name}: a number from {low} to {high} expected")
    return value


def _flag(members: dict[str, Any], name: str) -> bool:
    value = members.get(name)
    if not isinstance(value, bool):
        raise BadLayout(f"{name}: true or false expected")
    return value


def _size(members: dict[str, Any]) -> int:
    return _number(members, "size", 0, WORD + MAX_READ)


def _cast(members: dict[str, Any]) -> str:
    return _text(members, "cast") if "cast" in members else ""


def _type(members: dict[str, Any]) -> ValueType:
    try:
        kind = ValueClass(members.get("kind"))
    except ValueError as err:
        raise BadLayout("kind: not a value class") from err
    return ValueType(kind, _number(members, "bytes", 0, MAX_READ))
