"""Starts and ends of spans by the names of their probes: which of them belong together.

A span is a hit of one probe and the next hit of its counterpart in the same thread. Of several open
spans the latest ends first, as with function calls.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

__all__ = ("OpenStarts", "role_of", "roles")

_STARTS = ("start", "begin", "entry", "enter")
_ENDS = ("done", "end", "return", "exit", "stop", "finish")

_Start = TypeVar("_Start")


def role_of(probe: str) -> tuple[str, str]:
    """Return ("B" or "E", the span's name) for ``x__start`` and ``x__done``; else ("i", probe)."""
    base, _, last = probe.rpartition("__")
    if last in _STARTS:
        return "B", base
    return ("E", base) if last in _ENDS else ("i", probe)


def roles(names: set[str], given: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Return probe → ("B" or "E", the span's name), for probes with a counterpart.

    Args:
        names: all probes.
        given: pairs of probes that begin and end a span, besides those found by name.
    """
    found: dict[str, tuple[str, str]] = {}
    bases: dict[str, dict[str, list[str]]] = {}
    for probe in sorted(names):
        role, base = role_of(probe)
        if role != "i":
            bases.setdefault(base, {}).setdefault(role, []).append(probe)
    for base, sides in bases.items():
        if len(sides) > 1:
            found |= {probe: (role, base) for role, side in sides.items() for probe in side}
    for start, end in given:
        name = start.rpartition("__")[0] or start
        found |= {start: ("B", name), end: ("E", name)}
    return found


class OpenStarts(Generic[_Start]):
    """The starts that wait for their ends.

    Args:
        most: how many may wait; beyond that, the oldest are given up.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[int, tuple[Hashable, _Start]] = OrderedDict()
        self._waiting: dict[Hashable, deque[int]] = {}
        self._next = 0

    def begin(self, key: Hashable, start: _Start) -> _Start | None:
        """Add a start; return the oldest one if it is given up, because too many are open."""
        self._next += 1
        self._open[self._next] = key, start
        self._waiting.setdefault(key, deque()).append(self._next)
        return self._give_up() if len(self._open) > self._most else None

    def end(self, key: Hashable) -> _Start | None:
        """Remove and return the latest start with the key; None if there is none."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return None
        _, start = self._open.pop(waiting.pop())
        if not waiting:
            del self._waiting[key]
        return start

    def rest(self) -> Iterator[_Start]:
        """Remove and yield all starts, the oldest first."""
        while self._open:
            yield self._give_up()

    def _give_up(self) -> _Start:
        # Removes the oldest open span: its end was not recorded, or never occurred.
        _, (key, start) = self._open.popitem(last=False)
        waiting = self._waiting[key]
        waiting.popleft()
        if not waiting:
            del self._waiting[key]
        return start
