"""Debug information in other files: dwz's shared file, ``.dwo`` files and ``.dwp`` packages.

What is opened is only taken if it says that it belongs here: by its build ID, or by the number
that both halves of a split unit have.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.dwarf import lines_format as dw
from usdt.dwarf.lines_format import Encoding, Malformed
from usdt.dwarf.lines_units import DebugFile, Header, Unit
from usdt.dwarf.sections import DebugSections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.elf import ElfFile

__all__ = ("Opener", "Split", "alternative_of")

_MAX_FILES = 1 << 12  # .dwo files that are opened
_MAX_SLOTS = 1 << 22
# DW_SECT_…: columns of a package's index; of version 2 (GNU) and of version 5 ranges differ.
_COLUMNS = {1: "info", 3: "abbrev", 6: "str_offsets", 8: "rnglists"}
_DEBUG_ALTLINK = ".gnu_debugaltlink"

if TYPE_CHECKING:
    Opener = Callable[[list[str]], Iterator[ElfFile]]


def alternative_of(elf: ElfFile, opener: Opener, debug_root: str) -> DebugFile | None:
    """The file with what dwz found in several; None where there is none, or it is not here."""
    section = elf.section(_DEBUG_ALTLINK)
    if section is None or section.size > 8192:
        return None
    # A path, NUL, a build ID.
    name, end, build_id = bytes(elf.contents(section)).partition(b"\0")
    wanted = build_id.hex()
    if not end or len(wanted) < 4:
        return None
    path = os.path.join(os.path.dirname(os.path.realpath(elf.path)), os.fsdecode(name))  # noqa: PTH118, PTH120
    tail = f"{debug_root}/.build-id/{wanted[:2]}/{wanted[2:]}.debug"
    for found in opener([path, tail]):
        if found.build_id == wanted:
            return DebugFile(DebugSections(found))
        found.close()
    return None


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
        self.missing: str | None = None

    def close(self) -> None:
        """Close every file; again is fine."""
        if self._package is not None:
            self._files.append(self._package.file)
            self._package.close()
        for file in self._files:
            file.close()
            file.sections.elf.close()
        self._files.clear()
        self._package = None

    def of(self, unit: Unit) -> Unit:
        """The other half of a unit; the unit itself where it has none, or that is not here."""
        name = unit.text(unit.root, dw.AT_DWO_NAME) or unit.text(unit.root, dw.AT_GNU_DWO_NAME)
        number = unit.header.dwo_id
        if number is None:
            number = unit.integer(unit.root, dw.AT_GNU_DWO_ID)
        if not name or number is None:
            return unit
        found = self._packaged(unit, number) or self._separate(unit, name, number)
        if found is None:
            self.missing = self.missing or name
        return found or unit

    def _separate(self, unit: Unit, name: str, number: int) -> Unit | None:
        if len(self._files) >= _MAX_FILES:
            return None
        compiled = unit.text(unit.root, dw.AT_COMP_DIR)
        beside = os.path.dirname(self._path)  # noqa: PTH120
        places = [f"{beside}/{os.path.basename(name)}"]  # noqa: PTH119
        places.insert(0, name if name.startswith("/") else f"{compiled}/{name}")
        for elf in self._opener(places):
            file = DebugFile(DebugSections(elf))
            for header in file.headers[:64]:
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
    # A .dwp file: many .dwo files in one, and an index (.debug_cu_index).
    def __init__(self, file: DebugFile) -> None:
        self.file = file
        section = file.sections.elf.section(".debug_cu_index")
        self._index = file.sections.elf.contents(section) if section is not None else None

    def close(self) -> None:
        if self._index is not None:
            self._index.release()
            self._index = None

    def unit(self, number: int, skeleton: Unit) -> Unit | None:
        if self._index is None:
            return None
        data, plain = self._index, Encoding(self.file.byteorder, 8, 4, 0)
        columns, units, slots = (plain.number(data, at, 4) for at in (4, 8, 12))
        if not 0 < slots <= _MAX_SLOTS or slots & slots - 1 or columns > 16:
            raise Malformed("a damaged index of a package")
        slot, step = number & slots - 1, number >> 32 & slots - 1 | 1
        for _ in range(slots):
            row = plain.number(data, 16 + 8 * slots + 4 * slot, 4)
            if not row:
                return None
            if plain.number(data, 16 + 8 * slot, 8) == number and row <= units:
                return self._made(row, columns, 16 + 12 * slots, skeleton)
            slot = slot + step & slots - 1
        return None

    def _made(self, row: int, columns: int, table: int, skeleton: Unit) -> Unit:
        data, plain = self._index or memoryview(b""), Encoding(self.file.byteorder, 8, 4, 0)
        part = DebugFile(self.file.sections)
        for column in range(columns):
            kind = plain.number(data, table + 4 * column, 4)
            if kind in _COLUMNS:
                at = table + 4 * (columns * row + column)
                part.bases[_COLUMNS[kind]] = plain.number(data, at, 4)
        header = Header(part.sections[".debug_info"], part.bases.get("info", 0), part.byteorder)
        return Unit(part, header, skeleton)
