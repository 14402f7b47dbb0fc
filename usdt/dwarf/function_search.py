"""Functions by address: where an earlier run has found them, in their unit, or by the index."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.dwarf.units.constants import Tag
from usdt.dwarf.units.errors import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.dwarf.index.files import DebugFiles, DiePosition
    from usdt.dwarf.index.index import DebugIndex
    from usdt.dwarf.index.nested_functions import NestedFunctions
    from usdt.dwarf.index.unit_functions import UnitFunctions

__all__ = ("FunctionSearch",)

_FUNCTION, _SOURCE = "f", "s"  # before keys of answers


class FunctionSearch:
    """The functions of a file.

    Args:
        files: the files with the debug information.
        known: returns the index that is in memory or cached, or None.
        build: builds the index, for what no table tells.
    """

    def __init__(
        self,
        files: DebugFiles,
        known: Callable[[], DebugIndex | None],
        build: Callable[[], DebugIndex],
    ) -> None:
        self._files = files
        self._known = known
        self._build = build
        self._index: DebugIndex | None = None  # once a function has needed it

    # What an earlier run has found needs neither.

    @functools.cached_property
    def _units(self) -> UnitFunctions:
        from usdt.dwarf.index.unit_functions import UnitFunctions  # noqa: PLC0415 - see above

        return UnitFunctions(self._files)

    @functools.cached_property
    def nested(self) -> NestedFunctions:
        """The functions inside functions."""
        from usdt.dwarf.index.nested_functions import NestedFunctions  # noqa: PLC0415 - see above

        return NestedFunctions(self._files)

    def at(self, address: int) -> list[DiePosition]:
        """Return the positions of the functions that begin at an address.

        Raises:
            DwarfError: the debug information is damaged.
            LookupError: likewise.
        """
        found = self._kept(address)
        if not found and self._index is None:
            # Reading the unit that has the address takes milliseconds, building the index seconds.
            found = self._units.function(address)
            self._keep(address, found)
        if not found:
            self._index = self._build()
            found = self._index.function(address) or self.nested.at(address)
        return found

    def around(self, address: int) -> DiePosition | None:
        """Return the function that begins at an address, else the innermost one around it.

        Raises: as :meth:`at`.
        """
        found = self._kept(address)
        if not found:
            found = (self._known() or self._units).function(address)
            self._keep(address, found)
        return next(iter(found), None) or self.nested.around(address)

    def _keep(self, address: int, found: list[DiePosition]) -> None:
        if found:
            self._files.keep(f"{_FUNCTION}{address:x}", found)

    def _kept(self, address: int) -> list[DiePosition]:
        kept = self._files.kept(f"{_FUNCTION}{address:x}", (Tag.SUBPROGRAM,))
        try:
            if all(die.unit.entry_address(die.at) == address for _, die in kept or ()):
                return [position for position, _ in kept or ()]
        except DAMAGE:
            pass
        return []

    def source(self, position: DiePosition, read: Callable[[], str]) -> str:
        """Return the source file of a function, which takes longer to read than to find it."""
        key = f"{_SOURCE}{position.packed:x}"
        kept = self._files.answers.get(key)
        if kept is not None and len(kept) == 1:
            return kept[0]
        found = read()
        if not self._files.missing_file:
            self._files.answers.put(key, found)
        return found
