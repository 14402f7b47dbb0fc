"""Typed data as Python values for JSON, and as one short line.

Both are made of functions that are built once per type. JSON: structures are objects (the members
of anonymous ones stand in their parent), arrays of ``char`` strings up to their NUL, enumerators
their names, pointers numbers. The short line hides what is zero and leaves out the types.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from usdt.base.errors import BtfError
from usdt.btf.format import Encoding
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.traits import flag_names, is_char
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    Float,
    FunctionProto,
    Int,
    Member,
    Pointer,
    Type,
    Void,
)
from usdt.btf.values.limits import TypeLimits
from usdt.btf.values.scalars import flags_text, sign_extended
from usdt.btf.values.variants import variant_line, variant_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

    #: Of the data and the place of a value in it.
    Reader: TypeAlias = Callable[[bytes, int], Any]
    #: None if the value is zero.
    Writer: TypeAlias = Callable[[bytes, int], str | None]
    Lookup: TypeAlias = Callable[[int], str | None]

__all__ = ("CompactFormatter", "ValueReader")

_FLOATS = {4: "f", 8: "d"}


class ValueReader:
    """Reads values of any type; keeps the functions it made."""

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self._little = btf.order == "little"
        self._measure = TypeLimits(btf)
        self._made: dict[int, Reader] = {}

    def read(self, number: int, data: bytes) -> Any:
        """A value as dicts, lists, strings, numbers and booleans; None where data ends too early.

        Raises:
            BtfError: the type is absurd or has no values.
        """
        self._measure.extent(number)
        return self.reader(number)(data, 0)

    def reader(self, number: int) -> Reader:
        """The function for a type."""
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._make(number)
        return made

    def _make(self, number: int) -> Reader:
        found = self._btf.resolve(number)
        choice = tagged_union_of(self._btf, found)
        if choice is not None:
            return variant_value(choice, self._btf, self.reader)
        if isinstance(found, Composite):
            return self._composite(found)
        if isinstance(found, Array):
            return self._array(found)
        if isinstance(found, Enum):
            return self._enum(found)
        if isinstance(found, Int):
            return self._integer(found)
        if isinstance(found, Float):
            return self._float(found)
        if isinstance(found, Pointer):
            return self._number(self._btf.pointer_size, signed=False)
        raise BtfError(f"{self._btf.name}: BTF type {number} has no values")

    def _number(self, size: int, *, signed: bool) -> Reader:
        order = "little" if self._little else "big"

        def read(data: bytes, at: int) -> int | None:
            raw = data[at : at + size]
            if len(raw) < size:
                return None
            return int.from_bytes(raw, "little" if order == "little" else "big", signed=signed)

        return read

    def _integer(self, found: Int) -> Reader:
        number = self._number(found.size, signed=found.signed)
        if not found.encoding & Encoding.BOOL:
            return number

        def read(data: bytes, at: int) -> bool | None:
            value = number(data, at)
            return None if value is None else bool(value)

        return read

    def _float(self, found: Float) -> Reader:
        code = _FLOATS.get(found.size)
        if code is None:
            return lambda data, at: data[at : at + found.size].hex() or None
        layout = struct.Struct(("<" if self._little else ">") + code)
        size = found.size

        def read(data: bytes, at: int) -> float | str | None:
            if len(data) < at + size:
                return None
            value: float = layout.unpack_from(data, at)[0]
            return value if value - value == 0 else str(value)  # JSON has no infinity

        return read

    def _enum(self, found: Enum) -> Reader:
        return _named(found, self._number(found.size, signed=found.signed))

    def _array(self, found: Array) -> Reader:
        size, count = self._btf.size_of(found.type_id), found.count
        if is_char(self._btf.resolve(found.type_id)):
            return lambda data, at: _text(data[at : at + count])
        element = self.reader(found.type_id)
        places = [size * index for index in range(count)]
        return lambda data, at: [element(data, at + place) for place in places]

    def _composite(self, found: Composite) -> Reader:
        parts = [(member.name, *self.member(member)) for member in found.members]

        def read(data: bytes, at: int) -> dict[str, Any]:
            values: dict[str, Any] = {}
            for name, byte, part in parts:
                value = part(data, at + byte)
                if name:
                    values[name] = value
                elif isinstance(value, dict):
                    values.update(value)
            return values

        return read

    def member(self, member: Member) -> tuple[int, Reader]:
        """Where a member is in its parent, and how it is read."""
        byte, bit = divmod(member.bit_offset, 8)
        found = self._btf.resolve(member.type_id)
        if not member.bitfield_size or not isinstance(found, Int | Enum):
            return byte, self.reader(member.type_id)
        bits = member.bitfield_size
        size = (bit + bits + 7) // 8
        whole = self._number(size, signed=False)
        shift = bit if self._little else 8 * size - bit - bits

        def read(data: bytes, at: int) -> int | bool | None:
            value: int | None = whole(data, at)
            if value is None:
                return None
            value = value >> shift & (1 << bits) - 1
            return sign_extended(value, bits) if found.signed else value

        if isinstance(found, Enum):
            return byte, _named(found, read)
        if found.encoding & Encoding.BOOL:
            return byte, lambda data, at: None if (v := read(data, at)) is None else bool(v)
        return byte, read


def _named(found: Enum, number: Reader) -> Reader:
    names: dict[int, str] = {}
    for one in found.values:
        names.setdefault(one.value, one.name)

    def read(data: bytes, at: int) -> int | str | None:
        value: int | None = number(data, at)
        return None if value is None else names.get(value, value)

    return read


def _text(raw: bytes) -> str | None:
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape") if raw else None


class CompactFormatter:
    """Values as one line: ``{len=84, dev="lo", flags=A|B, fn=tcp_v4_rcv}``.

    Args:
        btf: the types.
        symbol: name of an address, or None; asked for every pointer, or those to code alone.
        string: text at an address, or None; asked for pointers to ``char``.
        most: elements of an array that are shown.
        code: whether only functions and what ``void *`` points at have names.
        once: whether few values are shown, for which making code does not pay.
    """

    def __init__(
        self,
        btf: Btf,
        *,
        symbol: Lookup | None = None,
        string: Lookup | None = None,
        most: int = 16,
        code: bool = False,
        once: bool = False,
    ) -> None:
        self._btf = btf
        self._symbol = symbol
        self._string = string
        self._most = most
        self._code = code
        self._once = once
        self._values = ValueReader(btf)
        self._measure = TypeLimits(btf)
        self._made: dict[int, Writer] = {}

    def line(self, number: int, data: bytes) -> str:
        """A value as text without line ends.

        Raises:
            BtfError: the type is absurd or has no values.
        """
        self._measure.extent(number)
        text = self.writer(number)(data, 0)
        if text is None:
            found = self._btf.resolve(number)
            return "{}" if isinstance(found, Composite) else "[]" if _is_list(found) else "0"
        return text

    def writer(self, number: int) -> Writer:
        """The function for a type."""
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._make(number)
        return made

    def _make(self, number: int) -> Writer:
        found = self._btf.resolve(number)
        choice = tagged_union_of(self._btf, found)
        if choice is not None:
            return variant_line(choice, self._btf, self._values.reader, self.writer)
        if isinstance(found, Composite):
            return self._composite(found)
        if isinstance(found, Array) and not is_char(self._btf.resolve(found.type_id)):
            return self._array(found)
        return self._scalar(found, self._values.reader(number))

    def _scalar(self, found: Type, read: Reader) -> Writer:
        if isinstance(found, Pointer):
            return self._pointer(found, read)
        flags = flag_names(found) if isinstance(found, Enum) else None
        every = found.values if isinstance(found, Enum) else ()
        zeroes = {one.name for one in every if not one.value}

        def write(data: bytes, at: int) -> str | None:
            value = read(data, at)
            if not value or value in zeroes:
                return "?" if value is None and not isinstance(found, Array) else None
            if isinstance(found, Array):
                return json.dumps(value, ensure_ascii=False)
            if flags and isinstance(value, int):
                return flags_text(flags, value)
            return str(value).lower() if isinstance(value, bool) else str(value)

        return write

    def _pointer(self, found: Pointer, read: Reader) -> Writer:
        shown = self.shown(found) or hex

        def write(data: bytes, at: int) -> str | None:
            address = read(data, at)
            if not address:
                return "?" if address is None else None
            return shown(address)

        return write

    def shown(self, found: Pointer) -> Callable[[int], str] | None:
        """What shows addresses that are not NULL; None: they are numbers."""
        target = self._btf.resolve(found.type_id)
        string = self._string if is_char(target) else None
        code = isinstance(target, FunctionProto)
        named = self._symbol if code or not self._code or isinstance(target, Void) else None
        if string is None and named is None:
            return None

        def show(address: int) -> str:
            if string is not None and (text := string(address)) is not None:
                return json.dumps(text, ensure_ascii=False)
            name = named(address) if named else None
            if name:
                return name if code else f"&{name}"
            return f"{address:#x}"

        return show

    def _array(self, found: Array) -> Writer:
        element = self.writer(found.type_id)
        size, count, most = self._btf.size_of(found.type_id), found.count, self._most
        empty = "{}" if isinstance(self._btf.resolve(found.type_id), Composite) else "0"
        end = size * count

        def write(data: bytes, at: int) -> str | None:
            if not data[at : at + end].strip(b"\0"):
                return None if at < len(data) or not end else "?"
            texts = [element(data, at + size * index) for index in range(min(count, most))]
            more = ", …" if count > most else ""
            return f"[{', '.join(text or empty for text in texts)}{more}]"

        return write

    def _composite(self, found: Composite) -> Writer:
        parts = [(member.name, *self._member(member)) for member in found.members]

        def write(data: bytes, at: int) -> str | None:
            texts = []
            for name, byte, part in parts:
                text = part(data, at + byte)
                if text is not None:
                    texts.append(f"{name}={text}" if name else _within(text))
            return f"{{{', '.join(texts)}}}" if texts else None

        return write if self._once else self._compiled(found, write)

    def _compiled(self, found: Composite, cut: Writer) -> Writer:
        # Data that ends within the structure is for ``cut``.
        from usdt.btf.values.compact_codegen import CompactCodegen  # noqa: PLC0415 - not for JSON

        size = found.size
        one_line = CompactCodegen(self._btf, self)
        whole = one_line.function(found)
        if one_line.extent > size:  # members beyond the end: damage
            return cut
        return lambda data, at: (whole if len(data) - at >= size else cut)(data, at)

    def _member(self, member: Member) -> tuple[int, Writer]:
        found = self._btf.resolve(member.type_id)
        if member.bitfield_size and isinstance(found, Int | Enum):
            byte, read = self._values.member(member)
            return byte, self._scalar(found, read)
        return member.bit_offset // 8, self.writer(member.type_id)


def _is_list(found: Type) -> bool:
    return isinstance(found, Array)


def _within(text: str) -> str:
    # What a structure without a name has; or a bit field without one.
    return text[1:-1] if text.startswith("{") else text
