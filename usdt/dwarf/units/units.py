"""Units of debug information: headers, entries, and the strings and ranges these refer to.

A :class:`DebugFile` is one file's sections; a :class:`Unit` one unit of it, with a view of its own
bytes, so that positions in it cannot lead anywhere else.
"""

from __future__ import annotations

import bisect
import functools
from typing import TYPE_CHECKING

from usdt.dwarf.units import forms as dw
from usdt.dwarf.units.errors import DwarfError
from usdt.dwarf.units.forms import (
    Abbreviations,
    Encoding,
    Malformed,
    Raw,
    read_raw,
    string_at,
    unsigned,
)
from usdt.dwarf.units.ranges import read_ranges, read_rnglist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.units.sections import DebugSections

__all__ = ("DebugFile", "Entry", "Header", "Unit")

UT_COMPILE, UT_TYPE, UT_SKELETON, UT_SPLIT_COMPILE, UT_SPLIT_TYPE = 1, 2, 4, 5, 6  # DW_UT_…
_MAX_UNITS = 1 << 18
_MAX_UNIT = 256 << 20  # bytes
_MAX_HEADER = 64  # bytes
_MAX_ABBREVIATIONS = 64 << 20  # bytes
_MAX_TABLES = 256  # of abbreviations, kept at a time
_KEPT = 1 << 12  # units
_HOPS = 16  # from an entry to the one that has its name


class Header:
    """The header of a unit.

    Attributes:
        at: where it begins in ``.debug_info``.
        end: where the unit ends.
        first: where its first entry is, counted from ``at``.
        kind: ``DW_UT_…``; before version 5 that of a compilation.
        abbreviations: the position of its table.
        encoding: of its numbers.
        dwo_id: of a unit that is split, in version 5.
    """

    __slots__ = ("abbreviations", "at", "dwo_id", "encoding", "end", "first", "kind")

    def __init__(self, data: memoryview, at: int, byteorder: str) -> None:
        plain = Encoding(byteorder, 8, 4, 0)
        self.at = at
        length, place, size = plain.number(data, at, 4), at + 4, 4
        if length == 0xFFFFFFFF:
            length, place, size = plain.number(data, place, 8), place + 8, 8
        self.end = place + length
        if self.end > len(data) or length < 7:
            raise Malformed(f"a unit at {at:#x} of {length} bytes, {len(data) - place} are there")
        version = plain.number(data, place, 2)
        place += 2
        if not 2 <= version <= 5:
            raise Malformed(f"a unit at {at:#x} of version {version}; 2 to 5 are read")
        self.kind = UT_COMPILE
        self.dwo_id: int | None = None
        if version >= 5:
            self.kind, address_size = data[place], data[place + 1]
            self.abbreviations = plain.number(data, place + 2, size)
            place += 2 + size
            if self.kind in (UT_SKELETON, UT_SPLIT_COMPILE):
                self.dwo_id = plain.number(data, place, 8)
                place += 8
            elif self.kind in (UT_TYPE, UT_SPLIT_TYPE):
                place += 8 + size
        else:
            self.abbreviations = plain.number(data, place, size)
            address_size = data[place + size]
            place += size + 1
        if address_size not in (4, 8):
            raise Malformed(f"a unit at {at:#x} with addresses of {address_size} bytes")
        self.first = place - at
        self.encoding = Encoding(byteorder, address_size, size, version)


class Entry:
    """A debugging information entry with its attributes.

    Attributes:
        at: its position in the unit.
        end: the position behind its attributes.
        abbreviation: what it consists of.
        values: ``DW_AT_…`` → as written.
    """

    __slots__ = ("abbreviation", "at", "end", "values")

    def __init__(self, unit: Unit, at: int) -> None:
        self.at = at
        code, at = unsigned(unit.data, at)
        if not code:
            raise Malformed(f"no entry at {unit.header.at + self.at:#x}")
        self.abbreviation = unit.abbreviations[code]
        self.values: dict[int, Raw] = {}
        for name, form, constant in self.abbreviation.attributes:
            self.values[name], at = read_raw(unit.data, at, form, constant, unit.encoding)
        self.end = at


