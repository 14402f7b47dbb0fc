"""``(struct request *)arg0->path``: what people write for ``((struct request *)arg0)->path``.

C casts the member. But a number has no members, so nothing else can be meant: the cast then goes
to what the members are asked of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.language.tree import Cast, Index, Member

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.language.tree import Expression

__all__ = ("bound_closer",)


def bound_closer(tree: Cast, untyped: Callable[[Expression], bool]) -> Expression | None:
    """The tree with the cast where it must have been meant; None if C's meaning is possible.

    Args:
        tree: a cast.
        untyped: whether an expression is a number, which has no members.
    """
    around: list[Member | Index] = []
    inner = tree.operand
    while isinstance(inner, (Member, Index)):
        around.append(inner)
        inner = inner.object
    if not tree.type.pointers or not any(isinstance(one, Member) for one in around):
        return None
    if not untyped(inner):
        return None
    made: Expression = Cast(tree.type, inner, tree.start, inner.end)
    for one in reversed(around):
        if isinstance(one, Member):
            made = Member(made, one.name, one.arrow, tree.start, one.end)
        else:
            made = Index(made, one.index, tree.start, one.end)
    return made
