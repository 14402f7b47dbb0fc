"""Functions inside functions, which the index omits: finding them requires reading every entry.

Examples are GNU C's nested functions, methods of classes that a function declares, lambdas, and
Rust functions inside functions. If the index does not have an address, this module searches the
unit of that address.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.dwarf.index.files import DiePosition
from usdt.dwarf.lines.inlining import read_functions
from usdt.dwarf.units.constants import UnitType
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.forms import UnitEncoding
from usdt.dwarf.units.ranges import RangeMap, read_aranges
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from usdt.dwarf.index.files import DebugFiles

__all__ = ("NestedFunctions",)

_MAX_UNITS = 32  # units whose functions are cached


class NestedFunctions:
    """The functions of a file by address, read unit by unit.

    Args:
        files: the files with the debug information.
    """

    def __init__(self, files: DebugFiles) -> None:
        self._files = files
        self._kept: dict[int, tuple[list[int], RangeMap]] = {}

    def at(self, address: int) -> list[DiePosition]:
        """Return the position of the function at an address, in a list; [] if none begins there.

        Raises:
            DwarfError: the unit is damaged.
            LookupError: likewise.
        """
        found = self.around(address)
        if found is None:
            return []
        unit = self._files.unit(found.unit)
        begins = any(low == address for low, _ in unit.ranges(Entry(unit, found.offset)))
        return [found] if begins else []

    def around(self, address: int) -> DiePosition | None:
        """Return the position of the innermost function that contains an address; None if none.

        Raises: as :meth:`at`.
        """
        number = self._units.find(address)
        if number is None:
            return None
        unit = self._files.unit(number)
        if number not in self._kept:
            if len(self._kept) >= _MAX_UNITS:
                self._kept.clear()
            self._kept[number] = read_functions(unit, nested=True)
        positions, ranges = self._kept[number]
        found = ranges.find(address)
        return None if found is None else DiePosition(number, positions[found])

    @functools.cached_property
    def _units(self) -> RangeMap:
        # Address → number of the unit. The index has already reported damaged units.
        main = self._files.main
        rows: list[tuple[int, int, int, int]] = []
        numbers = {header.at: number for number, header in enumerate(main.headers)}
        listed = set()
        try:
            plain = UnitEncoding(main.byteorder, 8, 4, 0)
            for low, high, at in read_aranges(main.sections[".debug_aranges"], plain):
                if at in numbers:
                    rows.append((low, high, 0, numbers[at]))
                    listed.add(at)
        except DAMAGE:
            pass  # keep the ranges before the damage
        for header in main.headers:
            if header.at not in listed and header.kind in (UnitType.COMPILE, UnitType.SKELETON):
                try:
                    unit = main.unit(header)
                    ranges = unit.ranges(unit.root)
                except DAMAGE:
                    continue
                rows += [(low, high, 0, numbers[header.at]) for low, high in ranges]
        return RangeMap(rows)
