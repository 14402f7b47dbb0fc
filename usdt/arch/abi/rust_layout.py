"""rustc's backend representation of a type: a scalar, a scalar pair, or memory.

A structure with one scalar is that scalar; one with two scalars is a pair. An enum with data is its
discriminant plus the scalar that all variants have at the same offset, or, if a niche encodes the
discriminant, the data of that variant. An array is always memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.classify import ScalarField
from usdt.btf.format import Kind
from usdt.btf.tagged_union import tagged_union_of
from usdt.btf.types import Composite, Enum, Float, Int, Pointer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.btf.reader import Btf
    from usdt.btf.tagged_union import TaggedUnion
    from usdt.btf.types import Member

    Part = tuple[int, int, list[ScalarField] | None]  # start, end and scalars of a field
    Known = dict[int, list[ScalarField] | None]  # scalars of types, by ID

__all__ = ("scalar_pair_of",)

_MAX_NESTING = 32
_MAX_MEMBERS = 256


def scalar_pair_of(btf: Btf, number: int) -> list[ScalarField] | None:
    """Return the one or two scalars of a type; [] for size 0; None if it is passed as memory.

    Raises:
        BtfError: the type has no size.
    """
    return _scalars(btf, number, 0, {})


def _scalars(btf: Btf, number: int, depth: int, known: Known) -> list[ScalarField] | None:
    # Look at each type once: damaged types contain one another many times.
    if number not in known:
        known[number] = None  # a type within itself
        known[number] = _found_scalars(btf, number, depth, known)
    return known[number]


def _found_scalars(btf: Btf, number: int, depth: int, known: Known) -> list[ScalarField] | None:
    found, size = btf.resolve(number), btf.size_of(number)
    if not size:
        return []
    if isinstance(found, Int | Enum | Float | Pointer):
        return [ScalarField(0, size, size, isinstance(found, Float))]
    if (
        not isinstance(found, Composite)
        or depth > _MAX_NESTING
        or len(found.members) > _MAX_MEMBERS
    ):
        return None
    choice = tagged_union_of(btf, found)
    if choice is None and _is_untold(btf, found):
        return [ScalarField(0, size, 1)]  # one field of the whole size: not treated as a scalar
    if choice is not None:
        made = _chosen(btf, choice, depth, known)
    else:
        parts = _parts(btf, found.members, 0, depth, known)
        made = _shared(parts) if found.kind == Kind.UNION else _joined(parts)
    return made if made is not None and _is_plain(made, size) else None


def _is_untold(btf: Btf, found: Composite) -> bool:
    # True for an enum whose discriminant is unknown: its variants are its only members.
    within = btf.resolve(found.members[0].type_id) if len(found.members) == 1 else None
    nameless = found.kind != Kind.UNION and found.members[:1] and not found.members[0].name
    return bool(nameless) and isinstance(within, Composite) and len(within.members) > 1


def _parts(btf: Btf, members: Sequence[Member], start: int, depth: int, known: Known) -> list[Part]:
    # The fields that are not empty.
    found: list[Part] = []
    for member in members:
        size = btf.size_of(member.type_id)
        if size:
            at = start + member.bit_offset // 8
            inner = _scalars(btf, member.type_id, depth + 1, known)
            if inner is not None:
                inner = [
                    ScalarField(at + one.start, one.size, one.align, one.floating) for one in inner
                ]
            found.append((at, at + size, inner))
    return found


def _joined(parts: list[Part]) -> list[ScalarField] | None:
    # The representation of a structure.
    if len(parts) == 1:
        return parts[0][2]
    made: list[ScalarField] = []
    for _, _, inner in parts:
        if len(parts) > 2 or inner is None or len(inner) != 1:
            return None
        made += inner
    return sorted(made, key=lambda field: field.start)


def _shared(parts: list[Part]) -> list[ScalarField] | None:
    # A union: the representation that all of its members share.
    found = {None if inner is None else tuple(inner) for _, _, inner in parts}
    one = found.pop() if len(found) == 1 else None
    return None if one is None else [*one]


def _chosen(btf: Btf, choice: TaggedUnion, depth: int, known: Known) -> list[ScalarField] | None:
    # The representation of an enum with data.
    tag = ScalarField(choice.discriminant.bit_offset // 8, choice.size, choice.size)
    forms = []
    for _, member in (*choice.variants.values(), *((choice.default,) if choice.default else ())):
        inner = None if member is None else btf.resolve(member.type_id)
        if member is not None and isinstance(inner, Composite):
            within = inner.members[:_MAX_MEMBERS]
            parts = _parts(btf, within, member.bit_offset // 8, depth + 1, known)
            forms += [parts] * bool(parts)
    if any(start < tag.end and tag.start < end for parts in forms for start, end, _ in parts):
        return _joined(forms[0]) if len(forms) == 1 else None  # a niche in one variant's data
    same: set[ScalarField] = set()
    for parts in forms:
        inner_numbers = parts[0][2]
        if len(parts) > 1 or inner_numbers is None or len(inner_numbers) != 1:
            return None
        same.update(inner_numbers)
    return None if len(same) > 1 else [tag, *same]


def _is_plain(numbers: list[ScalarField], size: int) -> bool:
    # True if the scalars have their natural layout: not packed, not over-aligned.
    at, align = 0, 1
    for one in numbers:
        at += -at % one.align
        if one.start != at:
            return False
        at, align = one.end, max(align, one.align)
    return at + -at % align == size
