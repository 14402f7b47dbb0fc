"""What is said at the end of what was not delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.cli.running import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.runtime.session import Lost

__all__ = ("closing_line", "tell_losses")


def tell_losses(lost: Sequence[Lost]) -> None:
    """One line for each thing that a probe did not deliver."""
    for item in lost:
        if item.unread:
            say(f"{item.probe}: {item.unread} hits with an unreadable predicate left out")
        if item.lost:
            say(f"{item.probe}: {item.lost} lost; a larger --buffer may help")


def closing_line(events: int, lost: Sequence[Lost]) -> str:
    """``N events, M lost``."""
    return f"{events} events, {sum(item.lost for item in lost)} lost"
