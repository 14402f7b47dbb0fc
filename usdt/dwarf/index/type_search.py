"""Types by name without the index: search the bytes of the name, and read the units that have it.

A name is a string in ``.debug_str``, which entries refer to by its position, or it is in the entry
itself. Searching ``.debug_info`` for these bytes is a hundred times as fast as reading its
entries. Most types are found in one of the first units; what is not found is not there.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

from usdt.base.text import encoded
from usdt.dwarf.index.files import DiePosition
from usdt.dwarf.index.name_bytes import PIECE, NamesAt, in_piece, strings
from usdt.dwarf.units.constants import TAGS_OF_KINDS, TYPE_KINDS, At, TypeKind, VariableKind
from usdt.dwarf.units.dies import Die
from usdt.dwarf.units.errors import DAMAGE, DwarfError
from usdt.dwarf.units.scopes import PLAIN_LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from usdt.dwarf.index.abbrev_skim import AbbrevSection
    from usdt.dwarf.index.files import DebugFiles
    from usdt.dwarf.index.name_tables import NameTables
    from usdt.dwarf.units.units import UnitHeader

__all__ = ("NotSearchable", "TypeSearch")

_AHEAD = 16 << 20  # bytes without an answer, after which more are decompressed in a thread
_MAX_ENDS = 8  # strings with the same end; of more, not all are tried
_MAX_STRINGS = 1 << 16  # that end with a name
_MAX_WHOLE = 32  # strings that are a name or a part of it
_MAX_HITS = 1 << 18  # places with the bytes of a name
_MAX_PARTS = 16  # of a qualified name
_MAX_SEARCHED = 1 << 30  # bytes of .debug_info; after them an index costs less
_MAX_SECTION = 1 << 63  # bytes
_MAX_EARLY = 16 << 20  # bytes of the first units
_MAX_READ = 32 << 20  # bytes of units; likewise
_MAX_LIKELY = 24 << 20  # bytes of units with variables that may be the one that is meant
_MAX_LIKELY_IN_LARGE = 6 << 20  # the same of large files, where the other units are left out
_MAX_TABLES = 1 << 12
_MIN_LARGE = 16 << 20  # bytes of .debug_info, of which symbols are asked first
_MAX_WITNESSED = 4 << 20  # bytes of the first units, which show how strings were joined
_MIN_WITNESSES = 2
_MAX_BEFORE = 16  # bytes of an entry up to its name
_WITNESSES = (
    *(f"{TypeKind.BASE.value}{name}" for name in ("char", "unsigned int", "long unsigned int")),
    *(f"{TypeKind.TYPEDEF.value}{name}" for name in ("size_t", "uint32_t", "uint8_t", "int32_t")),
)
_TYPE = "t"  # before keys of answers
_PLAIN_KINDS = (TypeKind.TYPEDEF, TypeKind.BASE)


class NotSearchable(DwarfError):  # noqa: N818 - what it is
    """Only the index tells whether there is a type."""


class TypeSearch:
    """The types of a file by name.

    Args:
        files: the files with the debug information.
    """

    def __init__(self, files: DebugFiles) -> None:
        self._main = files.main
        self._files = files
        self._found: dict[str, DiePosition | None] = {}  # kind and name → position
        self._answers: dict[str, DiePosition | None] = {}  # the same for what was asked
        self._tables: dict[int, NamesAt] = {}
        self._units: dict[int, dict[str, DiePosition]] = {}  # of those that were read
        self._absent: set[str] = set()  # parts of names
        self._looked_inside: set[tuple[int, str]] = set()  # of units, for types by name
        self._searched = self._read = 0

    def find(self, kind: TypeKind, name: str) -> DiePosition | None:
        """Return the position of the type of a kind and a qualified name; None if there is none.

        Of the types inside classes, which the index omits, it has some.

        Raises:
            NotSearchable: only the index tells.
        """
        return self.find_any((kind,), name)[kind]

    def find_any(
        self, kinds: Sequence[TypeKind], name: str, *, hints_only: bool = False
    ) -> dict[TypeKind, DiePosition | None]:
        """Return the positions of the types of a name for each of some kinds that is known.

        The search ends with the first of them.

        Args:
            kinds: the kinds.
            name: the qualified name.
            hints_only: False to search; True to ask only symbols and tables of names.

        Raises:
            NotSearchable: only the index tells.
        """
        keys = {kind: f"{kind.value}{name}" for kind in kinds}
        self._recall(keys)
        if not _is_known(self._answers, keys.values()):
            if not _is_known(self._found, keys.values()):
                try:
                    self._search(kinds, name, hints_only=hints_only)
                except DAMAGE as err:
                    raise NotSearchable(str(err)) from err  # the index says what is damaged
            known = {key: self._found[key] for key in keys.values() if key in self._found}
            self._answers |= known
            for key, position in known.items():
                self._files.keep(f"{_TYPE}{key}", () if position is None else (position,))
        return {kind: self._answers[key] for kind, key in keys.items() if key in self._answers}

    def _recall(self, keys: Mapping[TypeKind, str]) -> None:
        for kind, key in keys.items():
            if key not in self._answers:
                kept = self._files.kept(f"{_TYPE}{key}", TAGS_OF_KINDS[kind])
                if kept is not None:
                    self._answers[key] = kept[0][0] if kept else None

    @property
    def size(self) -> int:
        """The bytes that a search reads."""
        return len(self._main.sections[".debug_info"])

    @property
    def is_large(self) -> bool:
        """True if it takes long to read all units or to search them."""
        return self.size >= _MIN_LARGE

    def knows(self, name: str) -> bool:
        """Return True if a type of a qualified name was found, of whatever kind."""
        keys = {one: f"{one.value}{name}" for one in TypeKind}
        self._recall(keys)
        return any(self._answers.get(key) or self._found.get(key) for key in keys.values())

    def _search(self, kinds: Sequence[TypeKind], name: str, *, hints_only: bool) -> None:
        # Notes what it finds. A search to the end tells of every kind that it looked for.
        if self._is_told(kinds, name) or hints_only:
            return
        self.check_searchable(name)
        wanted = _wanted(kinds)
        if self.is_absent(name):
            wanted = frozenset(TypeKind)
        else:
            patterns, every = self._few_patterns(name)
            if self._looked_for(kinds, name, patterns):
                return
            if not every:
                raise NotSearchable("a name that ends many strings")
        self.check_complete()
        for one in wanted:
            self._found.setdefault(f"{one.value}{name}", None)

    def check_complete(self) -> None:
        """Raise NotSearchable if a search to the end does not tell that there is no entry."""
        if self._main.damage or any(one.encoding.offset_size != 4 for one in self._main.headers):
            raise NotSearchable(self._main.damage or "64-bit DWARF")

    def _is_told(self, kinds: Sequence[TypeKind], name: str) -> bool:
        # True if a table of names or symbols lead to a unit that tells.
        from usdt.dwarf.index.class_units import class_units  # noqa: PLC0415 - only for searches

        units = self._tables_of_names.units(name)
        owner = name.rpartition("::")[0]
        if not units and self.is_large:
            units = class_units(self._main, name) or class_units(self._main, owner)
        for at in units:
            number = self._main.number_at(at)
            header = None if number is None else self._main.header(number)
            if number is not None and header is not None:
                self._files.answers.note_cost(header.end)  # decompressed
                if number not in self._units:
                    self._read_unit(number, header)
                if self._is_answered(kinds, name, number, header):
                    return True
        return False

    def early_class(self, name: str) -> Die | None:
        """Return the class of a qualified name that one of the first units defines.

        None means nothing: another unit may define it.

        Raises:
            NotSearchable: only the index tells.
        """
        self.check_searchable(name)
        patterns, _ = self._few_patterns(name)
        if not self._looked_for((TypeKind.STRUCT,), name, patterns, _MAX_EARLY):
            return None
        position = self._found.get(f"{TypeKind.STRUCT.value}{name}")
        die = None if position is None else Die(*self._files.locate(position), self._files.follow)
        return None if die is None or At.DECLARATION in die else die

    def _looked_for(
        self,
        kinds: Sequence[TypeKind],
        name: str,
        patterns: list[bytes],
        most: int = _MAX_SECTION,
    ) -> bool:
        # True if the unit was found that tells.
        letters = frozenset(one.value for one in _wanted(kinds))
        data = self._main.sections[".debug_info"]
        for at in self.positions(patterns, most):
            number, header = self.unit_at(at)
            if number not in self._units:
                if not self._names_of(header).may_define(data, at, letters):
                    continue
                self._read_unit(number, header)
            if self._is_answered(kinds, name, number, header):
                return True
        return False

    def _is_answered(
        self, kinds: Sequence[TypeKind], name: str, number: int, header: UnitHeader
    ) -> bool:
        # Whether a unit that was read tells.
        if any(self._found.get(f"{kind.value}{name}") is not None for kind in kinds):
            return True
        if self._is_plain(header):
            return False
        keys = {f"{one.value}{name}" for one in _wanted(kinds)}
        self._find_inside(number, name)
        if keys.isdisjoint(self._units[number]):
            return False
        # In C++ and Rust, the name of a class is that of no other type.
        for one in TypeKind:
            self._found.setdefault(f"{one.value}{name}", None)
        return True

    def _find_inside(self, number: int, name: str) -> None:
        # Notes the type if a class of a unit that was read has it inside, which the index omits.
        owner, _, last = name.rpartition("::")
        if not owner or (number, name) in self._looked_inside:
            return
        self._looked_inside.add((number, name))
        for kind in (TypeKind.STRUCT, TypeKind.UNION):
            position = self._units[number].get(f"{kind.value}{owner}")
            if position is not None:
                found = Die(*self._files.locate(position), self._files.follow)
                for one in found.children(*TYPE_KINDS):
                    if one.text() == last and At.DECLARATION not in one:
                        key = f"{TYPE_KINDS[one.tag].value}{name}"
                        self._found[key] = self._units[number][key] = position._replace(
                            offset=one.at
                        )

    def check_searchable(self, name: str) -> None:
        """Raise NotSearchable if entries may have the name in another file or section."""
        sections = self._main.sections
        elsewhere = any(one in sections for one in (".debug_str_offsets", ".debug_addr"))
        if elsewhere or len(self._files.parts) > 1 or self._files.missing_file or not name:
            raise NotSearchable("names are in other files or sections")
        if name.count("::") >= _MAX_PARTS or "\0" in name:
            raise NotSearchable("a name of many parts")

    def is_absent(self, name: str) -> bool:
        """Return True if no string of the file is a certain part of a name."""
        sections = self._main.sections
        for word in [] if "<" in name else name.split("::"):
            text = encoded(word) + b"\0"
            if word in self._absent:
                return True
            if word.isidentifier() and next(strings(sections[".debug_str"], text), None) is None:
                if next(self.positions([text]), None) is None:
                    self._absent.add(word)
                    return True
                return False
        return False

    def _few_patterns(self, name: str) -> tuple[list[bytes], bool]:
        # The bytes to search, and whether they are all that the name may have.
        whole, ends = self._patterns(name)
        # GNU ld sorts strings by their ends; the first of those with an end has its entries.
        few = ends if len(ends) <= _MAX_ENDS else [*ends[:2], ends[-1]]
        return whole + few, len(few) == len(ends)

    def _patterns(self, name: str) -> tuple[list[bytes], list[bytes]]:
        # The bytes of whole strings, and of longer ones that end so, sorted. An entry has the last
        # part of a qualified name, and "::" is in template arguments, too.
        words = name.split("::")
        whole: list[bytes] = []
        ends: list[bytes] = []
        for first in range(len(words)):
            text = encoded("::".join(words[first:])) + b"\0"
            own, inside = self._places(text)
            if len(inside) > 1 and not own and self._has_joined_ends:
                inside = inside[:1]
            whole += (text, *own)
            ends += inside
        return whole, ends

    def _places(self, text: bytes) -> tuple[list[bytes], list[bytes]]:
        # The offsets of a string in .debug_str, and those of longer ones that end so, sorted by
        # their reversed text.
        sections = self._main.sections
        whole: list[bytes] = []
        ends: list[tuple[bytes, bytes]] = []
        for at, before in strings(sections[".debug_str"], text):
            pattern = struct.pack(f"{sections.mark}I", at)
            if before:
                ends.append((before[::-1], pattern))
            else:
                whole.append(pattern)
            if len(whole) > _MAX_WHOLE or len(ends) > _MAX_STRINGS:
                raise NotSearchable("a name that ends many strings")
        return whole, [pattern for _, pattern in sorted(ends)]

    @functools.cached_property
    def _has_joined_ends(self) -> bool:
        # True if the linker has put every string that ends others into the first of these, as GNU
        # ld does. Two types of the first units, whose names end others, tell it.
        data = self._main.sections[".debug_info"]
        ends = {key: self._places(encoded(key[1:]) + b"\0") for key in _WITNESSES}
        waiting = {key for key, (whole, inside) in ends.items() if len(inside) > 1 and not whole}
        number, agreed = 0, 0
        while waiting and agreed < _MIN_WITNESSES:
            header = self._main.header(number)
            if header is None or (number and header.end > _MAX_WITNESSED):
                return False
            names = self.names_in(number, header)
            for key in waiting & names.keys():
                at = names[key].offset
                if ends[key][1][0] not in bytes(data[at : at + _MAX_BEFORE]):
                    return False
                waiting.remove(key)
                agreed += 1
            number += 1
        return agreed >= _MIN_WITNESSES

    def positions(self, patterns: list[bytes], most: int = _MAX_SECTION) -> Iterator[int]:
        """Yield the positions of any of some patterns in ``.debug_info``, nearly sorted.

        Args:
            patterns: the bytes to search.
            most: the search ends after this number of bytes.

        Raises:
            NotSearchable: the search has taken as long as the index would.
        """
        sections = self._main.sections
        data = sections[".debug_info"]
        overlap = max(map(len, patterns)) - 1
        hits = 0
        for start in range(0, min(len(data), most), PIECE):
            piece = bytes(data[start : start + PIECE + overlap])
            self._searched += len(piece)
            self._files.answers.note_cost(len(piece))
            if self._searched > _MAX_SEARCHED:
                raise NotSearchable("an index costs less")
            if start == _AHEAD:
                sections.read_ahead(".debug_info")
            found = sorted({start + at for one in patterns for at in in_piece(piece, one)})
            hits += len(found)
            if hits > _MAX_HITS:
                raise NotSearchable("a name that is everywhere")
            yield from found

    @functools.cached_property
    def _tables_of_names(self) -> NameTables:
        from usdt.dwarf.index.name_tables import NameTables  # noqa: PLC0415 - only for searches

        return NameTables(self._main)

    @functools.cached_property
    def _abbreviations(self) -> AbbrevSection:
        from usdt.dwarf.index.abbrev_skim import AbbrevSection  # noqa: PLC0415 - only for searches

        return AbbrevSection(self._main.abbreviation_bytes, self._files.name)

    def unit_at(self, at: int) -> tuple[int, UnitHeader]:
        """Return number and header of the unit around a position.

        Raises:
            NotSearchable: only the index tells.
        """
        number = self._main.number_containing(at)
        header = None if number is None else self._main.header(number)
        if number is None or header is None or header.encoding.offset_size != 4:
            raise NotSearchable("no unit, or one of 64-bit DWARF")
        return number, header

    def names_in(self, number: int, header: UnitHeader) -> Mapping[str, DiePosition]:
        """Return what the index would have of a unit: kind and qualified name → position.

        Raises:
            NotSearchable: reading units has taken as long as the index would.
        """
        if number not in self._units:
            self._read_unit(number, header)
        return self._units[number]

    def units_with_variables(self, name: str) -> Iterator[tuple[int, UnitHeader]]:
        """Yield the units that may have a variable of an unqualified name, nearly sorted.

        In large files, those are the first of many: a constant of a header is in most of them, and
        what is none is a member that all units declare. Of many strings that end with the name,
        those are searched that linkers use.

        Raises:
            NotSearchable: they are too many, or only the index tells.
        """
        patterns, every = self._few_patterns(name)
        if not every and not self.is_large:
            raise NotSearchable("a name that ends many strings")
        data = self._main.sections[".debug_info"]
        letters = frozenset(one.value for one in VariableKind)
        found: set[int] = set()
        tables: dict[int, NamesAt] = {}
        size = 0
        for at in self.positions(patterns):
            number, header = self.unit_at(at)
            if number in found:
                continue
            table = header.abbreviations + self._main.bases.get("abbrev", 0)
            if table not in tables:
                tables[table] = NamesAt(self._abbreviations.variables(table, header.encoding))
            if tables[table].may_define(data, at, letters):
                found.add(number)
                size += header.end - header.at
                if not self.is_large and size > _MAX_LIKELY:
                    raise NotSearchable("many units with a variable of the name")
                yield number, header
                if self.is_large and size > _MAX_LIKELY_IN_LARGE:
                    return

    def _names_of(self, header: UnitHeader) -> NamesAt:
        found = self._tables.get(header.at)
        if found is None:
            if len(self._tables) >= _MAX_TABLES:
                self._tables.clear()
            at = header.abbreviations + self._main.bases.get("abbrev", 0)
            made = NamesAt(self._abbreviations.types(at, header.encoding))
            found = self._tables[header.at] = made
        return found

    def _read_unit(self, number: int, header: UnitHeader) -> None:
        from usdt.dwarf.index.abbrev_skim import AbbrevSection  # noqa: PLC0415 - only for searches
        from usdt.dwarf.index.indexer import UnitIndexer  # noqa: PLC0415

        self._read += header.end - header.at
        self._files.answers.note_cost(0, header.end - header.at)
        if self._read > _MAX_READ:
            raise NotSearchable("an index costs less")
        unit = self._files.full_unit(self._main.unit(header))
        indexer = UnitIndexer(self._abbreviations)
        if unit.file is not self._main:  # split debug information
            own = AbbrevSection(unit.file.abbreviation_bytes, unit.file.sections.name)
            indexer.use_abbreviations(own)
        indexer.add_unit(unit, DiePosition(number, 0))
        names = {key: DiePosition.unpack(packed) for key, packed in reversed(indexer.names)}
        for key, position in names.items():
            if self._found.get(key) is None:
                self._found[key] = position
        self._units[number] = names

    def _is_plain(self, header: UnitHeader) -> bool:
        unit = self._files.full_unit(self._main.unit(header))
        return unit.integer(unit.root, At.LANGUAGE, 0) in PLAIN_LANGUAGES


def _wanted(kinds: Sequence[TypeKind]) -> frozenset[TypeKind]:
    plain = any(kind in _PLAIN_KINDS for kind in kinds)
    return frozenset(TypeKind) if plain else frozenset(kinds)


def _is_known(known: Mapping[str, DiePosition | None], keys: Collection[str]) -> bool:
    # True if there is a type of one of the keys, or none of any.
    return any(known.get(key) for key in keys) or all(key in known for key in keys)
