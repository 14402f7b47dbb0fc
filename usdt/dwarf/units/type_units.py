"""Type units: types that many units share, found by a signature of eight bytes.

DWARF 4 keeps them in ``.debug_types``, DWARF 5 among the others.
"""

from __future__ import annotations

import bisect
import contextlib
from typing import TYPE_CHECKING

from usdt.dwarf.units.errors import DAMAGE, DwarfError
from usdt.dwarf.units.sections import DebugSections
from usdt.dwarf.units.units import DebugFile, Header, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("SplitTypes", "TypesFile", "signature_of")

_MOST = 1 << 18
_UT_TYPE, _UT_SPLIT_TYPE = 2, 6
_IN_TYPES = 1 << 30  # a position: in .debug_types, not in .debug_info


class TypesFile(DebugFile):
    """What is in ``.debug_types`` of a file."""

    def __init__(self, main: DebugFile) -> None:
        super().__init__(_TypesSections(main.sections), main.alternative)
        self.bases = main.bases
        self._main = main

    @property
    def headers(self) -> list[Header]:
        """Of every unit, in order."""
        found = self.__dict__.get("_headers")
        if found is None:
            found = self.__dict__["_headers"] = self._read_headers()
        return list(found)

    def _read_headers(self) -> list[Header]:
        data, at = self.sections[".debug_info"], 0
        found: list[Header] = []
        while at < len(data) and len(found) < _MOST:
            try:
                header = self.header(at)
            except DAMAGE as err:
                self.damage = str(err)
                break
            found.append(header)
            at = header.end
        return found

    def header(self, at: int) -> Header:
        """The header of the unit at a position."""
        header = Header(self.sections[".debug_info"], at, self.byteorder)
        header.kind = _UT_TYPE
        header.first += 8 + header.encoding.offset_size  # the signature, and where its type is
        return header

    def unit_with(self, at: int) -> tuple[Unit, int]:
        """The unit that a position in ``.debug_info`` is in: references lead there."""
        return self._main.unit_with(at)


class _TypesSections(DebugSections):
    # The same sections, with ".debug_types" in the place of ".debug_info".
    def __init__(self, inner: DebugSections) -> None:
        super().__init__(inner.elf)
        self._inner = inner

    def __getitem__(self, name: str) -> memoryview:
        return self._inner[".debug_types" if name == ".debug_info" else name]


class SplitTypes:
    """The type units of a ``.dwo`` file or of a package.

    Args:
        file: the one, or any part of the other.
        parts: of a package, what each type unit is in.
    """

    def __init__(self, file: DebugFile, parts: list[DebugFile] | None) -> None:
        self._signed: dict[int, tuple[Unit, int]] = {}
        self._placed: dict[int, Unit] = {}
        self._starts: list[int] | None = None
        for unit in _units_of(file) if parts is None else _packaged(parts):
            with contextlib.suppress(*DAMAGE):  # what refers to it says that it is not there
                number, place = signature_of(unit)
                self._signed[number] = unit, place
                self._placed[_position(unit)] = unit

    def signed(self, number: int) -> tuple[Unit, int] | None:
        """The unit with a signature, and where its type is in it."""
        return self._signed.get(number)

    def units(self) -> Iterator[tuple[int, Unit]]:
        """Each unit and a number below 1 << 31 for it."""
        yield from self._placed.items()

    def close(self) -> None:
        """Let the units go: they refer to their files, and these to them."""
        for unit in self._placed.values():
            unit.file.close()
        self._signed.clear()
        self._placed.clear()

    def around(self, position: int) -> tuple[Unit, int]:
        """The unit that such a number, or one of an entry in it, is of; and the entry's position.

        Raises:
            DwarfError: there is none.
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
        raise DwarfError("type units behind a gigabyte of others")
    return unit.header.at | (_IN_TYPES if isinstance(unit.file, TypesFile) else 0)


def _units_of(file: DebugFile) -> Iterator[Unit]:
    for part in (file, TypesFile(file)):
        for header in part.headers:
            if header.kind in (_UT_TYPE, _UT_SPLIT_TYPE):
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
                yield Unit(part, Header(data, part.bases.get("info", 0), part.byteorder))


def signature_of(unit: Unit) -> tuple[int, int]:
    """The signature of a type unit, and where its type is in it."""
    size = unit.encoding.offset_size
    at = unit.header.first - 8 - size
    number = unit.encoding.number(unit.data, at, 8)
    return number, unit.encoding.number(unit.data, at + 8, size)
