"""Readings of counters → the rows of the table: rates, their history, totals, times."""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usdt.engine.aggregate.values import Value

__all__ = ("HISTORY", "Reading", "Row", "Sort", "Table")

#: The intervals of which a row keeps the rate.
HISTORY = 60


class Sort(enum.Enum):
    """What is shown first."""

    RATE = "rate"
    TOTAL = "total"
    P99 = "p99"
    NAME = "name"


@frozen
class Reading:
    """What the counters said at one moment.

    Attributes:
        time: seconds, from time.monotonic().
        counts: probe → hits since it was attached.
        times: start → the times to its end.
        lost: hits that are in no count.
    """

    time: float
    counts: Mapping[str, int]
    times: Mapping[str, Value]
    lost: int = 0


@frozen
class Row:
    """One probe.

    Attributes:
        probe: its name.
        rate: hits per second in the last interval.
        history: the rates of the last intervals, the latest last.
        total: hits.
        times: from this probe to the end that belongs to it; None: not measured.
    """

    probe: str
    rate: float
    history: Sequence[float]
    total: int
    times: Value | None


class Table:
    """The rows of all probes; readings are added, and the rows follow.

    Attributes:
        sort: the order of rows().
        filter: the text that the names of the rows contain, in any case.
        lost: hits that are in no count.
        seconds: the length of the last interval.
    """

    def __init__(self) -> None:
        self.sort = Sort.RATE
        self.filter = ""
        self.lost = 0
        self.seconds = 0.0
        self._last: Reading | None = None
        self._rates: dict[str, deque[float]] = {}

    def add(self, reading: Reading) -> None:
        """Add a reading; the first one only begins the first interval."""
        before, self._last, self.lost = self._last, reading, reading.lost
        if before is None:
            return
        self.seconds = max(reading.time - before.time, 1e-9)
        for probe, count in reading.counts.items():
            rate = max(0, count - before.counts.get(probe, 0)) / self.seconds
            self._rates.setdefault(probe, deque(maxlen=HISTORY)).append(rate)

    def rates(self) -> dict[str, float]:
        """Return the hits per second of each probe in the last interval."""
        return {probe: rates[-1] for probe, rates in self._rates.items()}

    def rows(self) -> list[Row]:
        """Return the rows that the filter leaves, in order."""
        if self._last is None:
            return []
        wanted = self.filter.lower()
        rows = [
            Row(probe, rates[-1], tuple(rates), count, self._last.times.get(probe))
            for probe, count in self._last.counts.items()
            if wanted in probe.lower()
            for rates in (self._rates.get(probe) or (0.0,),)
        ]
        return sorted(rows, key=self._order)

    def _order(self, row: Row) -> tuple[float, float, str]:
        if self.sort is Sort.NAME:
            return 0.0, 0.0, row.probe
        if self.sort is Sort.TOTAL:
            return -row.total, 0.0, row.probe
        if self.sort is Sort.P99:
            p99 = row.times.percentile(99) if row.times is not None else None
            return float(p99 is None), -(p99 or 0), row.probe
        return -row.rate, -row.total, row.probe
