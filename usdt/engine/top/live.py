"""What is attached while ``top`` runs, and its readings."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Self

from usdt.base.errors import TracingError
from usdt.engine.api.attach import parse_probes
from usdt.engine.compiler.limits import DEFAULT_BACKLOG
from usdt.engine.top.costs import MORE, counted
from usdt.engine.top.pairs import ends_of, is_call, probe_text
from usdt.engine.top.table import Reading, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usdt.engine.aggregate.values import Value
    from usdt.engine.api.aggregates import Aggregate
    from usdt.engine.api.sessions import Session

__all__ = ("MOST_PAIRS", "LiveProbes")

#: Pairs that are measured at once; those with most hits.
MOST_PAIRS = 16


class LiveProbes:
    """Counted probes, and what was asked to be measured beside; a context manager.

    Args:
        sessions: the class of sessions.
        probes: the probes.
        targets: the parameters of a session that say whom to trace.

    Attributes:
        table: what the readings make.
        notes: what could not be attached.
        kind: the kind of probes that name none.

    Raises:
        TracingError: a probe cannot be attached.
    """

    def __init__(
        self,
        sessions: type[Session],
        probes: Sequence[str],
        targets: dict[str, Any],
    ) -> None:
        self.table = Table()
        self.notes: list[str] = []
        self._sessions, self._targets = sessions, targets
        self.kind = sessions.kind
        self._requests = parse_probes(probes, sessions.kind)
        self._times: dict[str, Aggregate[Value]] = {}
        self._pairs = contextlib.ExitStack()
        self._counting = self.session()
        try:
            self._counts = self._counting.count(*probes)
        except BaseException:
            self._counting.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self._counting, self._pairs:
            pass

    def session(self, hits: int | None = None) -> Session:
        """Return a session on the same processes; the caller closes it.

        Args:
            hits: bytes of hits that are kept until they are taken; those that do not fit are lost.
        """
        backlog = DEFAULT_BACKLOG if hits is None else hits
        return self._sessions(**self._targets, buffer=hits, backlog=backlog)

    # ------------------------------------------------------------ readings

    def read(self) -> None:
        """Add a reading to the table."""
        self.table.add(self.reading())

    def reading(self) -> Reading:
        """Return what the counters say now; may run beside whoever uses the table."""
        self._counts.look()
        counts = dict.fromkeys(self._counts.probes, 0) | self._counts.snapshot()
        times: dict[str, Value] = {}
        for start, aggregate in self._times.items():
            aggregate.look()
            for value in aggregate.snapshot().values():
                times[start] = value
        lost = self._counts.lost + sum(one.lost for one in self._times.values())
        return Reading(time.monotonic(), counts, times, lost)

    @property
    def nanoseconds(self) -> dict[str, int]:
        """Estimated nanoseconds of a hit of the probes of which times are measured."""
        measured = [(start, self.end_of(start) or start) for start in tuple(self._times)]
        return {name: counted(name) + MORE for pair in measured for name in pair}

    @property
    def ended(self) -> bool:
        """Whether all traced processes have ended."""
        return self._counts.look()

    # ------------------------------------------------------------ pairs

    def pairs(self) -> dict[str, str]:
        """Return the probes whose times can be measured: start → end, as texts of probes."""
        totals = {row.probe: row.total for row in self.table.rows()}
        begin = [*ends_of(self._counts.probes), *filter(is_call, self._counts.probes)]
        hit = sorted((name for name in begin if totals.get(name)), key=lambda name: -totals[name])
        return {name: self.end_text(name) for name in hit}

    def end_of(self, probe: str) -> str | None:
        """Return the probe that ends what this one begins: itself for a call, None for others."""
        return probe if is_call(probe) else ends_of(self._counts.probes).get(probe)

    def end_text(self, start: str) -> str:
        """Return the text of the probe that ends what a start begins."""
        end = self.end_of(start)
        return self.text(start, "return") if end in (start, None) else self.text(end)

    def measure(self, pairs: Mapping[str, str]) -> None:
        """Attach what measures the times of some pairs, the first of them; none again.

        Args:
            pairs: what pairs() has found.
        """
        for start, end in pairs.items():
            if len(self._times) >= MOST_PAIRS:
                break
            if start not in self._times:
                session = self._pairs.enter_context(self.session())
                try:
                    self._times[start] = session.latency(self.text(start), end)
                except TracingError as err:
                    self.notes.append(f"{start}: {err}")

    @property
    def measures(self) -> bool:
        """Whether times are measured."""
        return bool(self._times)

    def measure_no_more(self) -> None:
        """Detach what measures times."""
        self._times.clear()
        self._pairs.close()

    # ------------------------------------------------------------ one probe

    def text(self, probe: str, items: str = "") -> str:
        """Return the text of a probe, as a command takes it."""
        return probe_text(self._requests, probe, items)
