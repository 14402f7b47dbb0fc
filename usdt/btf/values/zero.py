"""Test whether a value is zero, and therefore hidden. One test is built per type.

Tests ignore padding. An array of characters is zero if it begins with a NUL. A value that is not
completely in the data is not zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import Array, Composite, Enum, Float, Int, Member, Pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

    #: (data, offset of the value, end of the data) → True if the value is zero.
    Test: TypeAlias = Callable[[bytes, int, int], bool]

__all__ = ("ZeroTests",)


class ZeroTests:
    """Tests by type, each built once. Check the type with :class:`TypeLimits` first."""

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self._made: dict[int, Test] = {}

    def test(self, type_id: int) -> Test:
        """Return the test for values of a type."""
        made = self._made.get(type_id)
        if made is None:
            made = self._made[type_id] = self._make(type_id)
        return made

    def _make(self, type_id: int) -> Test:
        found = self._btf.resolve(type_id)
        if isinstance(found, Array):
            return self._array(found)
        if tagged_union_of(self._btf, found) is not None:
            return _never  # the name of a variant is always shown
        if isinstance(found, Composite):
            return self._composite(found)
        if isinstance(found, Int | Enum | Float | Pointer):
            return _plain(self._btf.size_of(type_id))
        return _never

    def _array(self, found: Array) -> Test:
        if not found.count:
            return _always
        size = self._btf.size_of(found.type_id)
        element = self._btf.resolve(found.type_id)
        if isinstance(element, Int) and size == 1:
            return _plain(1)
        if isinstance(element, Int | Enum | Float | Pointer):
            return _plain(size * found.count)
        test = self.test(found.type_id)
        places = range(0, found.count * size, size) if size else range(1)

        def zero(data: bytes, at: int, end: int) -> bool:
            return all(test(data, at + place, end) for place in places)

        return zero

    def _composite(self, found: Composite) -> Test:
        tests = [self._member(member) for member in found.members]
        size = found.size
        plain = bytes(size)

        def zero(data: bytes, at: int, end: int) -> bool:
            if data[at : at + size] == plain and size:
                return True
            return all(test(data, at + byte, end) for byte, test in tests)

        return zero

    def _member(self, member: Member) -> tuple[int, Test]:
        byte, bit = divmod(member.bit_offset, 8)
        if member.bitfield_size and isinstance(self._btf.resolve(member.type_id), Int | Enum):
            return byte, _bits(bit, member.bitfield_size, little=self._btf.order == "little")
        return byte, self.test(member.type_id)


def _plain(size: int) -> Test:
    zeroes = bytes(size)
    return lambda data, at, _: data[at : at + size] == zeroes


def _bits(bit: int, bits: int, *, little: bool) -> Test:
    size = (bit + bits + 7) // 8
    mask = ((1 << bits) - 1) << (bit if little else 8 * size - bit - bits)

    def zero(data: bytes, at: int, end: int) -> bool:
        if at + size > end:
            return False
        return not int.from_bytes(data[at : at + size], "little" if little else "big") & mask

    return zero


def _always(_: bytes, __: int, ___: int) -> bool:
    return True


def _never(_: bytes, __: int, ___: int) -> bool:
    return False
