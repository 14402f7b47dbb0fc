"""Values as Python objects for JSON, read by functions that are built once per type.

Structures are dicts (the members of anonymous ones are in their parent's), arrays of ``char`` are
strings up to their NUL, enumerators are their names, and pointers are numbers. These functions
also read data that ends too early; :mod:`usdt.btf.values.json_codegen` is faster and does not.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeAlias

from usdt.base.errors import BtfError
from usdt.btf.format import Encoding
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import (
    Array,
    Composite,
    Enum,
    Float,
    Int,
    Member,
    Pointer,
    is_char,
)
from usdt.btf.values.limits import TypeLimits
from usdt.btf.values.scalars import EnumNames, sign_extended
from usdt.btf.values.variants import variant_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

    #: (data, offset of the value) → the value.
    Reader: TypeAlias = Callable[[bytes, int], Any]

__all__ = ("ValueReader",)

_FLOATS = {4: "f", 8: "d"}


class ValueReader:
    """Reads values of any type; keeps the functions that it builds."""

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self._little = btf.order == "little"
        self._limits = TypeLimits(btf)
        self._made: dict[int, Reader] = {}

    def read(self, type_id: int, data: bytes) -> Any:
        """Return a value as dicts, lists, strings, numbers and booleans.

        What lies behind the end of the data is None.

        Raises:
            BtfError: the type is absurd or has no values.
        """
        self._limits.extent(type_id)
        return self.reader(type_id)(data, 0)

    def reader(self, type_id: int) -> Reader:
        """Return the function that reads values of a type."""
        made = self._made.get(type_id)
        if made is None:
            made = self._made[type_id] = self._make(type_id)
        return made

    def _make(self, type_id: int) -> Reader:
        found = self._btf.resolve(type_id)
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
        raise BtfError(f"{self._btf.name}: BTF type {type_id} has no values")

    def _number(self, size: int, *, signed: bool) -> Reader:
        order = "little" if self._little else "big"

        def read(data: bytes, at: int) -> int | None:
            raw = data[at : at + size]
            if len(raw) < size:
                return None
            return int.from_bytes(raw, "little" if order == "little" else "big", signed=signed)

        return read

    def _integer(self, found: Int) -> Reader:
        read_value = self._number(found.size, signed=found.signed)
        if not found.encoding & Encoding.BOOL:
            return read_value

        def read(data: bytes, at: int) -> bool | None:
            value = read_value(data, at)
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
        """Return a member's offset in its parent, in bytes, and the function that reads it."""
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


def _named(found: Enum, read_value: Reader) -> Reader:
    names = EnumNames(found)

    def read(data: bytes, at: int) -> int | str | None:
        value: int | None = read_value(data, at)
        return None if value is None else names[value]

    return read


def _text(raw: bytes) -> str | None:
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape") if raw else None
