"""Types of debug information as BTF: made when they are asked for, and numbered as they are."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import Kind
from usdt.btf.reader import Btf
from usdt.btf.types import Pointer, Type, Unknown, Void
from usdt.dwarf.units.errors import DwarfError, believed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.dwarf.units.dies import Die

    Convert = Callable[[int, Die], Type]
    Search = Callable[[str, str], "Die | None"]
    Names = Callable[[str], Iterator[tuple[str, str, Die]]]

__all__ = ("DwarfTypes",)

_MOST_TYPES = 1 << 20
_LETTERS = {
    Kind.STRUCT: "s",
    Kind.UNION: "u",
    Kind.ENUM: "e",
    Kind.ENUM64: "e",
    Kind.TYPEDEF: "t",
    Kind.INT: "b",
    Kind.FLOAT: "b",
}
_KINDS = {
    "s": (Kind.STRUCT,),
    "u": (Kind.UNION,),
    "e": (Kind.ENUM, Kind.ENUM64),
    "t": (Kind.TYPEDEF,),
    "b": (Kind.INT, Kind.FLOAT),
}


class DwarfTypes(Btf):
    """The types of one program, a :class:`~usdt.btf.reader.Btf` that grows.

    Args:
        name: what messages call it.
        order: "little" or "big".
        pointer_size: in bytes.
        convert: makes the type of a number from an entry.
        search: finds the entry of a kind ("s", "u", "e", "t" or "b") and a name.
        names: kinds, names and entries of what begins with some letters.

    Attributes:
        absent: gives the file of debug information that is not here; "".
    """

    def __init__(
        self,
        name: str,
        order: str,
        pointer_size: int,
        *,
        convert: Convert,
        search: Search,
        names: Names,
    ) -> None:
        # Nothing of what the other class reads is there.
        self.name = name
        self.base = None
        self.order = order
        self.first = 1
        self._types: dict[int, Type] = {0: Void(0, "")}
        self._alignments: dict[int, int] = {}
        self.__dict__["pointer_size"] = pointer_size
        self._convert = convert
        self._search = search
        self._listed = names
        self._dies: list[Die | None] = [None]
        self._numbers: dict[tuple[int, int], int] = {}
        self._pointers: dict[int, int] = {}
        self.absent: Callable[[], str] = str

    @property
    def end(self) -> int:
        """One more than the last ID so far."""
        return len(self._dies)

    def close(self) -> None:
        """Let go of the entries; types that were not made yet cannot be any more."""
        self._dies = [None] * len(self._dies)
        self._numbers.clear()

    def id_of(self, die: Die | None) -> int:
        """The ID of the type an entry describes; 0, void, of none.

        Raises:
            DwarfError: there are absurdly many.
        """
        if die is None:
            return 0
        place = die.place
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = self._allot(die)
        return number

    def add(self, make: Callable[[int], Type]) -> int:
        """The ID of a type that no entry describes."""
        number = self._allot(None)
        self._types[number] = make(number)
        return number

    @functools.cached_property
    def unknown(self) -> int:
        """The ID of a type that is not here."""
        return self.add(lambda number: Unknown(number, "?", 0))

    def pointer_to(self, target: int) -> int:
        """The ID of a pointer to a type."""
        found = self._pointers.get(target)
        if found is None:
            found = self._pointers[target] = self.add(lambda number: Pointer(number, "", target))
        return found

    def _allot(self, die: Die | None) -> int:
        if len(self._dies) >= _MOST_TYPES:
            raise DwarfError(f"{self.name}: more than {_MOST_TYPES} types")
        self._dies.append(die)
        return len(self._dies) - 1

    def type(self, number: int) -> Type:
        """The type with an ID.

        Raises:
            BtfError: no such type.
            DwarfError: it is damaged.
        """
        found = self._types.get(number)
        if found is not None:
            return found
        die = self._dies[number] if 0 < number < len(self._dies) else None
        if die is None:
            raise BtfError(f"{self.name}: no type {number}")
        with believed(self.name, die.where):
            found = self._types[number] = self._convert(number, die)
        return found

    def die(self, number: int) -> Die | None:
        """The entry that describes a type; None of one made here."""
        return self._dies[number] if 0 <= number < len(self._dies) else None

    def kind(self, number: int) -> int:
        """The kind of a type."""
        return self.type(number).kind

    def string(self, offset: int) -> str:
        """There is no table of strings.

        Raises:
            BtfError: always.
        """
        raise BtfError(f"{self.name}: no string {offset}: these types are made of DWARF")

    @property
    def strings_end(self) -> int:
        """There is no table of strings."""
        return 0

    def own_ids(self, *kinds: Kind) -> Iterator[int]:
        """IDs of the types so far of some kinds."""
        for number in range(1, self.end):
            if self.kind(number) in kinds:
                yield number

    def ids(self, *kinds: Kind) -> Iterator[int]:
        """IDs of the types so far of some kinds."""
        return self.own_ids(*kinds)

    def named(self, *kinds: Kind) -> Iterator[tuple[int, str]]:
        """ID and name of every type of some kinds in the debug information."""
        wanted = {_LETTERS[kind] for kind in kinds if kind in _LETTERS}
        for letter, name, die in self._listed(""):
            if letter in wanted:
                yield self.id_of(die), name

    def find(self, name: str, *kinds: Kind) -> list[int]:
        """IDs of types of a name and of one of some kinds: the first of each kind."""
        found = []
        for letter in dict.fromkeys(_LETTERS[kind] for kind in kinds if kind in _LETTERS):
            die = self._search(letter, name)
            if die is not None:
                number = self.id_of(die)
                if self.kind(number) in kinds or letter == "b":
                    found.append(number)
        return found
