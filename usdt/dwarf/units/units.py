"""Units of debug information: headers, entries, and the strings and ranges they refer to.

A :class:`DebugFile` has the sections of one file, a :class:`Unit` one unit of it. A unit has a view
of its own bytes only, so that no position in it can point outside.
"""

from __future__ import annotations

import bisect
import functools
from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import At, Form, UnitType
from usdt.dwarf.units.forms import (
    ADDRESS_INDEXES,
    ALT_REFERENCES,
    STRING_INDEXES,
    UNIT_REFERENCES,
    AbbreviationTable,
    FormValue,
    MalformedDwarf,
    UnitEncoding,
    read_form,
    read_string,
    read_uleb128,
)
from usdt.dwarf.units.ranges import read_ranges, read_rnglist

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.sections import DebugSections, SectionBytes

__all__ = ("DebugFile", "Entry", "Unit", "UnitHeader")

_MAX_UNITS = 1 << 18
_MAX_UNIT = 256 << 20  # bytes
_MAX_HEADER = 64  # bytes
_MAX_ABBREVIATIONS = 64 << 20  # bytes
_MAX_TABLES = 256  # abbreviation tables in memory
_MAX_PARTIAL = 16  # of which only the beginning is read; for more, the section is
_MAX_KEPT = 1 << 12  # units
_OFFSETS = frozenset((Form.DATA1, Form.DATA2, Form.DATA4, Form.DATA8, Form.UDATA))
_MAX_HOPS = 16  # references from an entry to the one with its name


class UnitHeader:
    """The header of a unit.

    Attributes:
        at: its position in ``.debug_info``.
        end: the position after the unit.
        first: the position of its first entry, counted from ``at``.
        kind: ``DW_UT_…`` (:class:`UnitType`); COMPILE before version 5.
        abbreviations: the position of its abbreviation table.
        encoding: the encoding of its numbers.
        dwo_id: the DWO ID of a split unit or a skeleton in version 5; else None.
    """

    __slots__ = ("abbreviations", "at", "dwo_id", "encoding", "end", "first", "kind")

    def __init__(self, data: SectionBytes, at: int, byteorder: str) -> None:
        plain = UnitEncoding(byteorder, 8, 4, 0)
        self.at = at
        length, position, size = plain.number(data, at, 4), at + 4, 4
        if length == 0xFFFFFFFF:
            length, position, size = plain.number(data, position, 8), position + 8, 8
        self.end = position + length
        if self.end > len(data) or length < 7:
            raise MalformedDwarf(
                f"a unit at {at:#x} of {length} bytes, of which {len(data) - position} exist"
            )
        version = plain.number(data, position, 2)
        position += 2
        if not 2 <= version <= 5:
            raise MalformedDwarf(f"a unit at {at:#x} of version {version}; 2 to 5 are read")
        self.kind: int = UnitType.COMPILE
        self.dwo_id: int | None = None
        if version >= 5:
            self.kind, address_size = data[position], data[position + 1]
            self.abbreviations = plain.number(data, position + 2, size)
            position += 2 + size
            if self.kind in (UnitType.SKELETON, UnitType.SPLIT_COMPILE):
                self.dwo_id = plain.number(data, position, 8)
                position += 8
            elif self.kind in (UnitType.TYPE, UnitType.SPLIT_TYPE):
                position += 8 + size
        else:
            self.abbreviations = plain.number(data, position, size)
            address_size = data[position + size]
            position += size + 1
        if address_size not in (4, 8):
            raise MalformedDwarf(f"a unit at {at:#x} with addresses of {address_size} bytes")
        self.first = position - at
        self.encoding = UnitEncoding(byteorder, address_size, size, version)


class Entry:
    """A debugging information entry with its attributes.

    Attributes:
        at: its position in the unit.
        end: the position after its attributes.
        abbreviation: its tag and attributes.
        values: ``DW_AT_…`` → raw value.
    """

    __slots__ = ("abbreviation", "at", "end", "values")

    def __init__(self, unit: Unit, at: int) -> None:
        self.at = at
        code, at = read_uleb128(unit.data, at)
        if not code:
            raise MalformedDwarf(f"no entry at {unit.header.at + self.at:#x}")
        self.abbreviation = unit.abbreviations[code]
        self.values: dict[int, FormValue] = {}
        for name, form, constant in self.abbreviation.attributes:
            self.values[name], at = read_form(unit.data, at, form, constant, unit.encoding)
        self.end = at


