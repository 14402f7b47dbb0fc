"""Functions of a unit, and the functions inlined into them, by address."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.dwarf.units.constants import At, Tag
from usdt.dwarf.units.forms import MalformedDwarf, read_uleb128, skip_steps
from usdt.dwarf.units.ranges import RangeMap
from usdt.dwarf.units.units import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.forms import Abbreviation
    from usdt.dwarf.units.units import Unit

__all__ = ("TYPES", "InlineTree", "InlinedCall", "read_functions", "read_inline_tree", "walk_code")

TYPES = frozenset(
    (
        *(Tag.CLASS, Tag.ENUMERATION, Tag.STRUCTURE, Tag.SUBROUTINE, Tag.UNION),
        *(Tag.ARRAY, Tag.INTERFACE),
    )
)
_MAX_ENTRIES = 1 << 23  # per unit
_MAX_SCOPES = 1 << 18  # inlined calls of a function; functions of a unit
_FIELDS = 4  # fields of an InlinedCall
_ITSELF, _OTHER = -1, -2  # the parent of an entry: the function itself, or a nested function


@frozen
class InlinedCall:
    """A function inlined into another.

    Attributes:
        at: position of its entry in the unit.
        parent: number of the inlined function that contains it; -1 for the function itself.
        file: number of the source file of the call.
        line: line of the call.
    """

    at: int
    parent: int
    file: int
    line: int


class InlineTree:
    """A function and the functions inlined into it.

    Attributes:
        at: position of its entry in the unit.
    """

    def __init__(self, at: int, scopes: array[int], ranges: RangeMap) -> None:
        self.at = at
        self._scopes = scopes  # the fields of all InlinedCalls, one after the other
        self._ranges = ranges

    def __len__(self) -> int:
        return len(self._scopes) + len(self._ranges)

    def chain(self, address: int) -> list[InlinedCall]:
        """Return the inlined functions that contain an address, the innermost first."""
        number = self._ranges.find(address)
        found = []
        while number is not None and number >= 0:
            found.append(InlinedCall(*self._scopes[_FIELDS * number : _FIELDS * (number + 1)]))
            number = found[-1].parent  # always a smaller one
        return found


def walk_code(
    unit: Unit, at: int, wanted: frozenset[int], passed: frozenset[int]
) -> Iterator[tuple[int, Abbreviation, int, int]]:
    """Yield entries with code: the one at a position, and those below it.

    Each item is the entry's position, its abbreviation, its depth, and the lowest depth at which
    the children of an entry have ended since the previous item.

    Args:
        unit: the unit.
        at: position of the first entry.
        wanted: tags to yield.
        passed: tags whose children are skipped, if the file gives the position after them.
    """
    data, abbreviations, encoding = unit.data, unit.abbreviations, unit.encoding
    known = abbreviations.known
    depth = lowest = 0
    for _ in range(_MAX_ENTRIES):
        start = at
        code = data[at]
        at += 1
        if code > 0x7F:
            code, at = read_uleb128(data, start)
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
        if abbreviation.varlen_steps:
            at = skip_steps(data, at, abbreviation.varlen_steps, encoding)
        at += abbreviation.fixed_size
        if abbreviation.children:
            size = abbreviation.sibling_size
            if size and abbreviation.tag in passed and depth:
                following = encoding.number(data, at - size, size)
                if at < following:
                    at = following
                    lowest = min(lowest, depth)
                    continue
            depth += 1
        elif not depth:
            return
    raise MalformedDwarf(f"a unit of more than {_MAX_ENTRIES} entries")


def read_functions(unit: Unit, *, nested: bool) -> tuple[list[int], RangeMap]:
    """Return the positions of a unit's functions, and a map from addresses to indexes of the list.

    Args:
        unit: the unit.
        nested: True to include functions inside other functions and types, which takes longer.
    """
    wanted = frozenset((Tag.SUBPROGRAM,))
    passed = frozenset() if nested else TYPES | wanted
    found: list[int] = []
    ranges = []
    for at, _, depth, _ in walk_code(unit, unit.header.first, wanted, passed):
        ranges += [(low, high, depth, len(found)) for low, high in unit.ranges(Entry(unit, at))]
        found.append(at)
        if len(ranges) > _MAX_SCOPES or len(found) > _MAX_SCOPES:
            raise MalformedDwarf(f"more than {_MAX_SCOPES} functions in a unit")
    return found, RangeMap(ranges)


def read_inline_tree(unit: Unit, at: int) -> InlineTree:
    """Return a function and the functions inlined into it.

    Args:
        unit: the unit.
        at: position of the function's entry.
    """
    scopes = array("q")
    ranges = []
    around: list[tuple[int, int]] = []  # the enclosing entries: (depth, number)
    wanted = frozenset((Tag.INLINED_SUBROUTINE, Tag.SUBPROGRAM))
    for start, abbreviation, depth, lowest in walk_code(unit, at, wanted, TYPES):
        while around and around[-1][0] >= lowest:
            around.pop()
        parent = around[-1][1] if around else _ITSELF
        if not depth or parent == _OTHER or abbreviation.tag == Tag.SUBPROGRAM:
            if depth and abbreviation.children:
                around.append((depth, _OTHER))
            continue
        entry = Entry(unit, start)
        number = len(scopes) // _FIELDS
        file = unit.integer(entry, At.CALL_FILE, 0) or 0
        line = unit.integer(entry, At.CALL_LINE, 0) or 0
        scopes.extend((start, parent, file, line))
        if abbreviation.children:
            around.append((depth, number))
        ranges += [(low, high, depth, number) for low, high in unit.ranges(entry)]
        if len(ranges) > _MAX_SCOPES or number > _MAX_SCOPES:
            raise MalformedDwarf(f"more than {_MAX_SCOPES} functions inlined into one")
    return InlineTree(at, scopes, RangeMap(ranges))