class Unit:
    """A unit.

    Attributes:
        file: whose it is.
        header: its header.
        data: its bytes, the header with them.
        encoding: of its numbers.
        abbreviations: its table.
        skeleton: of a split unit the one that stands for it in the program's own file.
    """

    def __init__(self, file: DebugFile, header: Header, skeleton: Unit | None = None) -> None:
        size = header.end - header.at
        if size > _MAX_UNIT:
            raise Malformed(f"a unit of {size} bytes")
        self.file = file
        self.header = header
        self.encoding = header.encoding
        self.skeleton = skeleton
        self.data = file.sections[".debug_info"][header.at : header.end]
        self.abbreviations = file.abbreviations(header)

    @functools.cached_property
    def root(self) -> Entry:
        """Its first entry."""
        return Entry(self, self.header.first)

    def integer(self, entry: Entry, name: int, default: int | None = None) -> int | None:
        """A number as it is written."""
        raw = entry.values.get(name)
        return default if raw is None else raw.value

    def text(self, entry: Entry, name: int) -> str:
        """A string; "" where there is none."""
        raw = entry.values.get(name)
        return "" if raw is None else self.string(raw)

    def string(self, raw: Raw) -> str:
        """A string as an attribute refers to it."""
        if raw.form == dw.FORM_STRING:
            return string_at(self.data, raw.value)[0]
        if raw.form in dw.STRING_INDEXES:
            return self._indexed_text(raw.value)
        return self.file.text(raw)

    def _indexed_text(self, index: int) -> str:
        size = self.encoding.offset_size
        base = self.integer(self.root, dw.AT_STR_OFFSETS_BASE)
        if base is None:
            # In a .dwo file: the first contribution; GNU's version 4 has no header before it.
            base = self.file.bases.get("str_offsets", 0)
            if self.encoding.version >= 5:
                base += 8 if size == 4 else 16
        offsets = self.file.sections[".debug_str_offsets"]
        at = self.encoding.number(offsets, base + index * size, size)
        return string_at(self.file.sections[".debug_str"], at)[0]

    def address(self, raw: Raw) -> int:
        """An address, or the one of an index."""
        if raw.form in dw.ADDRESS_INDEXES:
            return self.indexed_address(raw.value)
        return raw.value

    def indexed_address(self, index: int) -> int:
        """An address of ``.debug_addr``, which the program's own file has."""
        owner = self.skeleton or self
        size = self.encoding.address_size
        base = owner.integer(owner.root, dw.AT_ADDR_BASE)
        if base is None:
            base = owner.integer(owner.root, dw.AT_GNU_ADDR_BASE, 0) or 0
        return self.encoding.number(owner.file.sections[".debug_addr"], base + index * size, size)

    def ranges(self, entry: Entry) -> list[tuple[int, int]]:
        """The addresses that an entry's code lies at: from, to."""
        listed = entry.values.get(dw.AT_RANGES)
        if listed is not None:
            found = self._listed(listed)
        else:
            low, high = entry.values.get(dw.AT_LOW_PC), entry.values.get(dw.AT_HIGH_PC)
            if low is None or high is None:
                return []
            start = self.address(low)
            is_address = high.form == dw.FORM_ADDR or high.form in dw.ADDRESS_INDEXES
            found = [(start, self.address(high) if is_address else start + high.value)]
        # At 0 and at the highest addresses lies what linkers have left out.
        return [(low, high) for low, high in found if 0 < low < high]

    @functools.cached_property
    def base(self) -> int:
        """What ranges count from."""
        owner = self.skeleton or self
        low = owner.root.values.get(dw.AT_LOW_PC)
        return 0 if low is None else owner.address(low)

    def name(self, at: int) -> str:
        """The name of the function an entry is about: its symbol's if it has one, else its own."""
        unit, found = self, ""
        for _ in range(_HOPS):
            entry = Entry(unit, at)
            for kind in (dw.AT_LINKAGE_NAME, dw.AT_MIPS_LINKAGE_NAME):
                if kind in entry.values:
                    return unit.text(entry, kind)
            found = found or unit.text(entry, dw.AT_NAME)
            origin = entry.values.get(dw.AT_ABSTRACT_ORIGIN) or entry.values.get(
                dw.AT_SPECIFICATION
            )
            target = None if origin is None else unit.referred(origin)
            if target is None:
                break
            unit, at = target
        return found

    def referred(self, raw: Raw) -> tuple[Unit, int] | None:
        """The entry that a reference leads to: its unit and its position there."""
        if raw.form in dw.UNIT_REFERENCES:
            return self, raw.value
        if raw.form == dw.FORM_REF_ADDR:
            return self.file.unit_with(raw.value)
        if raw.form in dw.ALT_REFERENCES and self.file.alternative is not None:
            return self.file.alternative.unit_with(raw.value)
        return None

    def _listed(self, raw: Raw) -> list[tuple[int, int]]:
        if self.encoding.version >= 5:
            data, at = self.file.sections[".debug_rnglists"], self._list_position(raw)
            return read_rnglist(data, at, self.encoding, self.base, self.indexed_address)
        owner = self.skeleton or self
        extra = owner.integer(owner.root, dw.AT_GNU_RANGES_BASE, 0) or 0
        at = raw.value + (extra if self.skeleton else 0)
        return read_ranges(owner.file.sections[".debug_ranges"], at, self.encoding, self.base)

    def _list_position(self, raw: Raw) -> int:
        if raw.form != dw.FORM_RNGLISTX:
            return raw.value
        size = self.encoding.offset_size
        base = self.integer(self.root, dw.AT_RNGLISTS_BASE)
        if base is None:
            base = self.file.bases.get("rnglists", 0) + (12 if size == 4 else 20)
        data = self.file.sections[".debug_rnglists"]
        return base + self.encoding.number(data, base + raw.value * size, size)


