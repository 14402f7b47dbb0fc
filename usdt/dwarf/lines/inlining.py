"""Functions of a unit and what was inlined into them, by address."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.dwarf.units import forms as dw
from usdt.dwarf.units.forms import Malformed, skip, unsigned
from usdt.dwarf.units.ranges import RangeMap
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.forms import Abbreviation
    from usdt.dwarf.units.units import Unit

__all__ = ("Function", "Scope", "functions_of", "inlined_into")

TAG_INLINED, TAG_SUBPROGRAM = 0x1D, 0x2E  # DW_TAG_…
# Types: class, enumeration, structure, subroutine, union, array, interface.
_TYPES = frozenset((0x02, 0x04, 0x13, 0x15, 0x17, 0x01, 0x38))
_MAX_ENTRIES = 1 << 23  # of a unit
_MAX_SCOPES = 1 << 18  # of a function, and functions of a unit
_FIELDS = 4  # of a Scope
_ITSELF, _OTHER = -1, -2  # what an entry lies in: the function itself, another one in it


@frozen
class Scope:
    """A function inlined into another.

    Attributes:
        at: position of its entry in the unit.
        parent: number of the inlined function it lies in; -1: in the function itself.
        file, line: of the call; the file by its number.
    """

    at: int
    parent: int
    file: int
    line: int


class Function:
    """A function with what was inlined into it.

    Attributes:
        at: position of its entry in the unit.
    """

    def __init__(self, at: int, scopes: array[int], ranges: RangeMap) -> None:
        self.at = at
        self._scopes = scopes  # the fields of each in turn
        self._ranges = ranges

    def __len__(self) -> int:
        return len(self._scopes) + len(self._ranges)

    def chain(self, address: int) -> list[Scope]:
        """The inlined functions an address is in, the innermost first."""
        number = self._ranges.find(address)
        found = []
        while number is not None and number >= 0:
            found.append(Scope(*self._scopes[_FIELDS * number : _FIELDS * (number + 1)]))
            number = found[-1].parent  # always a smaller one
        return found


def _walk(
    unit: Unit, at: int, wanted: frozenset[int], passed: frozenset[int]
) -> Iterator[tuple[int, Abbreviation, int, int]]:
    """Yield entries with code below and with the one at a position.

    Of each its position, kind and depth, and the least depth at which an entry's children have
    ended since the last.

    Args:
        unit: the unit.
        at: where the first is.
        wanted: tags to yield.
        passed: tags whose children are passed over, where the file says how far they go.
    """
    data, abbreviations, encoding = unit.data, unit.abbreviations, unit.encoding
    known = abbreviations.known
    depth = lowest = 0
    for _ in range(_MAX_ENTRIES):
        start = at
        code = data[at]
        at += 1
        if code > 0x7F:
            code, at = unsigned(data, start)
        if not code:
            depth -= 1
            if depth <= 0:
                return
            lowest = min(lowest, depth)
            continue
        abbreviation = known.get(code) or abbreviations[code]
        if abbreviation.code and abbreviation.tag in wanted:
            yield start, abbreviation, depth, lowest
            lowest = depth + 1
        fixed = abbreviation.fixed
        at = at + fixed if fixed >= 0 else skip(data, at, abbreviation, encoding)
        if abbreviation.children:
            size = abbreviation.sibling
            if size and abbreviation.tag in passed and depth:
                behind = encoding.number(data, at - size, size)
                if at < behind:
                    at = behind
                    lowest = min(lowest, depth)
                    continue
            depth += 1
        elif not depth:
            return
    raise Malformed(f"a unit of more than {_MAX_ENTRIES} entries")


def functions_of(unit: Unit, *, nested: bool) -> tuple[list[int], RangeMap]:
    """Positions of a unit's functions, and which one an address is in.

    Args:
        unit: the unit.
        nested: those in other functions and in types, too, which takes longer.
    """
    wanted = frozenset((TAG_SUBPROGRAM,))
    passed = frozenset() if nested else _TYPES | wanted
    found: list[int] = []
    ranges = []
    for at, _, depth, _ in _walk(unit, unit.header.first, wanted, passed):
        ranges += [(low, high, depth, len(found)) for low, high in unit.ranges(Entry(unit, at))]
        found.append(at)
        if len(ranges) > _MAX_SCOPES or len(found) > _MAX_SCOPES:
            raise Malformed(f"more than {_MAX_SCOPES} functions in a unit")
    return found, RangeMap(ranges)


def inlined_into(unit: Unit, at: int) -> Function:
    """A function with what was inlined into it.

    Args:
        unit: the unit.
        at: position of the function's entry.
    """
    scopes = array("q")
    ranges = []
    around: list[tuple[int, int]] = []  # what the entry lies in: depth, number
    wanted = frozenset((TAG_INLINED, TAG_SUBPROGRAM))
    for start, abbreviation, depth, lowest in _walk(unit, at, wanted, _TYPES):
        while around and around[-1][0] >= lowest:
            around.pop()
        parent = around[-1][1] if around else _ITSELF
        if not depth or parent == _OTHER or abbreviation.tag == TAG_SUBPROGRAM:
            if depth and abbreviation.children:
                around.append((depth, _OTHER))
            continue
        entry = Entry(unit, start)
        number = len(scopes) // _FIELDS
        file = unit.integer(entry, dw.AT_CALL_FILE, 0) or 0
        line = unit.integer(entry, dw.AT_CALL_LINE, 0) or 0
        scopes.extend((start, parent, file, line))
        if abbreviation.children:
            around.append((depth, number))
        ranges += [(low, high, depth, number) for low, high in unit.ranges(entry)]
        if len(ranges) > _MAX_SCOPES or number > _MAX_SCOPES:
            raise Malformed(f"more than {_MAX_SCOPES} functions inlined into one")
    return Function(at, scopes, RangeMap(ranges))
