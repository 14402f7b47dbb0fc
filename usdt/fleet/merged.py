"""Results of a fleet, added up by the same library as those of files (``usdt merge``).

A machine has the name by which it was asked, whatever it calls itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.text import plural
from usdt.engine.merge.events import event_of
from usdt.engine.merge.merge import Merge
from usdt.engine.merge.numbers import BadResultError
from usdt.engine.merge.output import Choice, header_line, json_lines, lines_of, loss_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.merge.events import Event
    from usdt.engine.merge.source import Source

__all__ = ("Merged",)

_MOST_PROBLEMS = 20  # that are kept
_INTERVAL = ("time", "interval")
_ALL = Choice()


class Merged:
    """The merged results of aggregations.

    Args:
        by_host: keep machines apart: the key begins with ``host``.
        choice: how results are shown.
        whole: add up all intervals of a machine, too.

    Attributes:
        refused: the number of problems with what machines have sent.
        problems: the first of them.
    """

    def __init__(
        self, *, by_host: bool = False, choice: Choice = _ALL, whole: bool = False
    ) -> None:
        self.refused = 0
        self.problems: list[str] = []
        self._merge = Merge(by_host=by_host, warn=self._warn)
        self._choice = choice
        self._whole = whole
        self._sources: dict[str, Source] = {}

    def _warn(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)

    def add(self, host: str, found: dict[str, Any]) -> bool:
        """Add an object of a machine's stream; return whether it can be used."""
        source = self._source(host)
        before = source.problems
        self._merge.add_object(self._renamed(host, found), source)
        new = source.problems - before
        self.refused += new
        return not new

    def event(self, host: str, found: dict[str, Any]) -> Event | None:
        """Return an event of a machine with its time of day; None if it is damaged."""
        source = self._source(host)
        try:
            return event_of(found | {"host": host}, source)
        except BadResultError as err:
            source.problem(f"{err}: skipped")
            self.refused += 1
            return None

    def _source(self, host: str) -> Source:
        source = self._sources.get(host)
        if source is None:
            source = self._sources[host] = self._merge.source(host, host)
        source.line += 1
        return source

    def _renamed(self, host: str, found: dict[str, Any]) -> dict[str, Any]:
        found = found | {"host": host}
        key = found.get("key")
        if isinstance(key, dict) and "host" in key:
            found["key"] = {name: value for name, value in key.items() if name != "host"}
        if self._whole and "count" in found:
            for name in _INTERVAL:
                found.pop(name, None)
        return found

    @property
    def lost(self) -> int:
        """Hits that machines have lost, or whose results had no space here."""
        return sum(lost for lost, _ in self._merge.lost.values())

    @property
    def unreadable(self) -> int:
        """Hits that machines have skipped."""
        return sum(unreadable for _, unreadable in self._merge.lost.values())

    def lines(self) -> Iterator[str]:
        """Yield the lines of the results, as text."""
        return lines_of(self._merge, self._choice, as_json=False)

    def json(self) -> list[str]:
        """Return the lines of a stream that can be merged again."""
        return [header_line(self._merge), *json_lines(self._merge, self._choice)]

    def missing(self) -> list[str]:
        """Return what is not in the results, for people."""
        lines = loss_lines(self._merge)
        top = self._choice.top
        if top is not None:
            hidden = sum(max(0, len(group.results) - top) for group in self._merge.groups())
            lines += [f"groups left out by --top: {hidden}"] if hidden else []
        more = self.refused - len(self.problems)
        return [*lines, *self.problems, *([plural(more, "more such problem")] if more else [])]
