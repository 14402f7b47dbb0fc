"""Variables by name without the index: their symbols and the bytes of their addresses.

A variable that the linker has placed has a symbol. Its address stands in one entry of
``.debug_info``, and searching these bytes is a hundred times as fast as reading all entries. Names
without a symbol are searched as bytes, as types are.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, NamedTuple

from usdt.base.text import encoded, most_alike
from usdt.demangle.demangle import demangle
from usdt.dwarf.index.type_search import NotSearchable
from usdt.dwarf.types.variables import location_of
from usdt.dwarf.units.constants import Op, Tag, VariableKind
from usdt.dwarf.units.dies import Die
from usdt.dwarf.units.errors import DAMAGE
from usdt.dwarf.units.scopes import ANONYMOUS
from usdt.elf.format import SHT_SYMTAB, STT_OBJECT, STT_TLS
from usdt.elf.symbol_table import SymbolTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.index.files import DebugFiles, DiePosition
    from usdt.dwarf.index.index import DebugIndex
    from usdt.dwarf.index.type_search import TypeSearch
    from usdt.dwarf.units.units import UnitHeader

__all__ = ("KnownVariables", "VariableSearch")

_MAX_PLACES = 8  # addresses that are searched at once
_MAX_NEAR = 32  # names that are compared with a misspelled one
_BY_NAME = "~"  # before names that were searched as bytes, among the answers
_NEAR, _IMPORTED = "?", "i"  # before misspelled names and those of symbols there
_RUST_HASH = "17h"  # in symbols of older Rust
_ABI_TAG = "[abi:"  # in names of C++ with a tag, which debug information leaves out
_TAGS = (Tag.VARIABLE, Tag.MEMBER)
_NO_VARIABLES = ("_ZZ", "_ZG", "_ZT")  # of functions, guards, virtual tables
_LOCATED, _UNLOCATED = VariableKind.LOCATED, VariableKind.UNLOCATED


class _Likely(NamedTuple):
    # The units that may have a variable: those that were found, and a search for more.
    known: list[tuple[int, UnitHeader]]
    more: Iterator[tuple[int, UnitHeader]]


class _Found(NamedTuple):
    located: tuple[DiePosition, ...] = ()
    unlocated: tuple[DiePosition, ...] = ()


class VariableSearch:
    """The variables of a file by name.

    Args:
        files: the files with the debug information.
        search: the search in ``.debug_info``.
    """

    def __init__(self, files: DebugFiles, search: TypeSearch) -> None:
        self._files = files
        self._main = files.main
        self._search = search
        self._found: dict[str, _Found] = {}
        self._likely: dict[str, _Likely] = {}
        self._classes: dict[str, Die | None] = {}

    def by_symbol(self, name: str) -> tuple[DiePosition, ...]:
        """Return the positions of the variables of a qualified name that have a symbol.

        Raises:
            NotSearchable: only the index tells.
        """
        return self._answer(name, self._by_symbol).located

    def by_name(self, name: str) -> tuple[DiePosition, ...]:
        """Return the positions of the other variables of a qualified name: constants, declarations.

        Raises:
            NotSearchable: only the index tells.
        """
        found = self._answer(f"{_BY_NAME}{name}", self._by_name)
        return found.located + found.unlocated

    def constants(self, name: str) -> tuple[DiePosition, ...]:
        """Return the positions of those without an address whose name a symbol has.

        Raises:
            NotSearchable: only the index tells.
        """
        return self._answer(name, self._by_symbol).unlocated

    def is_imported(self, name: str) -> bool:
        """Return True if the file refers to a symbol of a name that another file may define."""
        kept = self._files.answers.get(f"{_IMPORTED}{name}")
        if kept is not None:
            return bool(kept)
        found = self._symbols is not None and any(self._symbols.variables(name))
        self._files.answers.put(f"{_IMPORTED}{name}", *("1",) * found)
        return found

    @property
    def is_large(self) -> bool:
        """True if it takes long to search all units."""
        return self._search.is_large

    def _answer(self, key: str, find: Callable[[str], _Found]) -> _Found:
        found = self._found.get(key) or self._kept(key)
        if found is None:
            try:
                found = find(key.removeprefix(_BY_NAME))
            except DAMAGE as err:
                raise NotSearchable(str(err)) from err  # the index says what is damaged
            self._files.keep(f"{_LOCATED.value}{key}", found.located)
            self._files.keep(f"{_UNLOCATED.value}{key}", found.unlocated)
        self._found[key] = found
        return found

    def _kept(self, key: str) -> _Found | None:
        kept = [self._files.kept(f"{kind.value}{key}", _TAGS) for kind in (_LOCATED, _UNLOCATED)]
        parts = [tuple(position for position, _ in one) for one in kept if one is not None]
        return _Found(*parts) if len(parts) == len(kept) else None

    @property
    def lacks_files(self) -> bool:
        """True if a part of the debug information was not found."""
        return bool(self._files.missing_file)

    def names_like(self, name: str) -> list[str] | None:
        """Return names of variables that are most like a name; None if the file has no symbols."""
        kept = self._files.answers.get(f"{_NEAR}{name}")
        if kept is not None:
            return [*kept]
        if self._symbols is None:
            return None
        names = self._symbols.names_of((STT_OBJECT, STT_TLS), [(0, 1 << 64)])
        last = name.rpartition("::")[2]
        plain = [one for one in names if "." not in one and not one.startswith(_NO_VARIABLES)]
        mangled = f"{len(encoded(last))}{last}E"  # the same name in another scope
        same = itertools.islice((one for one in plain if mangled in one), _MAX_NEAR)
        alike = dict.fromkeys((*same, *most_alike(last, plain, _MAX_NEAR)))
        found = [*map(demangle, alike)]
        self._files.answers.put(f"{_NEAR}{name}", *found)
        return found

    # ------------------------------------------------------------ by address

    @property
    def _symbols(self) -> SymbolTable | None:
        elf = self._main.sections.elf
        tables = (SymbolTable(elf, one) for one in elf.sections if one.type == SHT_SYMTAB)
        return next(tables, None)

    def _by_symbol(self, name: str) -> _Found:
        # Reads units with one of the addresses, until the entry of each address is found.
        self._search.check_searchable(name)
        if not name.rpartition("::")[2].isidentifier():
            raise NotSearchable("a name with template arguments")
        if self._symbols is None:
            raise NotSearchable("no symbols")
        rows = self._symbols.data_containing(name.rpartition("::")[2])
        places = {row[1:] for row in rows if _may_name(row[0], name)}
        if len(places) > _MAX_PLACES:
            raise NotSearchable("many variables of one name")
        patterns = {one: place[0] for place in places for one in self._patterns(*place)}
        missing = set(patterns.values())  # addresses without an entry so far
        told = set()  # of those, the ones in units that were read
        seen: set[int] = set()  # units
        found: list[DiePosition] = []
        data = self._main.sections[".debug_info"]
        for at in self._search.positions([*patterns]) if patterns else ():
            told |= {place for one, place in patterns.items() if data[at : at + len(one)] == one}
            unit = self._search.unit_at(at)
            if unit[0] in seen:
                continue
            seen.add(unit[0])
            located, placed = self._in_unit(*unit, name)
            found += located
            missing -= placed
            if not missing:
                break
        # An entry inside a function has the others; or the file has no entry of them.
        if missing - told:  # of a constant, or its entry has another address and a distance
            others = self._by_name(name)
            return _Found(tuple(dict.fromkeys((*found, *others.located))), others.unlocated)
        return _Found(tuple(found))

    def _in_unit(
        self, number: int, header: UnitHeader, name: str
    ) -> tuple[list[DiePosition], set[int]]:
        # The variables of a name in a unit, and the addresses of all that have its last part.
        names = self._search.names_in(number, header)
        if VariableKind.INSTANCE.value in names:
            raise NotSearchable("variables whose names other entries have")
        last = name.rpartition("::")[2]
        found: list[DiePosition] = []
        placed: set[int] = set()
        for key, position in names.items():
            if key.startswith(_LOCATED.value) and key.endswith(last):
                place = location_of(Die(*self._files.locate(position), self._files.follow))
                if place is not None:
                    placed.add(place.address)
                    found += [position] * (key == f"{_LOCATED.value}{name}")
        return found, placed

    def _patterns(self, address: int, kind: int) -> Iterator[bytes]:
        # The location: DW_OP_addr and the address, or the offset in thread-local memory.
        wide = self._main.sections.elf.bits == 64
        number = struct.pack(f"{self._main.sections.mark}{'Q' if wide else 'I'}", address)
        if kind != STT_TLS:
            yield bytes((Op.ADDR,)) + number
            return
        for end in (Op.FORM_TLS_ADDRESS, Op.GNU_PUSH_TLS_ADDRESS):
            yield bytes((Op.CONST8U if wide else Op.CONST4U,)) + number + bytes((end,))

    # ------------------------------------------------------------ by name

    def _by_name(self, name: str) -> _Found:
        self._search.check_searchable(name)
        last = name.rpartition("::")[2]  # the same in all scopes around a function
        absent = self._search.is_absent(last if "<" in name else name)
        if absent:
            self._search.check_complete()
        if absent or self._lacks_member(name):
            return _Found()
        for number, header in self._units_with(last):
            names = self._search.names_in(number, header)
            found = [names.get(f"{kind.value}{name}") for kind in (_LOCATED, _UNLOCATED)]
            if any(found):
                return _Found(*(() if one is None else (one,) for one in found))
        self._search.check_complete()
        return _Found()

    def _lacks_member(self, name: str) -> bool:
        # True if the class of a name describes all of its members, and none of them is this one.
        owner, _, last = name.rpartition("::")
        outer = owner.removesuffix(f"::{ANONYMOUS}")  # a class has no namespace inside
        if not owner or "<" in name or ANONYMOUS in outer or not self.is_large:
            return False
        if outer not in self._classes:
            self._classes[outer] = self._search.early_class(outer)
        found = self._classes[outer]
        if found is None:
            return False
        return outer != owner or all(one.text() != last for one in found.children())

    def _units_with(self, last: str) -> Iterator[tuple[int, UnitHeader]]:
        # Searches no further than it is asked to.
        if last not in self._likely:
            self._likely[last] = _Likely([], self._search.units_with_variables(last))
        known, more = self._likely[last]
        for number in itertools.count():
            if number == len(known):
                try:
                    found = next(more, None)
                except BaseException:  # it would seem to have come to its end
                    del self._likely[last]
                    raise
                if found is None:
                    return
                known.append(found)
            yield known[number]


class KnownVariables:
    """The variables of a file: by its index if there is one, else by a search.

    Args:
        known: returns the index that is in memory or cached, or None.
        build: builds the index, for what a search does not find.
        search: the search.
    """

    def __init__(
        self,
        known: Callable[[], DebugIndex | None],
        build: Callable[[], DebugIndex],
        search: VariableSearch,
    ) -> None:
        self._known = known
        self._build = build
        self._search = search

    @property
    def are_indexed(self) -> bool:
        """True if asking for a name costs nearly nothing."""
        return self._known() is not None

    def located(self, name: str) -> list[DiePosition]:
        """Return the positions of the variables of a qualified name that have an address.

        Without an index, those without a symbol are not among them, but in :meth:`others`.
        """
        index = self._known()
        if index is None:
            try:
                return [*self._search.by_symbol(name)]
            except NotSearchable:
                index = self._build()
        return index.variables(_LOCATED, name)

    def others(self, name: str) -> list[DiePosition]:
        """Return the positions of the other variables of a qualified name."""
        index = self._known()
        if index is None:
            try:
                return [*self._search.by_name(name)]
            except NotSearchable:
                index = self._build()
        return index.variables(_LOCATED, name) + index.variables(_UNLOCATED, name)

    def others_of_symbols(self, name: str) -> list[DiePosition]:
        """Return those of :meth:`others` whose name a symbol has."""
        try:
            if self._search.is_imported(name):
                return self.others(name)
            return [*self._search.constants(name)]
        except NotSearchable:
            return []

    @property
    def is_large(self) -> bool:
        """True if :meth:`others` may take seconds."""
        return self._search.is_large

    def instances(self, name: str) -> list[DiePosition]:
        """Return the variables whose names other entries have; [] if none is of this name."""
        self.located(name)
        index = self._known()
        return [] if index is None else index.instances()

    def names_like(self, name: str) -> list[str]:
        """Return names of variables with an address, perhaps only those most like another."""
        index = self._known()
        near = self._search.names_like(name) if index is None or self._search.lacks_files else None
        if index is None and near is not None:
            return near
        return [*(index or self._build()).variable_names(), *(near or ())]


def _may_name(symbol: str, name: str) -> bool:
    # True for x, x.lto_priv.0, _ZL1x and _ZN12_GLOBAL__N_11xE, but not for those of other scopes.
    words = [one for one in name.split("::") if one.isidentifier()]
    if not symbol.startswith(("_Z", "_R")):
        return symbol.partition(".")[0] == words[-1]
    if any(f"{len(encoded(word))}{word}" not in symbol for word in words):
        return False
    if symbol.startswith(_NO_VARIABLES):
        return False
    if "<" in name or symbol.startswith("_R") or _RUST_HASH in symbol:
        return True  # debug information writes such names in another way
    plain = symbol.partition(".")[0]
    shown = demangle(plain)
    return shown in (name, plain) or _ABI_TAG in shown
