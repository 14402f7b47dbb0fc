"""Inlined copies of functions: the places at which their code begins in other functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.terminal import progress
from usdt.dwarf.lines.inlining import TYPES, walk_code
from usdt.dwarf.units.constants import At, Form, Tag, UnitType
from usdt.dwarf.units.dies import Die
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.forms import ADDRESS_INDEXES, MalformedDwarf, read_form, read_uleb128
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.index.files import DebugFiles
    from usdt.dwarf.places.scopes import CodePlace, CodeScopes
    from usdt.dwarf.units.forms import Abbreviation, FormValue
    from usdt.dwarf.units.units import Unit

__all__ = ("InlinedFinder",)

_MAX_COPIES = 1 << 16
_MANGLED = ("_Z", "_R")
_INLINED = frozenset((Tag.INLINED_SUBROUTINE,))


class InlinedFinder:
    """The inlined copies of a program's functions.

    Args:
        files: the files with its debug information.
        scopes: its functions and blocks.
        qualified: returns the qualified name of an entry.
    """

    def __init__(
        self, files: DebugFiles, scopes: CodeScopes, qualified: Callable[[Die], str]
    ) -> None:
        self._files = files
        self._scopes = scopes
        self._qualified = qualified
        self._names: dict[tuple[int, int, int, int], tuple[str, ...]] = {}

    def find(self, matches: Callable[[str], bool]) -> list[CodePlace]:
        """Return the places of the copies of some functions, sorted by address.

        Every unit is read, some 10 MB a second.

        Args:
            matches: returns whether a function of a linkage name, or a qualified one, is wanted.

        Raises:
            DwarfError: the debug information is damaged.
            LookupError: likewise.
        """
        found: dict[tuple[int, str], CodePlace] = {}
        for unit, entry in self._copies(matches):
            address = _entry_address(unit, entry)
            place = None if address is None else self._place(unit, entry.at, address)
            if place is not None:
                found.setdefault((place.address, place.function), place)
                if len(found) > _MAX_COPIES:
                    raise MalformedDwarf(f"more than {_MAX_COPIES} inlined copies of a function")
        return [found[key] for key in sorted(found)]

    def counts(self, matches: Callable[[str], bool]) -> dict[str, int]:
        """Return the number of copies of each function that matches, as :meth:`find`.

        The first call reads every unit and keeps where each copy is described, in some 100 bytes a
        copy: commands ask for one function after another.
        """
        found: dict[str, set[int]] = {}
        for names, copies in self._copies_by_names.items():
            if not _wanted(names, matches):
                continue
            for unit, at in copies:
                address = _entry_address(unit, Entry(unit, at))
                if address is not None:
                    found.setdefault(names[0], set()).add(address)
        return {name: len(addresses) for name, addresses in found.items()}

    @functools.cached_property
    def _copies_by_names(self) -> dict[tuple[str, ...], list[tuple[Unit, int]]]:
        found: dict[tuple[str, ...], list[tuple[Unit, int]]] = {}
        for unit, at, names in self._all_copies():
            found.setdefault(names, []).append((unit, at))
        return found

    def _copies(self, matches: Callable[[str], bool]) -> Iterator[tuple[Unit, Entry]]:
        wanted: dict[tuple[str, ...], bool] = {}
        for unit, at, names in self._all_copies():
            if names not in wanted:
                wanted[names] = _wanted(names, matches)
            if wanted[names]:
                yield unit, Entry(unit, at)

    def _all_copies(self) -> Iterator[tuple[Unit, int, tuple[str, ...]]]:
        for unit in self._units():
            for at, abbreviation, _, _ in walk_code(unit, unit.header.first, _INLINED, TYPES):
                yield unit, at, self._names_of(unit, at, _origin(unit, at, abbreviation))

    def _units(self) -> Iterator[Unit]:
        main = self._files.main
        what = f"searching inlined functions of {self._files.name}"
        headers = progress.through(main.headers, what, len(main.headers))
        for number, header in enumerate(headers):
            if header.kind not in (UnitType.COMPILE, UnitType.SKELETON):
                continue
            try:
                yield self._files.full_unit(main.unit(header))
            except DAMAGE:
                continue  # the index has reported it
            if number % 64 == 63:
                main.sections.drop_units()

    def _names_of(self, unit: Unit, at: int, origin: FormValue | None) -> tuple[str, ...]:
        # The linkage name; without one, as static functions of C++, also the qualified name.
        if origin is None:
            return ("",)
        key = id(unit.file), unit.header.at, *origin
        if key not in self._names:
            name = unit.name(at)
            full = () if name.startswith(_MANGLED) else (self._qualified_at(unit, at),)
            self._names[key] = (name, *full)
        return self._names[key]

    def _qualified_at(self, unit: Unit, at: int) -> str:
        return self._qualified(Die(unit, at, self._files.follow))

    def _place(self, unit: Unit, at: int, address: int) -> CodePlace | None:
        own = address - self._files.bias
        found = self._scopes.chain(own)
        if found is None:
            return None
        position, chain = found
        number = next((n for n, die in enumerate(chain) if die.at == at and die.unit is unit), None)
        return None if number is None else self._scopes.place_of(position, chain[number:], own)


def _wanted(names: tuple[str, ...], matches: Callable[[str], bool]) -> bool:
    return any(map(matches, filter(None, names)))


def _origin(unit: Unit, at: int, abbreviation: Abbreviation) -> FormValue | None:
    # The first attribute of most copies: what follows it is read for the wanted ones alone.
    _, at = read_uleb128(unit.data, at)
    for name, form, constant in abbreviation.attributes:
        value, at = read_form(unit.data, at, form, constant, unit.encoding)
        if name == At.ABSTRACT_ORIGIN:
            return value
    return None


def _entry_address(unit: Unit, entry: Entry) -> int | None:
    # The first instruction to be executed; None if the copy has no code.
    ranges = unit.ranges(entry)
    if not ranges:
        return None
    raw = entry.values.get(At.ENTRY_PC)
    if raw is None:
        return ranges[0][0]
    if raw.form == Form.ADDR or raw.form in ADDRESS_INDEXES:
        address = unit.address(raw)
    else:
        address = ranges[0][0] + raw.value
    return address if any(low <= address < high for low, high in ranges) else ranges[0][0]
