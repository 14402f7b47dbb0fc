"""Structures of which each value says itself what it is: Rust's enumerations with data.

BTF has no word for them, so they are written as what C would make of them::

    struct Shape {
        enum { Empty = 0, Circle = 1 } ?;     // a name that no compiler gives
        union {
            struct Empty Empty;
            struct Circle Circle;
        };
    };

A number that the enum does not name stands for the one member of the union that it leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.btf.types import Composite, Enum

if TYPE_CHECKING:
    from usdt.btf.reader import Btf
    from usdt.btf.types import Member, Type

__all__ = ("CHOOSER", "Choice", "choice_of")

CHOOSER = "?"  # the member that chooses
_SIZES = (1, 2, 4, 8)


@frozen
class Choice:
    """What a value may be.

    Attributes:
        chooser: the member that tells.
        size: of that, in bytes.
        known: its number → the name of the form, and the member that has its data.
        rest: the same for all other numbers; None where there are none.
    """

    chooser: Member
    size: int
    known: dict[int, tuple[str, Member | None]]
    rest: tuple[str, Member | None] | None


def choice_of(btf: Btf, found: Type) -> Choice | None:
    """What chooses among the members of a type; None of every other type."""
    if not isinstance(found, Composite) or len(found.members) != 2:
        return None
    chooser, within = found.members
    if chooser.name != CHOOSER or within.name or chooser.bits or chooser.bit_offset % 8:
        return None
    kinds, forms = btf.resolve(chooser.target), btf.resolve(within.target)
    if not isinstance(kinds, Enum) or not isinstance(forms, Composite) or kinds.size not in _SIZES:
        return None
    if chooser.bit_offset // 8 + kinds.size > found.size:
        return None
    members = {one.name: one for one in forms.members}
    mask = (1 << 8 * kinds.size) - 1
    known = {one.value & mask: (one.name, members.get(one.name)) for one in kinds.values}
    named = {one.name for one in kinds.values}
    others = [one for one in forms.members if one.name not in named]
    rest = (others[0].name, others[0]) if len(others) == 1 else None
    return Choice(chooser, kinds.size, known, rest)
