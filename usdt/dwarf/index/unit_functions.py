"""Functions by address without the index: ``.debug_aranges`` or ``.gdb_index`` name the unit.

Only that unit is read. Building the index takes a second for each 60 MiB of entries, which one
question about one function does not need.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.dwarf.index.abbrev_skim import AbbrevSection
from usdt.dwarf.index.files import DiePosition
from usdt.dwarf.index.indexer import UnitIndexer
from usdt.dwarf.index.name_tables import NameTables
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.forms import UnitEncoding
from usdt.dwarf.units.ranges import read_aranges

if TYPE_CHECKING:
    from usdt.dwarf.index.files import DebugFiles

__all__ = ("UnitFunctions",)

_MAX_UNITS = 8  # units of one address; a linker that folds equal functions makes it several
_MAX_KEPT = 64  # units whose functions are kept


class UnitFunctions:
    """The functions of a file by address, as far as a table tells their units.

    Args:
        files: the files with the debug information.
    """

    def __init__(self, files: DebugFiles) -> None:
        self._files = files
        self._kept: dict[int, dict[int, list[DiePosition]]] = {}

    def function(self, address: int) -> list[DiePosition]:
        """Return the positions of the functions that begin at an address.

        An empty list means that only the index can tell: the table is missing, does not have the
        address or is damaged, or the unit is damaged or in a missing file.
        """
        found: list[DiePosition] = []
        try:
            units = {at for low, high, at in self._ranges if low <= address < high}
            if len(units) > _MAX_UNITS:
                return []
            for at in sorted(units):
                found += self._functions(at).get(address, ())
        except DAMAGE:
            return []  # the index says what is damaged
        return found

    @functools.cached_property
    def _ranges(self) -> list[tuple[int, int, int]]:
        main = self._files.main
        plain = UnitEncoding(main.byteorder, 8, 4, 0)
        listed = list(read_aranges(main.sections[".debug_aranges"], plain))
        return listed or NameTables(main).ranges()

    @functools.cached_property
    def _abbreviations(self) -> AbbrevSection:
        return AbbrevSection(self._files.main.abbreviation_bytes, self._files.name)

    def _functions(self, at: int) -> dict[int, list[DiePosition]]:
        found = self._kept.get(at)
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            found = self._kept[at] = self._read(at)
        return found

    def _read(self, at: int) -> dict[int, list[DiePosition]]:
        main = self._files.main
        number = main.number_at(at)
        header = None if number is None else main.header(number)
        if number is None or header is None:
            return {}
        unit = main.unit(header)
        indexer = UnitIndexer(self._abbreviations, names=False)
        full = self._files.full_unit(unit) if indexer.is_split(unit) else unit
        self._files.answers.note_cost(header.end, len(full.data))
        if full is not unit:
            split = full.file
            indexer.use_abbreviations(AbbrevSection(split.abbreviation_bytes, split.sections.name))
        indexer.add_unit(full, DiePosition(number, 0))
        found: dict[int, list[DiePosition]] = {}
        for address, packed in indexer.functions:
            found.setdefault(address, []).append(DiePosition.unpack(packed))
        return found
