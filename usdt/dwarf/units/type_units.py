"""Type units: types that units share, identified by a signature of eight bytes.

DWARF 4 has them in ``.debug_types``, DWARF 5 in ``.debug_info``.
"""

from __future__ import annotations

import bisect
import contextlib
from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import UnitType
from usdt.dwarf.units.errors import DAMAGE, DwarfError
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.units import DebugFile, Unit, UnitHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("SplitTypes", "TypesFile", "signature_of")

_MAX = 1 << 18
_IN_TYPES = 1 << 30  # marks a position in .debug_types, not in .debug_info


class TypesFile(DebugFile):
    """The units in ``.debug_types`` of a file."""

    def __init__(self, main: DebugFile) -> None:
        super().__init__(_TypesSections(main.sections), main.alternative)
        self.bases = main.bases
        self._main = main

    @property
    def headers(self) -> list[UnitHeader]:
        """The header of every unit, in order."""
        found = self.__dict__.get("_headers")
        if found is None:
            found = self.__dict__["_headers"] = self._read_headers()
        return list(found)

    def _read_headers(self) -> list[UnitHeader]:
        data, at = self.sections[".debug_info"], 0
        found: list[UnitHeader] = []
        while at < len(data) and len(found) < _MAX:
            try:
                header = self.header(at)
            except DAMAGE as err:
                self.damage = str(err)
                break
            found.append(header)
            at = header.end
        return found

    def header(self, at: int) -> UnitHeader:
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

    def __getitem__(self, name: str) -> memoryview:
        return self._inner[".debug_types" if name == ".debug_info" else name]


class SplitTypes:
    """The type units of a ``.dwo`` file or of a package.

    Args:
        file: the ``.dwo`` file, or any part of the package.
        parts: for a package, the part of each type unit; else None.
    """

    def __init__(self, file: DebugFile, parts: list[DebugFile] | None) -> None:
        self._signed: dict[int, tuple[Unit, int]] = {}
        self._placed: dict[int, Unit] = {}
        self._starts: list[int] | None = None
        for unit in _units_of(file) if parts is None else _packaged(parts):
            with contextlib.suppress(*DAMAGE):  # a reference to it reports that it is missing
                number, place = signature_of(unit)
                self._signed[number] = unit, place
                self._placed[_position(unit)] = unit

    def signed(self, number: int) -> tuple[Unit, int] | None:
        """Return the unit with a signature, and the position of the type in it."""
        return self._signed.get(number)

    def units(self) -> Iterator[tuple[int, Unit]]:
        """Yield (number, unit) for each unit; numbers are below 1 << 31."""
        yield from self._placed.items()

    def close(self) -> None:
        """Drop the units, to break reference cycles with their files; idempotent."""
        for unit in self._placed.values():
            unit.file.close()
        self._signed.clear()
        self._placed.clear()

    def containing(self, position: int) -> tuple[Unit, int]:
        """Return the unit and the position of an entry, from their sum: unit number + position.

        Raises:
            DwarfError: there is no such unit.
        """
        if self._starts is None:
            self._starts = sorted(self._placed)
        index = bisect.bisect_right(self._starts, position) - 1
        unit = self._placed[self._starts[index]] if index >= 0 else None
        if unit is None or position - self._starts[index] >= len(unit.data):
            raise DwarfError(f"no split type unit at {position:#x}")
        return unit, position - self._starts[index]


def _position(unit: Unit) -> int:
    if unit.header.end >= _IN_TYPES:
        raise DwarfError("type units more than a gigabyte into the section")
    return unit.header.at | (_IN_TYPES if isinstance(unit.file, TypesFile) else 0)


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
                yield Unit(types, types.header(part.bases["types"]))
            else:
                data = part.sections[".debug_info"]
                yield Unit(part, UnitHeader(data, part.bases.get("info", 0), part.byteorder))


def signature_of(unit: Unit) -> tuple[int, int]:
    """Return the signature of a type unit, and the position of its type."""
    size = unit.encoding.offset_size
    at = unit.header.first - 8 - size
    number = unit.encoding.number(unit.data, at, 8)
    return number, unit.encoding.number(unit.data, at + 8, size)
