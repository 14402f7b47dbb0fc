"""Durations of spans, by name: a heatmap over time, and percentiles."""

from __future__ import annotations

from typing import Any

from usdt.engine.aggregate.columns import percentile_columns, summary_columns
from usdt.engine.aggregate.distribution import Distribution
from usdt.engine.aggregate.spec import LogLinear
from usdt.engine.aggregate.values import Value
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.pages.timebins import TimeBins

__all__ = ("OTHERS", "Latencies")

OTHERS = "(others)"
_MOST = 50  # names of spans that are kept apart
_BINS = 200
_CELLS = 60_000
_FINE = LogLinear(6)  # of percentiles
_COARSE = LogLinear(2)  # of the heatmap
_BUCKETS = 1 << 9  # lanes of a name


class _Name:
    __slots__ = ("counts", "least", "most", "number", "spans", "sum")

    def __init__(self, number: int) -> None:
        self.number = number
        self.spans = self.sum = self.most = 0
        self.least = 1 << 64
        self.counts: dict[int, int] = {}

    def value(self) -> Value:
        spread = Distribution(_FINE, self.counts)
        return Value(self.spans, self.sum, self.least, self.most, (), spread)


class Latencies:
    """The durations of all spans. Memory grows with neither the spans nor their names.

    Attributes:
        spans: the number of spans.
    """

    def __init__(self) -> None:
        self.spans = 0
        self._names: dict[str, _Name] = {}
        self._heat = TimeBins(_BINS, _CELLS)

    def add(self, name: str, end: int, duration: int) -> None:
        """Add a span: its end and its duration, in nanoseconds."""
        known = self._names.get(name) or self._new(name)
        self.spans += 1
        known.spans += 1
        known.sum += duration
        known.least = min(known.least, duration)
        known.most = max(known.most, duration)
        fine = _FINE.bucket(duration)
        known.counts[fine] = known.counts.get(fine, 0) + 1
        self._heat.add(end, known.number * _BUCKETS + _COARSE.bucket(duration))

    def _new(self, name: str) -> _Name:
        if len(self._names) >= _MOST:
            name = OTHERS
        return self._names.setdefault(name, _Name(len(self._names)))

    def to_json(self) -> dict[str, Any]:
        """Return the data of the page: numbers of each name, and the cells of its heatmap."""
        cells: dict[int, list[tuple[int, int, int]]] = {}
        for at, lane, count in self._heat.rows():
            number, bucket = divmod(lane, _BUCKETS)
            cells.setdefault(number, []).append((at, bucket, count))
        columns = (*summary_columns(time=True), *percentile_columns(time=True))
        named = sorted(self._names.items(), key=lambda item: -item[1].sum)
        return {
            "columns": [column.name for column in columns],
            "start": self._heat.first * self._heat.width / 1e6,
            "width": self._heat.width / 1e6,
            "bins": self._heat.bins,
            "names": [
                {
                    "name": escape(name),
                    "numbers": [column.number(known.value()) for column in columns],
                    "sum": known.sum,
                    **_map(cells.get(known.number, [])),
                }
                for name, known in named
            ],
        }


def _map(cells: list[tuple[int, int, int]]) -> dict[str, Any]:
    # Edges of the buckets from the lowest with hits to the highest, and bin, bucket, count of each
    # cell in one flat list.
    lowest = min(bucket for _, bucket, _ in cells)
    highest = max(bucket for _, bucket, _ in cells)
    edges = [_COARSE.edges(bucket)[0] for bucket in range(lowest, highest + 2)]
    flat = [number for at, bucket, count in cells for number in (at, bucket - lowest, count)]
    return {"edges": edges, "cells": flat}
