"""Functions within functions, which the index leaves out: to list them every entry has to be read.

They are looked for where an address is that the index knows no function at: GNU C's nested
functions, methods of classes that a function declares, lambdas, a Rust function in another.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.dwarf.lines.inlining import functions_of
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.forms import Encoding
from usdt.dwarf.units.ranges import RangeMap, read_aranges
from usdt.dwarf.units.units import UT_COMPILE, UT_SKELETON, Entry

if TYPE_CHECKING:
    from usdt.dwarf.index.files import DebugFiles

__all__ = ("Nested",)

_MOST_UNITS = 32  # whose functions are kept


class Nested:
    """The functions of a file by address, read unit by unit.

    Args:
        files: where the debug information is.
    """

    def __init__(self, files: DebugFiles) -> None:
        self._files = files
        self._kept: dict[int, tuple[list[int], RangeMap]] = {}

    def at(self, address: int) -> list[tuple[int, int]]:
        """Number of the unit and position of the function that begins at an address.

        Raises:
            DwarfError: the unit is damaged.
            LookupError: likewise.
        """
        number = self._units.find(address)
        if number is None:
            return []
        unit = self._files.unit(number)
        if number not in self._kept:
            if len(self._kept) >= _MOST_UNITS:
                self._kept.clear()
            self._kept[number] = functions_of(unit, nested=True)
        places, ranges = self._kept[number]
        found = ranges.find(address)
        if found is None:
            return []
        place = places[found]
        begins = any(low == address for low, _ in unit.ranges(Entry(unit, place)))
        return [(number, place)] if begins else []

    @functools.cached_property
    def _units(self) -> RangeMap:
        # Which unit each address is in. Damaged ones are the index's to tell.
        main = self._files.main
        rows: list[tuple[int, int, int, int]] = []
        numbers = {header.at: number for number, header in enumerate(main.headers)}
        listed = set()
        try:
            plain = Encoding(main.byteorder, 8, 4, 0)
            for low, high, at in read_aranges(main.sections[".debug_aranges"], plain):
                if at in numbers:
                    rows.append((low, high, 0, numbers[at]))
                    listed.add(at)
        except DAMAGE:
            pass  # what came before it is right
        for header in main.headers:
            if header.at not in listed and header.kind in (UT_COMPILE, UT_SKELETON):
                try:
                    unit = main.unit(header)
                    ranges = unit.ranges(unit.root)
                except DAMAGE:
                    continue
                rows += [(low, high, 0, numbers[header.at]) for low, high in ranges]
        return RangeMap(rows)
