"""Stacks of events and results, as the flame graph of a page: a bounded number of boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.frozen import replace
from usdt.engine.aggregate.output.profile import add_results
from usdt.engine.output.profiles.counts import StackCounts
from usdt.engine.pages.texts import NAME
from usdt.pictures.profile import Profile
from usdt.pictures.tree import tree_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.engine.merge.merge import Group
    from usdt.engine.pages.texts import Texts
    from usdt.pictures.tree import Tree

__all__ = ("Stacks",)

_STACKS = 20_000  # distinct ones that are kept apart
_BOXES = 5000


class Stacks:
    """The stacks of all events and results.

    Args:
        by_host: whether machines are kept apart.
    """

    def __init__(self, *, by_host: bool = False) -> None:
        self._by_host = by_host
        self._profile = Profile(most=_STACKS)
        self._counts = StackCounts(self._profile)

    def add(self, host: str, found: dict[str, Any]) -> None:
        """Add an event or a span of a machine."""
        self._counts.add_event(found, *([("host", host)] if self._by_host else []))

    def add_results(self, groups: Iterable[Group]) -> None:
        """Add merged results."""
        for group in groups:
            aggregation = group.shape.aggregation
            add_results(self._profile, group.results, aggregation, group.shape.value)

    def tree(self, texts: Texts) -> Tree | None:
        """Return the boxes of the flame graph; None without stacks.

        Args:
            texts: bounds the names of functions.
        """
        made = tree_of(self._profile, most=_BOXES)
        if len(made.parent) < 2:
            return None
        return replace(made, names=tuple(texts.fitting(name, NAME) for name in made.names))

    def notices(self) -> list[str]:
        """Return what the flame graph lacks, for people."""
        return self._profile.notices()
