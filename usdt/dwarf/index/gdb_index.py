"""``.gdb_index``, versions 7 to 9: which units have a name, and which an address.

gdb-add-index, gold and lld write the section. Its format is in the manual of gdb, "Index Section
Format". All numbers are little-endian.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING

from usdt.base.text import encoded
from usdt.dwarf.units.errors import MalformedDwarf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.dwarf.units.sections import SectionBytes

__all__ = ("GdbIndex",)

_PLACES = {7: 6, 8: 6, 9: 7}  # version → numbers of the header
_MAX_PROBES = 1 << 12  # slots that are looked at for one name
_MAX_VECTOR = 1 << 16  # units of one name
_MAX_RANGES = 1 << 20
_UNIT = struct.Struct("<QQ")
_SLOT = struct.Struct("<II")
_RANGE = struct.Struct("<QQI")
_NUMBER = struct.Struct("<I")
_UNIT_BITS = 24
_NO_INFO, _TYPE = 0, 1  # kinds of symbols


class GdbIndex:
    """The section of one file.

    Args:
        data: the section.

    Raises:
        MalformedDwarf: it is of another version, or its tables do not follow one another.
    """

    def __init__(self, data: SectionBytes) -> None:
        self._data = data
        (version,) = self._numbers(_NUMBER, 0)
        count = _PLACES.get(version)
        if count is None:
            raise MalformedDwarf(f".gdb_index of version {version}; 7 to 9 are read")
        places = self._numbers(struct.Struct(f"<{count}I"), 0)[1:]
        if list(places) != sorted(places) or places[-1] > len(data):
            raise MalformedDwarf(".gdb_index with tables that overlap")
        self._units, types, self._ranges, self._slots = places[:4]
        self._pool = places[-1]
        self._unit_count = (types - self._units) // _UNIT.size
        self._slot_count = (places[4] - self._slots) // _SLOT.size

    def _numbers(self, layout: struct.Struct, at: int) -> tuple[int, ...]:
        return layout.unpack(self._data[at : at + layout.size])

    def _unit(self, index: int) -> int | None:
        # None for a type unit.
        if index >= self._unit_count:
            return None
        return self._numbers(_UNIT, self._units + index * _UNIT.size)[0]

    def types(self, name: str) -> Iterator[int]:
        """Yield the positions in ``.debug_info`` of the units that have a type of a name.

        Raises:
            struct.error: the section is damaged.
        """
        vector = self._vector(encoded(name))
        if not vector:
            return
        (count,) = self._numbers(_NUMBER, vector)
        for number in range(min(count, _MAX_VECTOR)):
            (value,) = self._numbers(_NUMBER, vector + _NUMBER.size * (number + 1))
            unit = self._unit(value & (1 << _UNIT_BITS) - 1)
            if unit is not None and value >> 28 & 7 in (_NO_INFO, _TYPE):
                yield unit

    def _vector(self, name: bytes) -> int:
        # The position of the units of a name; 0 if it has none. Open addressing.
        mask = self._slot_count - 1
        if self._slot_count & mask or not self._slot_count:
            return 0
        number = _hash(name)
        slot, step = number & mask, (number * 17 & mask) | 1
        for _ in range(min(self._slot_count, _MAX_PROBES)):
            at, vector = self._numbers(_SLOT, self._slots + slot * _SLOT.size)
            if not at and not vector:
                return 0
            start = self._pool + at
            if self._data[start : start + len(name) + 1] == name + b"\0":
                return self._pool + vector
            slot = slot + step & mask
        return 0

    @functools.cached_property
    def ranges(self) -> list[tuple[int, int, int]]:
        """Every range of addresses: start, end, position of the unit in ``.debug_info``.

        Raises:
            MalformedDwarf: there are more than in real programs.
        """
        count = (self._slots - self._ranges) // _RANGE.size
        if count > _MAX_RANGES:
            raise MalformedDwarf(f"more than {_MAX_RANGES} ranges of units in .gdb_index")
        data = bytes(self._data[self._ranges : self._ranges + count * _RANGE.size])
        found = ((low, high, self._unit(index)) for low, high, index in _RANGE.iter_unpack(data))
        return [(low, high, unit) for low, high, unit in found if unit is not None and low]


def _hash(name: bytes) -> int:
    number = 0
    for byte in name.lower():
        number = number * 67 + byte - 113 & 0xFFFFFFFF
    return number
