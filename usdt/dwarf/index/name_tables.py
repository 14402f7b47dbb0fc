"""The tables of names that linkers and debuggers write: ``.gdb_index`` and ``.debug_names``.

They are hints: what they lead to is read, and what they do not have is searched.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.dwarf.index.debug_names import DebugNames
from usdt.dwarf.index.gdb_index import GdbIndex
from usdt.dwarf.units.errors import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.units import DebugFile

__all__ = ("NameTables",)

_MAX_UNITS = 4  # of one name, of which the first nearly always defines it
_MAX_POSITIONS = 1 << 12


class NameTables:
    """The tables of one file; damaged ones are as if they were not there.

    Args:
        file: the file.
    """

    def __init__(self, file: DebugFile) -> None:
        self._file = file

    def units(self, name: str) -> list[int]:
        """Return the positions of the first units that have a type of a qualified name."""
        try:
            found = set(itertools.islice(self._positions(name), _MAX_POSITIONS))
        except (*DAMAGE, TracingError):
            return []
        return sorted(found)[:_MAX_UNITS]

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return the ranges of addresses: start, end, position of the unit."""
        with contextlib.suppress(*DAMAGE, TracingError):
            if self._gdb_index is not None:
                return self._gdb_index.ranges
        return []

    def _positions(self, name: str) -> Iterator[int]:
        if self._gdb_index is not None:
            yield from self._gdb_index.types(name)
        if self._debug_names is not None:
            yield from self._debug_names.types(name)

    @functools.cached_property
    def _gdb_index(self) -> GdbIndex | None:
        data = self._file.sections[".gdb_index"]
        return GdbIndex(data) if len(data) else None

    @functools.cached_property
    def _debug_names(self) -> DebugNames | None:
        sections = self._file.sections
        data = sections[".debug_names"]
        if not len(data):
            return None
        return DebugNames(data, sections[".debug_str"], self._file.byteorder)
