"""Types of debug information as BTF, created and numbered on first use."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import Kind
from usdt.btf.reader import Btf
from usdt.btf.types import Pointer, Type, Unknown, Void
from usdt.dwarf.units.constants import TypeKind
from usdt.dwarf.units.errors import DwarfError, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from usdt.dwarf.units.dies import Die

    Convert = Callable[[int, Die], Type]
    Search = Callable[[TypeKind, str], "Die | None"]
    Names = Callable[[str], Iterator[tuple[TypeKind, str, Die]]]
    Similar = Callable[[list[TypeKind], str], dict[str, Die] | None]

__all__ = ("DwarfTypes",)

_MAX_TYPES = 1 << 20
_KINDS = {
    Kind.STRUCT: TypeKind.STRUCT,
    Kind.UNION: TypeKind.UNION,
    Kind.ENUM: TypeKind.ENUM,
    Kind.ENUM64: TypeKind.ENUM,
    Kind.TYPEDEF: TypeKind.TYPEDEF,
    Kind.INT: TypeKind.BASE,
    Kind.FLOAT: TypeKind.BASE,
}


class DwarfTypes(Btf):
    """The types of one program, a :class:`~usdt.btf.reader.Btf` that creates types on first use.

    Args:
        name: the program's name in messages.
        order: "little" or "big".
        pointer_size: size of a pointer in bytes.
        convert: returns the type of an entry, with a given ID.
        declared: returns the type of an entry that only declares it; None of any other.
        search: returns the entry with a kind and a name.
        names: yields kind, name and entry of every type whose name begins with a string.
        similar: returns what a misspelled name of some kinds may mean; None if only ``names`` tell.

    Attributes:
        missing_file: returns the file of debug information that was not found; "" if none is
            missing.
    """

    def __init__(
        self,
        name: str,
        order: str,
        pointer_size: int,
        *,
        convert: Convert,
        declared: Callable[[int, Die], Type | None],
        search: Search,
        names: Names,
        similar: Similar,
    ) -> None:
        # The base class is not initialized, because there are no bytes to read.
        self.name = name
        self.base = None
        self.order = order
        self.first = 1
        self._types: dict[int, Type] = {0: Void(0, "")}
        self._alignments: dict[int, int] = {}
        self.__dict__["pointer_size"] = pointer_size
        self._convert = convert
        self._declared = declared
        self._search = search
        self._listed = names
        self._similar = similar
        self._dies: list[Die | None] = [None]
        self._numbers: dict[tuple[int, int], int] = {}
        self._pointers: dict[int, int] = {}
        self.missing_file: Callable[[], str] = str

    @property
    def data_size(self) -> int:
        """0: types are read one by one, and the size of all of them is unknown."""
        return 0

    @property
    def end(self) -> int:
        """One more than the highest ID so far."""
        return len(self._dies)

    def close(self) -> None:
        """Drop the entries; only types that were created before remain usable."""
        self._dies = [None] * len(self._dies)
        self._numbers.clear()

    def id_of(self, die: Die | None) -> int:
        """Return the ID of the type that an entry describes; 0 (void) for None.

        Raises:
            DwarfError: the number of types is implausibly large.
        """
        if die is None:
            return 0
        type_id = self._numbers.get(die.key)
        if type_id is None:
            type_id = self._numbers[die.key] = self._allot(die)
        return type_id

    def add(self, make: Callable[[int], Type]) -> int:
        """Add a type that no entry describes; return its ID."""
        type_id = self._allot(None)
        self._types[type_id] = make(type_id)
        return type_id

    @functools.cached_property
    def unknown(self) -> int:
        """The ID of a placeholder for types that were not found."""
        return self.add(lambda type_id: Unknown(type_id, "?", 0))

    def pointer_to(self, target: int) -> int:
        """Return the ID of a pointer to a type."""
        found = self._pointers.get(target)
        if found is None:
            found = self._pointers[target] = self.add(lambda type_id: Pointer(type_id, "", target))
        return found

    def _allot(self, die: Die | None) -> int:
        if len(self._dies) >= _MAX_TYPES:
            raise DwarfError(f"{self.name}: more than {_MAX_TYPES} types")
        self._dies.append(die)
        return len(self._dies) - 1

    def type(self, type_id: int) -> Type:
        """Return the type with an ID.

        Raises:
            BtfError: there is no such type.
            DwarfError: its entry is damaged.
        """
        found = self._types.get(type_id)
        if found is not None:
            return found
        die = self._dies[type_id] if 0 < type_id < len(self._dies) else None
        if die is None:
            raise BtfError(f"{self.name}: no type {type_id}")
        with checked(self.name, die.where):
            found = self._types[type_id] = self._convert(type_id, die)
        return found

    def outline(self, type_id: int) -> Type:
        """Return a type for its name alone: of a declaration, no definition is searched.

        Raises: as :meth:`type`.
        """
        die = None if type_id in self._types else self.die(type_id)
        if die is not None:
            with checked(self.name, die.where):
                found = self._declared(type_id, die)
            if found is not None:
                return found
        return self.type(type_id)

    def die(self, type_id: int) -> Die | None:
        """Return the entry that describes a type; None if no entry does."""
        return self._dies[type_id] if 0 <= type_id < len(self._dies) else None

    def kind(self, type_id: int) -> int:
        """Return the kind of a type."""
        return self.type(type_id).kind

    def string(self, offset: int) -> str:
        """Raise an error: there is no string table.

        Raises:
            BtfError: always.
        """
        raise BtfError(f"{self.name}: no string {offset}: these types are made of DWARF")

    @property
    def strings_end(self) -> int:
        """0: there is no string table."""
        return 0

    def own_ids(self, *kinds: Kind) -> Iterator[int]:
        """Yield the IDs of the types of some kinds that have been created so far."""
        for type_id in range(1, self.end):
            if self.kind(type_id) in kinds:
                yield type_id

    def ids(self, *kinds: Kind) -> Iterator[int]:
        """Yield the IDs of the types of some kinds that have been created so far."""
        return self.own_ids(*kinds)

    def named(self, *kinds: Kind, start: str = "") -> Iterator[tuple[int, str]]:
        """Yield ID and name of every type of some kinds in the debug information.

        Args:
            kinds: the kinds.
            start: how the names must begin; types of other names are not read.
        """
        wanted = {_KINDS[kind] for kind in kinds if kind in _KINDS}
        for kind, name, die in self._listed(start):
            if kind in wanted and name.startswith(start):
                yield self.id_of(die), name

    def similar(self, name: str, *kinds: Kind) -> dict[str, int]:
        """Return names and IDs of types that may be meant by a name which no type has."""
        found = self._similar(_type_kinds(kinds), name)
        if found is None:
            return super().similar(name, *kinds)
        return {label: self.id_of(die) for label, die in found.items()}

    def find(self, name: str, *kinds: Kind) -> list[int]:
        """Return the IDs of the types with a name, the first one of each given kind."""
        found = []
        for wanted in _type_kinds(kinds):
            die = self._search(wanted, name)
            if die is not None:
                type_id = self.id_of(die)
                if self.kind(type_id) in kinds or wanted is TypeKind.BASE:
                    found.append(type_id)
        return found


def _type_kinds(kinds: Iterable[Kind]) -> list[TypeKind]:
    return list(dict.fromkeys(_KINDS[kind] for kind in kinds if kind in _KINDS))
