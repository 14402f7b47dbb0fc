"""Range lists (``.debug_ranges``, ``.debug_rnglists``), and a map from addresses to ranges."""

from __future__ import annotations

import bisect
import heapq
import struct
from array import array
from typing import TYPE_CHECKING

from usdt.dwarf.units.forms import MalformedDwarf, read_uleb128

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from usdt.dwarf.units.forms import Bytes, UnitEncoding

__all__ = ("RangeMap", "read_aranges", "read_ranges", "read_rnglist")

_MAX_RANGES = 1 << 16  # per list
_MAX_ARANGES = 1 << 20
_NONE = (1 << 32) - 1

Range = tuple[int, int]


def read_ranges(data: Bytes, at: int, encoding: UnitEncoding, base: int) -> list[Range]:
    """Return the range list at a position of ``.debug_ranges`` (DWARF 2 to 4).

    Args:
        data: the section.
        at: the position of the list.
        encoding: the encoding of the unit.
        base: the unit's base address.

    Raises:
        MalformedDwarf: the list is implausibly long.
    """
    size = encoding.address_size
    highest = (1 << 8 * size) - 1
    found: list[Range] = []
    for _ in range(_MAX_RANGES):
        start = encoding.number(data, at, size)
        end = encoding.number(data, at + size, size)
        at += 2 * size
        if start == end == 0:
            return found
        if start == highest:
            base = end
        elif start < end:
            found.append((base + start, base + end))
    raise MalformedDwarf(f"a list of more than {_MAX_RANGES} ranges")


def read_rnglist(
    data: Bytes,
    at: int,
    encoding: UnitEncoding,
    base: int,
    indexed_address: Callable[[int], int],
) -> list[Range]:
    """Return the range list at a position of ``.debug_rnglists`` (DWARF 5, DW_RLE_…).

    Args:
        data: the section.
        at: the position of the list.
        encoding: the encoding of the unit.
        base: the unit's base address.
        indexed_address: returns an entry of the unit's part of ``.debug_addr``.

    Raises:
        MalformedDwarf: the list is implausibly long, or has an entry of an unknown kind.
    """
    size = encoding.address_size
    found: list[Range] = []
    for _ in range(_MAX_RANGES):
        kind = data[at]
        at += 1
        if kind == 0:  # end_of_list
            return found
        if kind == 1:  # base_addressx
            index, at = read_uleb128(data, at)
            base = indexed_address(index)
            continue
        if kind == 5:  # base_address
            base, at = encoding.number(data, at, size), at + size
            continue
        if kind in (2, 3, 4):  # startx_endx, startx_length, offset_pair
            first, at = read_uleb128(data, at)
            second, at = read_uleb128(data, at)
            start = base + first if kind == 4 else indexed_address(first)
            end = start + second if kind == 3 else base + second
            end = indexed_address(second) if kind == 2 else end
        elif kind == 6:  # start_end
            start, end = encoding.number(data, at, size), encoding.number(data, at + size, size)
            at += 2 * size
        elif kind == 7:  # start_length
            start = encoding.number(data, at, size)
            length, at = read_uleb128(data, at + size)
            end = start + length
        else:
            raise MalformedDwarf(f"DW_RLE {kind:#x} is not known")
        found.append((start, end))
    raise MalformedDwarf(f"a list of more than {_MAX_RANGES} ranges")


def read_aranges(data: Bytes, plain: UnitEncoding) -> Iterator[tuple[int, int, int]]:
    """Yield every range of ``.debug_aranges``: start, end, position of the unit."""
    at, seen = 0, 0
    while at < len(data):
        length, start, size = plain.number(data, at, 4), at + 4, 4
        if length == 0xFFFFFFFF:
            length, start, size = plain.number(data, start, 8), start + 8, 8
        end = min(start + length, len(data))
        unit = plain.number(data, start + 2, size)
        width = data[start + 2 + size]
        if width not in (4, 8) or data[start + 3 + size]:
            raise MalformedDwarf(
                ".debug_aranges with segments, or with addresses of neither 4 nor 8 bytes"
            )
        # Entries are aligned to twice the size of an address, relative to the header.
        position = at + -(-(start + 4 + size - at) // (2 * width)) * 2 * width
        count = max(0, end - position) // (2 * width)
        seen += count
        if seen > _MAX_ARANGES:
            raise MalformedDwarf(f"more than {_MAX_ARANGES} ranges of units")
        pairs = struct.iter_unpack(
            f"{'<' if plain.byteorder == 'little' else '>'}{'QQ' if width == 8 else 'II'}",
            bytes(data[position : position + count * 2 * width]),
        )
        for low, many in pairs:
            if low and many:
                yield low, low + many, unit
        at = end


class RangeMap:
    """A map from addresses to ranges; of nested ranges, to the innermost.

    Args:
        ranges: (start, end, rank, number). Where ranges overlap, the one with the greatest rank is
            found; of equal ranks, the shortest.
    """

    def __init__(self, ranges: Iterable[tuple[int, int, int, int]]) -> None:
        self._starts, self._numbers = array("Q"), array("I")
        rows = sorted(ranges)
        points = sorted({point for low, high, _, _ in rows for point in (low, high)})
        active: list[tuple[int, int, int, int]] = []  # a heap: the range that hides others is first
        following = 0
        for point in points:
            while following < len(rows) and rows[following][0] <= point:
                low, high, rank, number = rows[following]
                heapq.heappush(active, (-rank, high - low, number, high))
                following += 1
            while active and active[0][3] <= point:
                heapq.heappop(active)
            number = active[0][2] if active else _NONE
            if not self._numbers or self._numbers[-1] != number:
                self._starts.append(point)
                self._numbers.append(number)

    def __len__(self) -> int:
        return len(self._starts)

    def find(self, address: int) -> int | None:
        """Return the number of the range that contains an address; None if there is none."""
        at = bisect.bisect_right(self._starts, address) - 1
        number = self._numbers[at] if at >= 0 else _NONE
        return None if number == _NONE else number
