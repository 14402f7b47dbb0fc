"""Prologues of functions: the instructions that store parameters where debug information says.

Before they have run, only location lists say where a parameter is. Compilers mark the end of a
prologue (clang, rustc), or begin the second row of the line table there (gcc without optimization).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.dwarf.lines.line_program import LineTable, table_of
from usdt.dwarf.units.constants import At, Form

if TYPE_CHECKING:
    from usdt.dwarf.units.dies import Die
    from usdt.dwarf.units.units import Unit

__all__ = ("Prologues",)

_MAX_UNITS = 8  # units whose line tables are kept
_MAX_CODES = 1 << 16  # abbreviations of a unit
_LISTS = (Form.LOCLISTX, Form.SEC_OFFSET, Form.DATA4, Form.DATA8)


class Prologues:
    """The prologues of functions. All addresses are those of the file of the debug information."""

    def __init__(self) -> None:
        self._tables: dict[tuple[int, int], tuple[LineTable | None, bool]] = {}

    def behind(self, function: Die, address: int) -> int:
        """Return the end of the prologue if the address is in it, else the address.

        Raises:
            DwarfError: the line table is damaged.
            LookupError: likewise.
        """
        low, end, optimized = self._bounds(function)
        if optimized and address != low:
            return address
        return end if low <= address < end else address

    def contains(self, function: Die, address: int) -> bool:
        """Return whether parameters may not be stored yet at an address.

        Raises: as :meth:`behind`.
        """
        low, end, _ = self._bounds(function)
        return low <= address < max(end, low + 1)

    def _bounds(self, function: Die) -> tuple[int, int, bool]:
        # Start and end; whether the compiler has optimized the unit.
        ranges = function.ranges()
        if not ranges:
            return 0, 0, True
        low, high = ranges[0]
        table, optimized = self._table(function.unit)
        rows = [] if table is None else list(table.after(low, high))
        end = next((row.address for row in rows if row.prologue_end), low)
        if end == low and rows and not optimized:
            end = rows[0].address
        return low, end, optimized

    def _table(self, unit: Unit) -> tuple[LineTable | None, bool]:
        key = id(unit.file), unit.header.at
        if key not in self._tables:
            if len(self._tables) >= _MAX_UNITS:
                self._tables.clear()
            self._tables[key] = table_of(unit, LineTable), _has_lists(unit)
        return self._tables[key]


def _has_lists(unit: Unit) -> bool:
    # Whether variables of a unit have location lists, which tells that it is optimized.
    return any(
        name == At.LOCATION and form in _LISTS
        for abbreviation in unit.abbreviations.every(_MAX_CODES)
        for name, form, _ in abbreviation.attributes
    )