class DebugFile:
    """The debug information of one file.

    Args:
        sections: where it is.
        alternative: the file that dwz has moved shared parts to (``.gnu_debugaltlink``).

    Attributes:
        bases: of a unit out of a package (``.dwp``): section → where its part begins.
        damage: what is wrong with the headers, once they were asked for.
    """

    def __init__(self, sections: DebugSections, alternative: DebugFile | None = None) -> None:
        self.sections = sections
        self.alternative = alternative
        self.byteorder = sections.elf.byteorder
        self.bases: dict[str, int] = {}
        self.damage = ""
        self._tables: dict[tuple[int, Encoding], Abbreviations] = {}
        self._units: dict[int, Unit] = {}

    def forget(self) -> None:
        """Read headers, units and tables anew when they are asked for."""
        self._units.clear()
        self._tables.clear()
        for name in ("headers", "_starts", "_abbreviations"):
            self.__dict__.pop(name, None)

    def close(self) -> None:
        """Let the sections go; the ELF file is its owner's."""
        self._units.clear()
        self._tables.clear()
        self.sections.close()

    @functools.cached_property
    def headers(self) -> list[Header]:
        """Of every unit, in order; up to the first that is damaged."""
        return list(self.arriving_headers(lambda _: None))

    def arriving_headers(self, wait: Callable[[int], None]) -> Iterator[Header]:
        """The same one by one.

        Args:
            wait: returns when the bytes up to a position of ``.debug_info`` are there.
        """
        data = self.sections[".debug_info"]
        found: list[Header] = []
        at = 0
        while at < len(data):
            wait(min(at + _MAX_HEADER, len(data)))
            try:
                if len(found) >= _MAX_UNITS:
                    raise Malformed(f"more than {_MAX_UNITS} units")
                header = Header(data, at, self.byteorder)
            except (DwarfError, IndexError) as err:
                self.damage = str(err)
                break
            wait(header.end)
            found.append(header)
            yield header
            at = header.end
        wait(len(data))
        self.__dict__["headers"] = found

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [header.at for header in self.headers]

    def unit(self, header: Header) -> Unit:
        """A unit; those asked for last are kept."""
        found = self._units.pop(header.at, None)
        if found is None:
            found = Unit(self, header)
            if len(self._units) >= _KEPT:
                del self._units[next(iter(self._units))]
        self._units[header.at] = found
        return found

    def unit_with(self, at: int) -> tuple[Unit, int]:
        """The unit that a position in ``.debug_info`` is in, and the position counted from it."""
        index = bisect.bisect_right(self._starts, at) - 1
        if index < 0 or at >= self.headers[index].end:
            raise Malformed(f"no unit at {at:#x}")
        return self.unit(self.headers[index]), at - self.headers[index].at

    @functools.cached_property
    def _abbreviations(self) -> bytes:
        found = self.sections[".debug_abbrev"]
        if len(found) > _MAX_ABBREVIATIONS:
            raise Malformed(f"{len(found)} bytes of abbreviations")
        return bytes(found)

    def share_abbreviations(self, other: DebugFile) -> None:
        """Have no copy of what another part of the same file has."""
        self.__dict__["_abbreviations"] = other._abbreviations

    def abbreviations(self, header: Header) -> Abbreviations:
        """The table of a unit; units may share one."""
        at = header.abbreviations + self.bases.get("abbrev", 0)
        key = (at, header.encoding)
        found = self._tables.get(key)
        if found is None:
            if len(self._tables) >= _MAX_TABLES:
                self._tables.clear()
            made = Abbreviations(self._abbreviations, at, header.encoding)
            found = self._tables[key] = made
        return found

    def text(self, raw: Raw) -> str:
        """A string out of one of the tables."""
        if raw.form in (dw.FORM_GNU_STRP_ALT, dw.FORM_STRP_SUP):
            if self.alternative is None:
                return ""
            return string_at(self.alternative.sections[".debug_str"], raw.value)[0]
        if raw.form == dw.FORM_LINE_STRP:
            return string_at(self.sections[".debug_line_str"], raw.value)[0]
        if raw.form == dw.FORM_STRP:
            return string_at(self.sections[".debug_str"], raw.value)[0]
        raise Malformed(f"DW_FORM {raw.form:#x} is no string")
