"""Debug information in other files: dwz's shared file, ``.dwo`` files and ``.dwp`` packages.

A file is used only if it belongs to the program: its build ID must match, or the DWO ID that both
halves of a split unit have.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from usdt.dwarf.units.constants import At, UnitType
from usdt.dwarf.units.forms import MalformedDwarf, UnitEncoding, read_uleb128
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.type_units import SplitTypes
from usdt.dwarf.units.units import DebugFile, Unit, UnitHeader
from usdt.elf.debug_files import build_id_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.elf.file import ElfFile
    from usdt.elf.file_bytes import FileBytes

__all__ = ("Opener", "SplitUnits", "alternative_paths", "find_alternative")

_MAX_FILES = 1 << 12  # open .dwo files
_MAX_SLOTS = 1 << 22
# DW_SECT_…: columns of a package's index, in version 2 (GNU) and version 5.
_COLUMNS = {
    1: "info",
    2: "types",
    3: "abbrev",
    5: "loclists",
    6: "str_offsets",
    8: "rnglists",
}
_DEBUG_ALTLINK = ".gnu_debugaltlink"
_MAX_LINK = 8192  # bytes of the section that names a shared file

if TYPE_CHECKING:
    Opener = Callable[[list[str]], Iterator[ElfFile]]


def find_alternative(elf: ElfFile, opener: Opener, debug_root: str) -> DebugFile | None:
    """Return the shared file to which dwz moved entries; None if it is not needed or not found."""
    link = _shared(elf)
    if link is None:
        return None
    _, wanted = link
    for found in opener([*_shared_paths(elf, link, debug_root)]):
        if wanted in (found.build_id, _own_checksum(found)):
            return DebugFile(DebugSections(found))
        found.close()
    return None


def alternative_paths(elf: ElfFile, debug_root: str) -> tuple[str, str] | None:
    """Return the two paths at which dwz's shared file is searched; None if it is not needed."""
    link = _shared(elf)
    return None if link is None else _shared_paths(elf, link, debug_root)


def _shared_paths(elf: ElfFile, link: tuple[bytes, str], debug_root: str) -> tuple[str, str]:
    name, wanted = link
    path = os.path.join(os.path.dirname(os.path.realpath(elf.path)), os.fsdecode(name))  # noqa: PTH118, PTH120
    return os.path.normpath(path), build_id_path(wanted, debug_root)


def _shared(elf: ElfFile) -> tuple[bytes, str] | None:
    # Name, and build ID or checksum, of the shared file that a file refers to.
    section = elf.section(_DEBUG_ALTLINK)
    if section is None:
        link = _supplement(elf)
        if link is None or link.is_shared or len(link.checksum) < 4:
            return None
        return link.name, link.checksum
    if section.size > _MAX_LINK:
        return None
    # A path, NUL, a build ID.
    name, end, build_id = elf.contents(section).partition(b"\0")
    return (name, build_id.hex()) if end and len(build_id) > 1 else None


def _own_checksum(elf: ElfFile) -> str | None:
    link = _supplement(elf)
    return link.checksum if link is not None and link.is_shared else None


class _Supplement(NamedTuple):
    # .debug_sup of DWARF 5 (7.3.6): True if this is the shared file; its name and checksum.
    is_shared: bool
    name: bytes
    checksum: str


def _supplement(elf: ElfFile) -> _Supplement | None:
    section = elf.section(".debug_sup")
    if section is None or section.size > _MAX_LINK:
        return None
    data = elf.contents(section)
    name, end, rest = data[3:].partition(b"\0")
    if not end or not rest or data[2] > 1:
        return None
    size, at = read_uleb128(rest, 0)
    checksum = rest[at : at + size]
    if len(checksum) != size:
        return None
    return _Supplement(bool(data[2]), name, checksum.hex())


