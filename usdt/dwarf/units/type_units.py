"""Type units: types that units share, identified by a signature of eight bytes.

DWARF 4 has them in ``.debug_types``, DWARF 5 in ``.debug_info``.
"""

from __future__ import annotations

import bisect
import contextlib
import enum
from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import UnitType
from usdt.dwarf.units.errors import DAMAGE, DwarfError
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.units import DebugFile, Unit, UnitHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.sections import SectionBytes

__all__ = ("SplitSection", "SplitTypes", "TypesFile", "signature_of")

_MAX_SECTION = 1 << 30  # bytes of a section before the end of its last type unit


class SplitSection(enum.IntEnum):
    """A section with type units in a split unit's file; the value is that of packed positions."""

    INFO = 2  # .debug_info of DWARF 5
    TYPES = 3  # .debug_types of DWARF 4


class TypesFile(DebugFile):
    """The units in ``.debug_types`` of a file."""

    def __init__(self, main: DebugFile) -> None:
        super().__init__(_TypesSections(main.sections), main.alternative)
        self.bases = main.bases
        self._main = main

    def header_at(self, at: int) -> UnitHeader:
        """Return the header of the unit at a position."""
        header = UnitHeader(self.sections[".debug_info"], at, self.byteorder)
        header.kind = UnitType.TYPE
        header.first += (
            8 + header.encoding.offset_size
        )  # the signature, and the position of the type
        return header

    def unit_containing(self, at: int) -> tuple[Unit, int]:
        """Return the unit of a position in ``.debug_info``, which references point into."""
        return self._main.unit_containing(at)


class _TypesSections(DebugSections):
    # The same sections, with ".debug_types" in place of ".debug_info".
    def __init__(self, inner: DebugSections) -> None:
        super().__init__(inner.elf)
        self._inner = inner

    def __getitem__(self, name: str) -> SectionBytes:
        return self._inner[".debug_types" if name == ".debug_info" else name]


class SplitTypes:
    """The type units of a ``.dwo`` file or of a package.

    Args:
        file: the ``.dwo`` file, or any part of the package.
        parts: for a package, the part of each type unit; else None.
    """

    def __init__(self, file: DebugFile, parts: list[DebugFile] | None) -> None:
        self._signed: dict[int, tuple[Unit, int]] = {}
        self._units: dict[tuple[SplitSection, int], Unit] = {}  # by section and offset
        self._starts: list[tuple[SplitSection, int]] | None = None
        for unit in _units_of(file) if parts is None else _packaged(parts):
            with contextlib.suppress(*DAMAGE):  # a reference to it reports that it is missing
                number, position = signature_of(unit)
                self._signed[number] = unit, position
                self._units[_start(unit)] = unit

    def signed(self, number: int) -> tuple[Unit, int] | None:
        """Return the unit with a signature, and the position of the type in it."""
        return self._signed.get(number)

    def units(self) -> Iterator[tuple[SplitSection, int, Unit]]:
        """Yield the section, the offset in it and the unit, for each unit."""
        for (section, offset), unit in self._units.items():
            yield section, offset, unit

    def close(self) -> None:
        """Drop the units, to break reference cycles with their files; idempotent."""
        for unit in self._units.values():
            unit.file.close()
        self._signed.clear()
        self._units.clear()

    def containing(self, section: SplitSection, offset: int) -> tuple[Unit, int]:
        """Return the unit of an entry and the position in it, from the offset in the section.

        Raises:
            DwarfError: there is no such unit.
        """
        if self._starts is None:
            self._starts = sorted(self._units)
        index = bisect.bisect_right(self._starts, (section, offset)) - 1
        if index >= 0:
            start = self._starts[index]
            unit, position = self._units[start], offset - start[1]
            if start[0] == section and position < unit.header.end - unit.header.at:
                return unit, position
        raise DwarfError(f"no split type unit at {offset:#x}")


def _start(unit: Unit) -> tuple[SplitSection, int]:
    if unit.header.end >= _MAX_SECTION:
        raise DwarfError("type units more than a gigabyte into the section")
    in_types = isinstance(unit.file, TypesFile)
    return SplitSection.TYPES if in_types else SplitSection.INFO, unit.header.at


def _units_of(file: DebugFile) -> Iterator[Unit]:
    for part in (file, TypesFile(file)):
        for header in part.headers:
            if header.kind in (UnitType.TYPE, UnitType.SPLIT_TYPE):
                with contextlib.suppress(*DAMAGE):
                    yield part.unit(header)


def _packaged(parts: list[DebugFile]) -> Iterator[Unit]:
    for part in parts:
        with contextlib.suppress(*DAMAGE):
            if "types" in part.bases:
                types = TypesFile(part)
                types.share_abbreviations(part)
                yield Unit(types, types.header_at(part.bases["types"]))
            else:
                data = part.sections[".debug_info"]
                yield Unit(part, UnitHeader(data, part.bases.get("info", 0), part.byteorder))


def signature_of(unit: Unit) -> tuple[int, int]:
    """Return the signature of a type unit, and the position of its type."""
    size = unit.encoding.offset_size
    at = unit.header.first - 8 - size
    number = unit.encoding.number(unit.data, at, 8)
    return number, unit.encoding.number(unit.data, at + 8, size)