class Unit:
    """A unit of debug information.

    Attributes:
        file: the file that contains it.
        header: its header.
        encoding: the encoding of its numbers.
        abbreviations: its abbreviation table.
        skeleton: for a split unit, its skeleton unit in the program's own file; else None.
    """

    def __init__(self, file: DebugFile, header: UnitHeader, skeleton: Unit | None = None) -> None:
        size = header.end - header.at
        if size > _MAX_UNIT:
            raise MalformedDwarf(f"a unit of {size} bytes")
        self.file = file
        self.header = header
        self.encoding = header.encoding
        self.skeleton = skeleton
        self.abbreviations = file.abbreviations(header)

    @functools.cached_property
    def data(self) -> bytes | memoryview:
        """Its bytes, including the header."""
        sections = self.file.sections
        found = sections[".debug_info"][self.header.at : self.header.end]
        if isinstance(found, bytes):
            sections.limit_unit_bytes(len(found), self.drop_data)
        return found

    def drop_data(self) -> int:
        """Drop its bytes, which are read again on use; return their number."""
        return len(self.__dict__.pop("data", b""))

    @functools.cached_property
    def root(self) -> Entry:
        """Its first entry."""
        return Entry(self, self.header.first)

    def integer(self, entry: Entry, name: int, default: int | None = None) -> int | None:
        """Return the raw number of an attribute; ``default`` if there is none."""
        raw = entry.values.get(name)
        return default if raw is None else raw.value

    def text(self, entry: Entry, name: int) -> str:
        """Return a string; "" if there is none."""
        raw = entry.values.get(name)
        return "" if raw is None else self.string(raw)

    def string(self, raw: FormValue) -> str:
        """Return the string that an attribute refers to."""
        if raw.form == Form.STRING:
            return read_string(self.data, raw.value)[0]
        if raw.form in STRING_INDEXES:
            return self._indexed_text(raw.value)
        return self.file.text(raw)

    def _indexed_text(self, index: int) -> str:
        size = self.encoding.offset_size
        base = self.integer(self.root, At.STR_OFFSETS_BASE)
        if base is None:
            # In a .dwo file, use the first contribution; GNU's version 4 has no header.
            base = self.file.bases.get("str_offsets", 0)
            if self.encoding.version >= 5:
                base += 8 if size == 4 else 16
        offsets = self.file.sections[".debug_str_offsets"]
        at = self.encoding.number(offsets, base + index * size, size)
        return read_string(self.file.sections[".debug_str"], at)[0]

    def address(self, raw: FormValue) -> int:
        """Return the address of an attribute, which may be an index into ``.debug_addr``."""
        if raw.form in ADDRESS_INDEXES:
            return self.indexed_address(raw.value)
        return raw.value

    def indexed_address(self, index: int) -> int:
        """Return an address of ``.debug_addr``, which is in the program's own file."""
        owner = self.skeleton or self
        size = self.encoding.address_size
        base = owner.integer(owner.root, At.ADDR_BASE)
        if base is None:
            base = owner.integer(owner.root, At.GNU_ADDR_BASE, 0) or 0
        return self.encoding.number(owner.file.sections[".debug_addr"], base + index * size, size)

    def ranges(self, entry: Entry) -> list[tuple[int, int]]:
        """Return the address ranges of an entry's code as (start, end)."""
        listed = entry.values.get(At.RANGES)
        if listed is not None:
            found = self._listed(listed)
        else:
            low, high = entry.values.get(At.LOW_PC), entry.values.get(At.HIGH_PC)
            if low is None or high is None:
                return []
            start = self.address(low)
            is_address = high.form == Form.ADDR or high.form in ADDRESS_INDEXES
            found = [(start, self.address(high) if is_address else start + high.value)]
        # Code that the linker dropped is at 0 or at the highest addresses.
        return [(low, high) for low, high in found if 0 < low < high]

    def entry_address(self, at: int) -> int:
        """Return the address of the code of the function at a position; 0 if it is not known."""
        entry = Entry(self, at)
        for name in (At.ENTRY_PC, At.LOW_PC):
            raw = entry.values.get(name)
            if raw is not None:
                address = self.address(raw)
                is_offset = name == At.ENTRY_PC and raw.form in _OFFSETS
                if not is_offset:
                    return address
        ranges = self.ranges(entry)
        return ranges[0][0] if ranges else 0

    @functools.cached_property
    def base(self) -> int:
        """The base address of its range lists."""
        owner = self.skeleton or self
        low = owner.root.values.get(At.LOW_PC)
        return 0 if low is None else owner.address(low)

    def name(self, at: int) -> str:
        """Return the linkage name of an entry's function if it has one, else its name."""
        unit, found = self, ""
        for _ in range(_MAX_HOPS):
            entry = Entry(unit, at)
            for kind in (At.LINKAGE_NAME, At.MIPS_LINKAGE_NAME):
                if kind in entry.values:
                    return unit.text(entry, kind)
            found = found or unit.text(entry, At.NAME)
            origin = entry.values.get(At.ABSTRACT_ORIGIN) or entry.values.get(At.SPECIFICATION)
            target = None if origin is None else unit.follow(origin)
            if target is None:
                break
            unit, at = target
        return found

    def follow(self, raw: FormValue) -> tuple[Unit, int] | None:
        """Return the entry that a reference leads to: its unit and its position there."""
        if raw.form in UNIT_REFERENCES:
            return self, raw.value
        if raw.form == Form.REF_ADDR:
            return self.file.unit_containing(raw.value)
        if raw.form in ALT_REFERENCES and self.file.alternative is not None:
            return self.file.alternative.unit_containing(raw.value)
        return None

    def _listed(self, raw: FormValue) -> list[tuple[int, int]]:
        if self.encoding.version >= 5:
            data, at = self.file.sections[".debug_rnglists"], self._list_position(raw)
            return read_rnglist(data, at, self.encoding, self.base, self.indexed_address)
        owner = self.skeleton or self
        extra = owner.integer(owner.root, At.GNU_RANGES_BASE, 0) or 0
        at = raw.value + (extra if self.skeleton else 0)
        return read_ranges(owner.file.sections[".debug_ranges"], at, self.encoding, self.base)

    def _list_position(self, raw: FormValue) -> int:
        if raw.form != Form.RNGLISTX:
            return raw.value
        size = self.encoding.offset_size
        base = self.integer(self.root, At.RNGLISTS_BASE)
        if base is None:
            base = self.file.bases.get("rnglists", 0) + (12 if size == 4 else 20)
        data = self.file.sections[".debug_rnglists"]
        return base + self.encoding.number(data, base + raw.value * size, size)


