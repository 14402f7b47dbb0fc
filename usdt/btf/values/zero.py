"""Is a value zero, and so not worth showing? Tests made per type.

Padding does not count, nor what follows the NUL that begins an array of characters. What lies
behind the end of the data is not known to be zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import Array, Composite, Enum, Float, Int, Member, Pointer

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf

    #: Of the data, the place of the value in it, and the end of the data.
    Test: TypeAlias = Callable[[bytes, int, int], bool]

__all__ = ("ZeroTests",)


class ZeroTests:
    """Tests by type; each type's is made once. Measure a type before asking for its test."""

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self._made: dict[int, Test] = {}

    def test(self, number: int) -> Test:
        """The test for values of a type."""
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = self._make(number)
        return made

    def _make(self, number: int) -> Test:
        found = self._btf.resolve(number)
        if isinstance(found, Array):
            return self._array(found)
        if tagged_union_of(self._btf, found) is not None:
            return _never  # each form says something
        if isinstance(found, Composite):
            return self._composite(found)
        if isinstance(found, Int | Enum | Float | Pointer):
            return _plain(self._btf.size_of(number))
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
    number = (bit + bits + 7) // 8
    mask = ((1 << bits) - 1) << (bit if little else 8 * number - bit - bits)

    def zero(data: bytes, at: int, end: int) -> bool:
        if at + number > end:
            return False
        return not int.from_bytes(data[at : at + number], "little" if little else "big") & mask

    return zero


def _always(_: bytes, __: int, ___: int) -> bool:
    return True


def _never(_: bytes, __: int, ___: int) -> bool:
    return False
