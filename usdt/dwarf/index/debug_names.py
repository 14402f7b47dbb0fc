"""``.debug_names``: which units have a name (DWARF 5, section 6.1.1).

clang writes a table for each unit, and only newer linkers merge them; gdb-add-index writes one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.text import encoded
from usdt.dwarf.units.constants import TYPE_KINDS
from usdt.dwarf.units.errors import MalformedDwarf
from usdt.dwarf.units.forms import UnitEncoding, read_form, read_uleb128

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.sections import SectionBytes

__all__ = ("DebugNames",)

_MAX_TABLES = 1 << 16
_MAX_ENTRIES = 1 << 12  # of one name in one table
_MAX_CHAIN = 1 << 12  # names of one bucket that are looked at
_MAX_DECLARATIONS = 1 << 10  # in one table
_MAX_TABLE_BYTES = 1 << 16  # of abbreviations
_MAX_ENTRY = 256  # bytes
_UNIT_INDEX, _TYPE_UNIT_INDEX = 1, 2  # DW_IDX_compile_unit, DW_IDX_type_unit

_Declaration = tuple[int, list[tuple[int, int]]]  # tag; attributes and their forms


class DebugNames:
    """The tables of one file.

    Args:
        data: ``.debug_names``.
        strings: ``.debug_str``.
        byteorder: "little" or "big".
    """

    def __init__(self, data: SectionBytes, strings: SectionBytes, byteorder: str) -> None:
        self._strings = strings
        self._tables = list(_tables(data, UnitEncoding(byteorder, 8, 4, 5)))

    def types(self, name: str) -> Iterator[int]:
        """Yield the positions in ``.debug_info`` of the units that have a type of a name.

        Args:
            name: a qualified name, which gdb writes. Of those that end alike, all are yielded:
                compilers write the last part.

        Raises:
            DwarfError: a table is damaged.
            LookupError: likewise.
            struct.error: likewise.
        """
        if not name.isascii():
            return  # the hash needs Unicode's folding of case
        for spelling in dict.fromkeys((name, name.rpartition("::")[2])):
            text = encoded(spelling)
            number = _hash(text)
            for table in self._tables:
                yield from table.types(text + b"\0", number, self._strings)


def _tables(data: SectionBytes, plain: UnitEncoding) -> Iterator[_Table]:
    at = 0
    for _ in range(_MAX_TABLES):
        if at >= len(data):
            return
        length, start, size = plain.number(data, at, 4), at + 4, 4
        if length == 0xFFFFFFFF:
            length, start, size = plain.number(data, start, 8), start + 8, 8
        at = start + length
        if at > len(data):
            raise MalformedDwarf(".debug_names with a table that ends outside")
        yield _Table(data, start, at, UnitEncoding(plain.byteorder, 8, size, 5))
    raise MalformedDwarf(f".debug_names with more than {_MAX_TABLES} tables")


class _Table:
    def __init__(self, data: SectionBytes, start: int, end: int, encoding: UnitEncoding) -> None:
        self._data = data
        self._encoding = encoding
        version = encoding.number(data, start, 2)
        if version != 5:
            raise MalformedDwarf(f".debug_names of version {version}; 5 is read")
        counts = [encoding.number(data, start + 4 + 4 * number, 4) for number in range(7)]
        units, type_units, foreign, buckets, names, abbreviations, augmentation = counts
        size = encoding.offset_size
        self._units = start + 32 + (augmentation + 3 & ~3)
        self._buckets = self._units + size * (units + type_units) + 8 * foreign
        self._hashes = self._buckets + 4 * buckets
        self._offsets = self._hashes + (4 * names if buckets else 0)
        self._entries = self._offsets + size * names
        self._abbreviations = self._entries + size * names
        self._pool = self._abbreviations + abbreviations
        self._end = end
        if self._pool > end:
            raise MalformedDwarf(".debug_names with more names than bytes")
        self._unit_count, self._bucket_count, self._name_count = units, buckets, names
        self._declarations: dict[int, _Declaration] | None = None

    def types(self, name: bytes, number: int, strings: SectionBytes) -> Iterator[int]:
        """Yield the positions of the units with types of a name, which ends with NUL."""
        size, number_at = self._encoding.offset_size, self._encoding.number
        for index in self._indexes(number):
            at = number_at(self._data, self._offsets + size * index, size)
            if bytes(strings[at : at + len(name)]) == name:
                entry = number_at(self._data, self._entries + size * index, size)
                yield from self._units_of(self._pool + entry)

    def _indexes(self, number: int) -> Iterator[int]:
        # The numbers of the names with a hash. Without buckets there are no hashes.
        if not self._bucket_count:
            return
        bucket = number % self._bucket_count
        first = self._encoding.number(self._data, self._buckets + 4 * bucket, 4)
        end = min(self._name_count, first - 1 + _MAX_CHAIN)
        for index in range(first - 1, end) if first else ():
            found = self._encoding.number(self._data, self._hashes + 4 * index, 4)
            if found % self._bucket_count != bucket:
                return
            if found == number:
                yield index

    def _units_of(self, at: int) -> Iterator[int]:
        # The units of the entries at a position: those of types only.
        if self._declarations is None:
            self._declarations = self._read_declarations()
        for _ in range(_MAX_ENTRIES):
            raw = bytes(self._data[at : min(at + _MAX_ENTRY, self._end)])
            code, position = read_uleb128(raw, 0)
            if not code:
                return
            tag, attributes = self._declarations[code]
            index = 0 if self._unit_count == 1 else None
            for name, form in attributes:
                value, position = read_form(raw, position, form, 0, self._encoding)
                if name == _UNIT_INDEX:
                    index = value.value
                elif name == _TYPE_UNIT_INDEX:
                    index = None
            at += position
            if tag in TYPE_KINDS and index is not None and index < self._unit_count:
                size = self._encoding.offset_size
                yield self._encoding.number(self._data, self._units + size * index, size)

    def _read_declarations(self) -> dict[int, _Declaration]:
        found: dict[int, _Declaration] = {}
        end = min(self._pool, self._abbreviations + _MAX_TABLE_BYTES)
        raw, at = bytes(self._data[self._abbreviations : end]), 0
        while len(found) < _MAX_DECLARATIONS:
            code, at = read_uleb128(raw, at)
            if not code:
                return found
            tag, at = read_uleb128(raw, at)
            attributes: list[tuple[int, int]] = []
            name = form = -1
            while name or form:
                name, at = read_uleb128(raw, at)
                form, at = read_uleb128(raw, at)
                if name or form:
                    attributes.append((name, form))
            found.setdefault(code, (tag, attributes))
        raise MalformedDwarf(f".debug_names with more than {_MAX_DECLARATIONS} abbreviations")


def _hash(name: bytes) -> int:
    # The one of Bernstein, of the name in lower case.
    number = 5381
    for byte in name.lower():
        number = number * 33 + byte & 0xFFFFFFFF
    return number
