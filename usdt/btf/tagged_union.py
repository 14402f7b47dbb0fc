"""Tagged unions: structures whose discriminant says which member of a union is valid.

They are Rust's enumerations with data. BTF has no kind for them, so they are written as C would
write them, with a name for the discriminant that no compiler gives::

    struct Shape {
        enum { Empty = 0, Circle = 1 } ?;
        union {
            struct Empty Empty;
            struct Circle Circle;
        };
    };

Discriminants that the enum does not name select the one member of the union that it does not name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.btf.types import Composite, Enum

if TYPE_CHECKING:
    from usdt.btf.reader import Btf
    from usdt.btf.types import Member, Type

__all__ = ("DISCRIMINANT", "TaggedUnion", "tagged_union_of")

DISCRIMINANT = "?"  # the member's name
_SIZES = (1, 2, 4, 8)


@frozen
class TaggedUnion:
    """The variants of a type.

    Attributes:
        discriminant: the member that says which variant a value is.
        size: of the discriminant, in bytes.
        variants: discriminant → the variant's name and the member with its data, if any.
        default: the same for all other discriminants; None if there are none.
    """

    discriminant: Member
    size: int
    variants: dict[int, tuple[str, Member | None]]
    default: tuple[str, Member | None] | None


def tagged_union_of(btf: Btf, resolved: Type) -> TaggedUnion | None:
    """Return the variants of a tagged union; None for every other type."""
    if not isinstance(resolved, Composite) or len(resolved.members) != 2:
        return None
    tag, data = resolved.members
    if tag.name != DISCRIMINANT or data.name or tag.bitfield_size or tag.bit_offset % 8:
        return None
    tags, union = btf.resolve(tag.type_id), btf.resolve(data.type_id)
    if not isinstance(tags, Enum) or not isinstance(union, Composite) or tags.size not in _SIZES:
        return None
    if tag.bit_offset // 8 + tags.size > resolved.size:
        return None
    members = {member.name: member for member in union.members}
    mask = (1 << 8 * tags.size) - 1
    variants = {one.value & mask: (one.name, members.get(one.name)) for one in tags.values}
    named = {one.name for one in tags.values}
    others = [member for member in union.members if member.name not in named]
    default = (others[0].name, others[0]) if len(others) == 1 else None
    return TaggedUnion(tag, tags.size, variants, default)
