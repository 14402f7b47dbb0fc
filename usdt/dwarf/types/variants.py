"""Enumerations with data, as Rust has them: which member a value has, and how that is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.dwarf.units.constants import At, Form, Tag
from usdt.dwarf.units.forms import signed, unsigned

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.types import Member
    from usdt.dwarf.units.dies import Die

    MemberOf = Callable[[Die], "Member | None"]

__all__ = ("Variant", "VariantPart", "read_variants")

_MOST = 1 << 14
_SIZES = {Form.DATA1: 1, Form.DATA2: 2, Form.DATA4: 4, Form.DATA8: 8}


@frozen
class Variant:
    """One of several forms of a value.

    Attributes:
        name: "Some".
        values: the discriminants that choose it, as ranges from and to (included), unsigned at
            their own size; None of the one that all others choose.
        member: where its data are; None of one without any.
    """

    name: str
    values: tuple[tuple[int, int], ...] | None
    member: Member | None


@frozen
class VariantPart:
    """The forms of a type.

    Attributes:
        discriminant: the number that tells them apart; None where there is but one form.
        size: of the discriminant, in bytes.
        variants: every form.
    """

    discriminant: Member | None
    size: int
    variants: tuple[Variant, ...]

    def choose(self, value: int) -> Variant | None:
        """The form that a discriminant stands for."""
        value &= (1 << 8 * self.size) - 1
        rest = None
        for one in self.variants:
            if one.values is None:
                rest = one
            elif any(low <= value <= high for low, high in one.values):
                return one
        return rest

    def numbers(self) -> list[tuple[int, str]] | None:
        """Every discriminant and the name that it stands for.

        None where a list cannot say it: two names that are equal, more than one form for all other
        numbers or one without a member, ranges.
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
    """What a DW_TAG_variant_part says."""
    die = part.target(At.DISCR)
    discriminant = None if die is None else member_of(die)
    size = 0 if discriminant is None else size_of(discriminant.type_id)
    mask = (1 << 8 * size) - 1
    variants: list[Variant] = []
    for one in part.children(Tag.VARIANT):
        if len(variants) >= _MOST:
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
    wide = die.block(At.DISCR_VALUE)  # of 16 bytes
    if wide is not None:
        number = int.from_bytes(wide, die.unit.encoding.byteorder) & mask  # type: ignore[arg-type]
        return ((number, number),)
    listed = die.block(At.DISCR_LIST)
    if listed is None:
        return None
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(listed) and len(found) < _MOST:
        is_range, at = unsigned(listed, at)
        low, at = signed(listed, at)
        high = low
        if is_range:
            high, at = signed(listed, at)
        found.append((low & mask, high & mask))
    return tuple(found)
