"""Padding and packing that make a C compiler place members where BTF has them.

Compilers place members by their alignment. Where BTF has a member elsewhere, unnamed bit fields
fill the gap, or the structure is packed. BTF does not record alignment attributes; they are visible
only as gaps and as larger sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.btf.format import MAX_NESTING, Kind, nesting_error
from usdt.btf.types import Array, Composite, Enum, Float, Int, Member, Pointer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.btf.reader import Btf

__all__ = ("CAlignment", "padding")

_UNITS = ((64, "long long"), (32, "int"), (16, "short"), (8, "char"))
_MAX_ALIGNMENT = 16
_MAX_GAP = 8 << 16  # bits; the kernel's largest gaps are a page, so a larger one means damaged BTF


def padding(start: int, end: int) -> Iterator[str]:
    """Yield unnamed bit fields that fill the bits from ``start`` to ``end`` without being moved."""
    while start < end:
        if start % 8 or end - start < 8:
            bits = min(end - start, 8 - start % 8)
            yield f"char: {bits}"
        else:
            bits, unit = next(
                (bits, unit) for bits, unit in _UNITS if not start % bits and start + bits <= end
            )
            yield f"{unit}: {bits}"
        start += bits


class CAlignment:
    """Alignments of types as a C compiler computes them from the printed definitions."""

    def __init__(self, btf: Btf) -> None:
        self._btf = btf
        self._alignments: dict[int, int] = {}

    def align(self, type_id: int, depth: int = 0) -> int:
        """Return the alignment of a type in bytes.

        Raises:
            BtfError: types contain one another, or one has no size.
        """
        known = self._alignments.get(type_id)
        if known is not None:
            return known
        if depth > MAX_NESTING:
            raise nesting_error(self._btf.name, type_id)
        found = self._btf.resolve(type_id)
        if isinstance(found, Int | Enum | Float):
            result = min(_MAX_ALIGNMENT, found.size)
        elif isinstance(found, Pointer):
            result = self._btf.pointer_size
        elif isinstance(found, Array):
            result = self.align(found.type_id, depth + 1)
        elif isinstance(found, Composite):
            result = 1 if self.packed(found, depth) else self._widest(found, depth)
        else:
            raise BtfError(f"{self._btf.name}: BTF type {type_id} has no size")
        self._alignments[type_id] = result = max(1, result)
        return result

    def _widest(self, found: Composite, depth: int) -> int:
        return max((self.align(member.type_id, depth + 1) for member in found.members), default=1)

    def packed(self, found: Composite, depth: int = 0) -> bool:
        """Return True if the definition needs the attribute ``packed``."""
        if found.size % self._widest(found, depth):
            return True
        for member in found.members:
            if member.bitfield_size:
                unit = 8 * self._btf.size_of(member.type_id)
                first, last = member.bit_offset, member.bit_offset + member.bitfield_size - 1
                if not unit or first // unit != last // unit:
                    return True
            elif member.bit_offset % (8 * self.align(member.type_id, depth + 1)):
                return True
        return False

    def gaps(self, found: Composite) -> tuple[list[list[str]], list[str]]:
        """Return the padding before each member, and the padding at the end.

        Raises:
            BtfError: no C structure has such members.
        """
        packed = self.packed(found)
        at, before = 0, []
        end = 0
        for member in found.members:
            if found.kind == Kind.UNION:
                at = 0
            if member.bit_offset < at:
                raise BtfError(f"{self._btf.name}: members of {found.name or 'a type'} overlap")
            natural = self._natural(member, at, packed=packed)
            filled = natural == member.bit_offset
            before.append([] if filled else self._gap(found, at, member.bit_offset))
            at = member.bit_offset + (member.bitfield_size or 8 * self._btf.size_of(member.type_id))
            end = max(end, at)
        align = 8 if packed else 8 * self.align(found.id)
        whole = -(-end // align) * align
        if whole > 8 * found.size or (found.kind == Kind.UNION and any(before)):
            raise BtfError(
                f"{self._btf.name}: members of {found.name or 'a type'} do not fit its size"
            )
        if whole == 8 * found.size:
            return before, []
        start = 0 if found.kind == Kind.UNION else end
        return before, self._gap(found, start, 8 * found.size)

    def _gap(self, found: Composite, start: int, end: int) -> list[str]:
        if end - start > _MAX_GAP:
            size = (end - start) // 8
            raise BtfError(f"{self._btf.name}: {found.name or 'a type'} has a gap of {size} bytes")
        return [*padding(start, end)]

    def _natural(self, member: Member, at: int, *, packed: bool) -> int:
        if not member.bitfield_size:
            align = 8 if packed else 8 * self.align(member.type_id)
            return -(-at // align) * align
        unit = 8 * self._btf.size_of(member.type_id)
        if packed or at // unit == (at + member.bitfield_size - 1) // unit:
            return at
        return -(-at // unit) * unit