class DebugFile:
    """The debug information of one file.

    Args:
        sections: the debug sections of the file.
        alternative: the file to which dwz moved shared entries (``.gnu_debugaltlink``), or None.

    Attributes:
        bases: for a unit in a package (``.dwp``): section → start of the unit's part.
        damage: the damage of the headers, known after they were read; "" if there is none.
    """

    def __init__(self, sections: DebugSections, alternative: DebugFile | None = None) -> None:
        self.sections = sections
        self.alternative = alternative
        self.byteorder = sections.elf.byteorder
        self.bases: dict[str, int] = {}
        self.damage = ""
        self._tables: dict[tuple[int, UnitEncoding], AbbreviationTable] = {}
        self._units: dict[int, Unit] = {}
        self._headers: list[UnitHeader] = []  # those that were read so far
        self._starts: list[int] = []  # their positions
        self._following = 0  # the position of the next one
        self._noted: dict[int, UnitHeader] = {}  # by number, of those that were not reached

    def close(self) -> None:
        """Drop the sections; the caller closes the ELF file."""
        self._units.clear()
        self._tables.clear()
        self.sections.close()

    @property
    def headers(self) -> list[UnitHeader]:
        """The header of every unit, in order, up to the first damaged one."""
        self._read_headers(len(self.sections[".debug_info"]))
        return self._headers

    def each_header(self) -> Iterator[UnitHeader]:
        """Yield every header; a compressed section is decompressed no further than the next one."""
        number = 0
        while True:
            if number == len(self._headers):
                self._read_headers(self._following + 1)
                if number == len(self._headers):
                    return
            yield self._headers[number]
            number += 1

    def header(self, number: int) -> UnitHeader | None:
        """Return the header of a unit by its number; None if there are fewer."""
        while number >= len(self._headers):
            if number in self._noted:
                return self._noted[number]
            before = len(self._headers)
            self._read_headers(self._following + 1)
            if len(self._headers) == before:
                return None
        return self._headers[number]

    def note_header(self, number: int, at: int) -> None:
        """Read the header of a unit whose position is known, so that none before it is read.

        Raises:
            MalformedDwarf: there is no header.
            LookupError: likewise.
        """
        if number >= len(self._headers):
            self._noted[number] = self.header_at(at)

    def header_at(self, at: int) -> UnitHeader:
        """Read the header of the unit at a position."""
        return UnitHeader(self.sections[".debug_info"], at, self.byteorder)

    def _read_headers(self, end: int) -> None:
        # Reads the headers of the units that begin before a position.
        data = self.sections[".debug_info"]
        while self._following < min(end, len(data)) and not self.damage:
            if len(self._headers) >= _MAX_UNITS:
                self.damage = f"more than {_MAX_UNITS} units"
                return
            try:
                header = self.header_at(self._following)
            except (MalformedDwarf, IndexError) as err:
                self.damage = str(err)
                return
            self._headers.append(header)
            self._starts.append(header.at)
            self._following = header.end

    def unit(self, header: UnitHeader) -> Unit:
        """Return a unit; the most recently used ones are cached."""
        found = self._units.pop(header.at, None)
        if found is None:
            found = Unit(self, header)
            if len(self._units) >= _MAX_KEPT:
                del self._units[next(iter(self._units))]
        self._units[header.at] = found
        return found

    def number_at(self, at: int) -> int | None:
        """Return the number of the unit that begins at a position; None if none does."""
        self._read_headers(at + 1)
        index = bisect.bisect_left(self._starts, at)
        return index if index < len(self._starts) and self._starts[index] == at else None

    def unit_containing(self, at: int) -> tuple[Unit, int]:
        """Return the unit that contains a position of ``.debug_info``, and the offset in it."""
        index = self.number_containing(at)
        if index is None:
            raise MalformedDwarf(f"no unit at {at:#x}")
        header = self._headers[index]
        return self.unit(header), at - header.at

    def number_containing(self, at: int) -> int | None:
        """Return the number of the unit that contains a position; None if none does."""
        self._read_headers(at + 1)
        index = bisect.bisect_right(self._starts, at) - 1
        return None if index < 0 or at >= self._headers[index].end else index

    @functools.cached_property
    def abbreviation_bytes(self) -> bytes:
        """The bytes of ``.debug_abbrev``."""
        found = self.sections[".debug_abbrev"]
        if len(found) > _MAX_ABBREVIATIONS:
            raise MalformedDwarf(f"{len(found)} bytes of abbreviations")
        return bytes(found[:])

    def share_abbreviations(self, other: DebugFile) -> None:
        """Share ``.debug_abbrev`` with another part of the same file instead of copying it."""
        self.__dict__["abbreviation_bytes"] = other.abbreviation_bytes

    def abbreviations(self, header: UnitHeader) -> AbbreviationTable:
        """Return the abbreviation table of a unit; units may share one."""
        at = header.abbreviations + self.bases.get("abbrev", 0)
        key = (at, header.encoding)
        found = self._tables.get(key)
        if found is None:
            if len(self._tables) >= _MAX_TABLES:
                self._tables.clear()
            few = "abbreviation_bytes" not in self.__dict__ and len(self._tables) < _MAX_PARTIAL
            data = self.sections[".debug_abbrev"] if few else self.abbreviation_bytes
            found = self._tables[key] = AbbreviationTable(data, at, header.encoding)
        return found

    def text(self, raw: FormValue) -> str:
        """Return a string of one of the string sections."""
        if raw.form in (Form.GNU_STRP_ALT, Form.STRP_SUP):
            if self.alternative is None:
                return ""
            return read_string(self.alternative.sections[".debug_str"], raw.value)[0]
        if raw.form == Form.LINE_STRP:
            return read_string(self.sections[".debug_line_str"], raw.value)[0]
        if raw.form == Form.STRP:
            return read_string(self.sections[".debug_str"], raw.value)[0]
        raise MalformedDwarf(f"DW_FORM {raw.form:#x} is not a string")
