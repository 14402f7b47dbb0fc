"""Tagged unions, such as Rust's enums: their variants and discriminants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.dwarf.units.constants import At, Form, Tag
from usdt.dwarf.units.forms import read_sleb128, read_uleb128

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.types import Member
    from usdt.dwarf.units.dies import Die

    MemberOf = Callable[[Die], "Member | None"]

__all__ = ("Variant", "VariantPart", "read_variants")

_MAX = 1 << 14
_SIZES = {Form.DATA1: 1, Form.DATA2: 2, Form.DATA4: 4, Form.DATA8: 8}


@frozen
class Variant:
    """A variant of a tagged union.

    Attributes:
        name: its name, such as "Some".
        values: the discriminants that select it, as ranges (first, last) of unsigned numbers; None
            for the variant that all other discriminants select.
        member: its data; None if it has none.
    """

    name: str
    values: tuple[tuple[int, int], ...] | None
    member: Member | None


@frozen
class VariantPart:
    """The variants of a tagged union.

    Attributes:
        discriminant: the number that selects the variant; None if there is only one.
        size: size of the discriminant in bytes.
        variants: every variant.
    """

    discriminant: Member | None
    size: int
    variants: tuple[Variant, ...]

    def names_by_value(self) -> list[tuple[int, str]] | None:
        """Return every discriminant with the name of its variant.

        None if a list cannot express it: equal names, ranges, several variants for all other
        discriminants, or one such variant without a member.
        """
        names = [one.name for one in self.variants]
        rest = [one for one in self.variants if one.values is None]
        if len({*names}) < len(names) or len(rest) > 1 or any(one.member is None for one in rest):
            return None
        listed = [(*pair, one.name) for one in self.variants for pair in one.values or ()]
        if any(low != high for low, high, _ in listed):
            return None
        return [(low, name) for low, _, name in listed]


def read_variants(part: Die, member_of: MemberOf, size_of: Callable[[int], int]) -> VariantPart:
    """Return the variants that a DW_TAG_variant_part describes."""
    die = part.target(At.DISCR)
    discriminant = None if die is None else member_of(die)
    size = 0 if discriminant is None else size_of(discriminant.type_id)
    mask = (1 << 8 * size) - 1
    variants: list[Variant] = []
    for one in part.children(Tag.VARIANT):
        if len(variants) >= _MAX:
            break
        inner = next(iter(one.children(Tag.MEMBER)), None)
        member = None if inner is None else member_of(inner)
        name = member.name if member is not None else one.text()
        variants.append(Variant(name, _values(one, mask), member))
    return VariantPart(discriminant, size, tuple(variants))


def _values(die: Die, mask: int) -> tuple[tuple[int, int], ...] | None:
    value = die.number(At.DISCR_VALUE)
    if value is not None:
        return ((value & mask, value & mask),)
    wide = die.block(At.DISCR_VALUE)  # a value of 16 bytes
    if wide is not None:
        number = int.from_bytes(wide, die.unit.encoding.byteorder) & mask  # type: ignore[arg-type]
        return ((number, number),)
    listed = die.block(At.DISCR_LIST)
    if listed is None:
        return None
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(listed) and len(found) < _MAX:
        is_range, at = read_uleb128(listed, at)
        low, at = read_sleb128(listed, at)
        high = low
        if is_range:
            high, at = read_sleb128(listed, at)
        found.append((low & mask, high & mask))
    return tuple(found)