class SplitUnits:
    """The split units of a file, which its skeleton units refer to.

    Args:
        path: path of the file; a package is in the same directory.
        opener: opens paths; yields the ELF files among them.

    Attributes:
        missing: the first ``.dwo`` file that was not found; None if all were.
        searched: the paths at which it was searched, a package's first.
    """

    def __init__(self, path: str, opener: Opener) -> None:
        self._path = path
        self._opener = opener
        self._files: list[DebugFile] = []
        self._package: _Package | None = None
        self._package_searched = False
        self._halves: dict[int, Unit] = {}
        self._types: dict[int, SplitTypes] = {}
        self.missing: str | None = None
        self.searched: list[str] = []

    def close(self) -> None:
        """Close every file; idempotent."""
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
        """The paths of the files opened so far."""
        opened = [*self._files, *([self._package.file] if self._package is not None else ())]
        return sorted(file.sections.elf.path for file in opened)

    def full_unit(self, unit: Unit) -> Unit:
        """Return the split unit of a skeleton; the unit itself if it has none or none is found."""
        name = unit.text(unit.root, At.DWO_NAME) or unit.text(unit.root, At.GNU_DWO_NAME)
        number = unit.header.dwo_id
        if number is None:
            number = unit.integer(unit.root, At.GNU_DWO_ID)
        if not name or number is None:
            return unit
        found = self._halves.get(number)
        if found is None:
            found = self._from_package(unit, number) or self._from_dwo(unit, name, number)
            if found is None:
                if self.missing is None:
                    self.missing = name
                    self.searched = [f"{self._path}.dwp", *self._dwo_paths(unit, name)]
                return unit
            self._halves[number] = found
        return found

    def types(self, half: Unit) -> SplitTypes:
        """Return the type units in the same file as a split unit."""
        elf = half.file.sections.elf
        key = id(elf)  # unique, because the file stays open
        found = self._types.get(key)
        if found is None:
            package = self._package
            made = None
            if package is not None and package.sections.elf is elf:
                made = package.type_files()
            found = self._types[key] = SplitTypes(half.file, made)
        return found

    def _from_dwo(self, unit: Unit, name: str, number: int) -> Unit | None:
        if len(self._files) >= _MAX_FILES:
            return None
        for elf in self._opener(self._dwo_paths(unit, name)):
            file = DebugFile(DebugSections(elf))
            units = (
                one for one in file.headers if one.kind not in (UnitType.TYPE, UnitType.SPLIT_TYPE)
            )
            for header in itertools.islice(units, 64):
                half = Unit(file, header, unit)
                if number in (header.dwo_id, half.integer(half.root, At.GNU_DWO_ID)):
                    self._files.append(file)
                    return half
            file.close()
            elf.close()
        return None

    def _dwo_paths(self, unit: Unit, name: str) -> list[str]:
        compiled = unit.text(unit.root, At.COMP_DIR)
        beside = os.path.dirname(self._path)  # noqa: PTH120
        named = name if name.startswith("/") else f"{compiled}/{name}"
        return [named, f"{beside}/{os.path.basename(name)}"]  # noqa: PTH119

    def _from_package(self, unit: Unit, number: int) -> Unit | None:
        if not self._package_searched:
            self._package_searched = True
            for elf in self._opener([f"{self._path}.dwp"]):
                self._package = _Package(DebugFile(DebugSections(elf)))
                break
        return None if self._package is None else self._package.unit(number, unit)


class _Package:
    # A .dwp file: many .dwo files in one, with indexes (.debug_cu_index, .debug_tu_index).
    def __init__(self, file: DebugFile) -> None:
        self.file = file
        self.sections = file.sections
        self._index = self._table(".debug_cu_index")

    def _table(self, name: str) -> _PackageIndex | None:
        section = self.sections.elf.section(name)
        if section is None:
            return None
        return _PackageIndex(self.sections.elf.data(section), self.file.byteorder)

    def close(self) -> None:
        self._index = None

    def unit(self, number: int, skeleton: Unit) -> Unit | None:
        bases = None if self._index is None else self._index.bases(number)
        if bases is None:
            return None
        part = self._part(bases)
        header = UnitHeader(part.sections[".debug_info"], bases.get("info", 0), part.byteorder)
        return Unit(part, header, skeleton)

    def _part(self, bases: dict[str, int]) -> DebugFile:
        part = DebugFile(self.sections)
        part.bases = bases
        part.share_abbreviations(self.file)
        return part

    def type_files(self) -> list[DebugFile]:
        # The part of each type unit.
        table = self._table(".debug_tu_index")
        if table is None:
            return []
        return [self._part(bases) for bases in table.all()]


class _PackageIndex:
    # A hash table: DWO ID or signature → a row with the start of its part of each section.
    def __init__(self, data: FileBytes, byteorder: str) -> None:
        self._data = data
        self._plain = UnitEncoding(byteorder, 8, 4, 0)
        self._columns, self._rows, self._slots = (self._number(at) for at in (4, 8, 12))
        slots = self._slots
        if slots > _MAX_SLOTS or slots & slots - 1 or self._columns > 16 or self._rows > slots:
            raise MalformedDwarf("a damaged index of a package")

    def _number(self, at: int, size: int = 4) -> int:
        return self._plain.number(self._data, at, size)

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
