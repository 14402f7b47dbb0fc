"""Debug information in other files: dwz's shared file, ``.dwo`` files and ``.dwp`` packages.

What is opened is only taken if it says that it belongs here: by its build ID, or by the number
that both halves of a split unit have.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING

from usdt.dwarf.units import forms as dw
from usdt.dwarf.units.forms import Encoding, Malformed
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.type_units import SplitTypes
from usdt.dwarf.units.units import UT_SPLIT_TYPE, UT_TYPE, DebugFile, Header, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.elf.file import ElfFile

__all__ = ("Opener", "Split", "absent_alternative", "alternative_of")

_MAX_FILES = 1 << 12  # .dwo files that are opened
_MAX_SLOTS = 1 << 22
# DW_SECT_…: columns of a package's index; of version 2 (GNU) and of version 5 ranges differ.
_COLUMNS = {1: "info", 2: "types", 3: "abbrev", 6: "str_offsets", 8: "rnglists"}
_DEBUG_ALTLINK = ".gnu_debugaltlink"
_MAX_LINK = 8192  # bytes of what names a shared file

if TYPE_CHECKING:
    Opener = Callable[[list[str]], Iterator[ElfFile]]


def alternative_of(elf: ElfFile, opener: Opener, debug_root: str) -> DebugFile | None:
    """The file with what dwz found in several; None where there is none, or it is not here."""
    told = _shared(elf)
    if told is None:
        return None
    _, wanted = told
    for found in opener([*_shared_places(elf, told, debug_root)]):
        if wanted in (found.build_id, _own_checksum(found)):
            return DebugFile(DebugSections(found))
        found.close()
    return None


def absent_alternative(elf: ElfFile, debug_root: str) -> tuple[str, str] | None:
    """Where that file was looked for while it is not here; None where there is none."""
    told = _shared(elf)
    return None if told is None else _shared_places(elf, told, debug_root)


def _shared_places(elf: ElfFile, told: tuple[bytes, str], debug_root: str) -> tuple[str, str]:
    name, wanted = told
    path = os.path.join(os.path.dirname(os.path.realpath(elf.path)), os.fsdecode(name))  # noqa: PTH118, PTH120
    return os.path.normpath(path), f"{debug_root}/.build-id/{wanted[:2]}/{wanted[2:]}.debug"


def _shared(elf: ElfFile) -> tuple[bytes, str] | None:
    # Name and build ID, or checksum, of the file that a file shares debug information with.
    section = elf.section(_DEBUG_ALTLINK)
    if section is None:
        told = _supplement(elf)
        return None if told is None or told[0] or len(told[2]) < 4 else told[1:]
    if section.size > _MAX_LINK:
        return None
    # A path, NUL, a build ID.
    name, end, build_id = bytes(elf.contents(section)).partition(b"\0")
    return (name, build_id.hex()) if end and len(build_id) > 1 else None


def _own_checksum(elf: ElfFile) -> str | None:
    told = _supplement(elf)
    return told[2] if told is not None and told[0] else None


def _supplement(elf: ElfFile) -> tuple[bool, bytes, str] | None:
    # .debug_sup of DWARF 5 (7.3.6): whether it is the shared file itself; its name and checksum.
    section = elf.section(".debug_sup")
    if section is None or section.size > _MAX_LINK:
        return None
    data = bytes(elf.contents(section))
    name, end, rest = data[3:].partition(b"\0")
    if not end or not rest or data[2] > 1:
        return None
    size, at = dw.unsigned(rest, 0)
    checksum = rest[at : at + size]
    return (bool(data[2]), name, checksum.hex()) if len(checksum) == size else None


class Split:
    """The other halves of the split units of a file.

    Args:
        path: of the file; its package is beside it.
        opener: yields those of some files that can be opened.
    """

    def __init__(self, path: str, opener: Opener) -> None:
        self._path = path
        self._opener = opener
        self._files: list[DebugFile] = []
        self._package: _Package | None = None
        self._looked = False
        self._halves: dict[int, Unit] = {}
        self._types: dict[int, SplitTypes] = {}
        self.missing: str | None = None

    def close(self) -> None:
        """Close every file; again is fine."""
        if self._package is not None:
            self._files.append(self._package.file)
            self._package.close()
        for types in self._types.values():
            types.close()
        for half in self._halves.values():
            half.file.close()
        for file in self._files:
            file.close()
            file.sections.elf.close()
        self._files.clear()
        self._package = None
        self._halves.clear()
        self._types.clear()

    @property
    def paths(self) -> list[str]:
        """The files that were found so far."""
        opened = [*self._files, *([self._package.file] if self._package is not None else ())]
        return sorted(file.sections.elf.path for file in opened)

    def of(self, unit: Unit) -> Unit:
        """The other half of a unit; the unit itself where it has none, or that is not here."""
        name = unit.text(unit.root, dw.AT_DWO_NAME) or unit.text(unit.root, dw.AT_GNU_DWO_NAME)
        number = unit.header.dwo_id
        if number is None:
            number = unit.integer(unit.root, dw.AT_GNU_DWO_ID)
        if not name or number is None:
            return unit
        found = self._halves.get(number)
        if found is None:
            found = self._packaged(unit, number) or self._separate(unit, name, number)
            if found is None:
                self.missing = self.missing or name
                return unit
            self._halves[number] = found
        return found

    def types(self, half: Unit) -> SplitTypes:
        """The type units beside the split half of a unit."""
        elf = half.file.sections.elf
        key = id(elf)  # which stays open
        found = self._types.get(key)
        if found is None:
            package = self._package
            made = None
            if package is not None and package.sections.elf is elf:
                made = package.type_files()
            found = self._types[key] = SplitTypes(half.file, made)
        return found

    def _separate(self, unit: Unit, name: str, number: int) -> Unit | None:
        if len(self._files) >= _MAX_FILES:
            return None
        compiled = unit.text(unit.root, dw.AT_COMP_DIR)
        beside = os.path.dirname(self._path)  # noqa: PTH120
        places = [f"{beside}/{os.path.basename(name)}"]  # noqa: PTH119
        places.insert(0, name if name.startswith("/") else f"{compiled}/{name}")
        for elf in self._opener(places):
            file = DebugFile(DebugSections(elf))
            units = (one for one in file.headers if one.kind not in (UT_TYPE, UT_SPLIT_TYPE))
            for header in itertools.islice(units, 64):
                half = Unit(file, header, unit)
                if number in (header.dwo_id, half.integer(half.root, dw.AT_GNU_DWO_ID)):
                    self._files.append(file)
                    return half
            file.close()
            elf.close()
        return None

    def _packaged(self, unit: Unit, number: int) -> Unit | None:
        if not self._looked:
            self._looked = True
            for elf in self._opener([f"{self._path}.dwp"]):
                self._package = _Package(DebugFile(DebugSections(elf)))
                break
        return None if self._package is None else self._package.unit(number, unit)


class _Package:
    # A .dwp file: many .dwo files in one, and indexes (.debug_cu_index, .debug_tu_index).
    def __init__(self, file: DebugFile) -> None:
        self.file = file
        self.sections = file.sections
        self._index = self._table(".debug_cu_index")

    def _table(self, name: str) -> _PackageIndex | None:
        section = self.sections.elf.section(name)
        if section is None:
            return None
        return _PackageIndex(self.sections.elf.contents(section), self.file.byteorder)

    def close(self) -> None:
        if self._index is not None:
            self._index.data.release()
            self._index = None

    def unit(self, number: int, skeleton: Unit) -> Unit | None:
        bases = None if self._index is None else self._index.bases(number)
        if bases is None:
            return None
        part = self._part(bases)
        header = Header(part.sections[".debug_info"], bases.get("info", 0), part.byteorder)
        return Unit(part, header, skeleton)

    def _part(self, bases: dict[str, int]) -> DebugFile:
        part = DebugFile(self.sections)
        part.bases = bases
        part.share_abbreviations(self.file)
        return part

    def type_files(self) -> list[DebugFile]:
        # What each type unit is in.
        table = self._table(".debug_tu_index")
        if table is None:
            return []
        with contextlib.closing(table):
            return [self._part(bases) for bases in table.all()]


class _PackageIndex:
    # A hash table of numbers, and for each a row of places: where its parts of sections begin.
    def __init__(self, data: memoryview, byteorder: str) -> None:
        self.data = data
        self._plain = Encoding(byteorder, 8, 4, 0)
        self._columns, self._rows, self._slots = (self._number(at) for at in (4, 8, 12))
        slots = self._slots
        if slots > _MAX_SLOTS or slots & slots - 1 or self._columns > 16 or self._rows > slots:
            raise Malformed("a damaged index of a package")

    def close(self) -> None:
        self.data.release()

    def _number(self, at: int, size: int = 4) -> int:
        return self._plain.number(self.data, at, size)

    def bases(self, number: int) -> dict[str, int] | None:
        slots = self._slots
        slot, step = number & slots - 1, number >> 32 & slots - 1 | 1
        for _ in range(slots):
            row = self._number(16 + 8 * slots + 4 * slot)
            if not row:
                return None
            if self._number(16 + 8 * slot, 8) == number and row <= self._rows:
                return self._row(row)
            slot = slot + step & slots - 1
        return None

    def all(self) -> Iterator[dict[str, int]]:
        for row in range(1, self._rows + 1):
            yield self._row(row)

    def _row(self, row: int) -> dict[str, int]:
        table, found = 16 + 12 * self._slots, {}
        for column in range(self._columns):
            kind = self._number(table + 4 * column)
            if kind in _COLUMNS:
                found[_COLUMNS[kind]] = self._number(table + 4 * (self._columns * row + column))
        return found
