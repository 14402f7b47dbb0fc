"""Bounds of a type, checked before code is generated for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import MAX_NESTING, nesting_error
from usdt.btf.types import Array, Composite, DataSection, Variable

if TYPE_CHECKING:
    from usdt.btf.reader import Btf

__all__ = ("TypeLimits",)

_MAX_VALUES = 1 << 22


class TypeLimits:
    """Extents and numbers of values of types; refuses types nested or large without end."""

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self._known: dict[int, tuple[int, int]] = {}

    def extent(self, type_id: int) -> int:
        """Return the bytes from a value's start to the end of its last member.

        In damaged BTF that may be more than the size of the type.

        Raises:
            BtfError: the type is nested too deeply, or too large.
        """
        return self._measure(type_id, 0)[0]

    def values(self, type_id: int) -> int:
        """Return how many values a value of a type contains, counting each structure as one more.

        Raises:
            BtfError: the type is nested too deeply, or too large.
        """
        return self._measure(type_id, 0)[1]

    def _measure(self, type_id: int, depth: int) -> tuple[int, int]:
        known = self._known.get(type_id)
        if known is not None:
            return known
        if depth > MAX_NESTING:
            raise nesting_error(self._btf.name, type_id)
        found = self._btf.resolve(type_id)
        size, values = self._size(type_id), 1
        if isinstance(found, Array):
            inner, each = self._measure(found.type_id, depth + 1)
            stride = self._size(found.type_id)
            size = max(size, inner + stride * max(0, found.count - 1)) if found.count else 0
            values = max(1, found.count) * each
        elif isinstance(found, Composite):
            for member in found.members:
                inner, each = self._measure(member.type_id, depth + 1)
                byte, bit = divmod(member.bit_offset, 8)
                size = max(size, byte + inner, byte + (bit + member.bitfield_size + 7) // 8)
                values += each
        elif isinstance(found, Variable):
            size, values = self._measure(found.type_id, depth + 1)
        elif isinstance(found, DataSection):
            for item in found.items:
                inner, each = self._measure(item.type_id, depth + 1)
                size, values = max(size, item.offset + inner), values + each
        if values > _MAX_VALUES:
            raise BtfError(f"{self._btf.name}: BTF type {type_id} contains {values} values")
        self._known[type_id] = size, values
        return size, values

    def _size(self, type_id: int) -> int:
        try:
            return self._btf.size_of(type_id)
        except BtfError:
            return 0
