"""Type units: types that many units share, found by a signature of eight bytes.

DWARF 4 keeps them in ``.debug_types``, DWARF 5 among the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.errors import DAMAGE
from usdt.dwarf.lines_units import DebugFile, Header
from usdt.dwarf.sections import DebugSections

if TYPE_CHECKING:
    from usdt.dwarf.lines_units import Unit

__all__ = ("TypesFile", "signature_of")

_MOST = 1 << 18
_UT_TYPE = 2


class TypesFile(DebugFile):
    """What is in ``.debug_types`` of a file."""

    def __init__(self, main: DebugFile) -> None:
        super().__init__(_TypesSections(main.sections), main.alternative)
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
                header = Header(data, at, self.byteorder)
            except DAMAGE as err:
                self.damage = str(err)
                break
            header.kind = _UT_TYPE
            header.first += 8 + header.encoding.offset_size  # the signature, and where its type is
            found.append(header)
            at = header.end
        return found

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


def signature_of(unit: Unit) -> tuple[int, int]:
    """The signature of a type unit, and where its type is in it."""
    size = unit.encoding.offset_size
    at = unit.header.first - 8 - size
    number = unit.encoding.number(unit.data, at, 8)
    return number, unit.encoding.number(unit.data, at + 8, size)
