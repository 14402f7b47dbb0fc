"""Rows of the kernel → values by label. Values only grow; the number of labels is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.engine.aggregate.values import NONE
from usdt.engine.output.truncated import mark_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.engine.aggregate.rows import Row
    from usdt.engine.aggregate.values import Value
    from usdt.export.config import Metric

__all__ = ("OTHER", "Labels", "MetricValues", "labels_of")

OTHER = "other"  # the value of every label of what has no labels of its own
_LONGEST = 256  # characters of a label's value

Labels = tuple[str, ...]


class MetricValues:
    """The values of a metric, over all sessions that have measured it.

    Attributes:
        metric: the metric.
        overflow: hits that were counted under :data:`OTHER`, as of the last reading.
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.overflow = 0
        self._kept: dict[Labels, Value] = {}  # of sessions that have ended
        self._known: set[Labels] = set()  # labels that have values of their own, for good

    def retire(self, rows: Iterable[Row]) -> None:
        """Keep the values of a session that ends."""
        add(self._kept, self.metric, rows)

    def read(self, rows: Iterable[Row]) -> dict[Labels, Value]:
        """Return all values by the labels' values, with the rows of running sessions."""
        every = dict(self._kept)
        add(every, self.metric, rows)
        width = len(self.metric.labels) + self.metric.by_probe
        if not width:
            return every or {(): NONE}
        room = self.metric.max_series - len(self._known)
        fresh = [labels for labels in every if labels not in self._known]
        self._known.update(fresh[: max(0, room)])
        found = {labels: value for labels, value in every.items() if labels in self._known}
        rest = [value for labels, value in every.items() if labels not in self._known]
        self.overflow = sum(value.count for value in rest)
        other = (OTHER,) * width
        for value in rest:
            found[other] = found.get(other, NONE).plus(value)
        return found


def add(values: dict[Labels, Value], metric: Metric, rows: Iterable[Row]) -> None:
    """Add rows to values by label."""
    for row in rows:
        labels = labels_of(row, by_probe=metric.by_probe)
        known = values.get(labels)
        values[labels] = row.value if known is None else known.plus(row.value)


def labels_of(row: Row, *, by_probe: bool) -> Labels:
    """Return the values of a row's labels."""
    parts = tuple(_text(part) for part in row.key)
    return (*parts, row.source.probe) if by_probe else parts


def _text(value: Any) -> str:
    # A traced process decides what the text is.
    raw = value if isinstance(value, str) else str(getattr(value, "name", value))
    text = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text[:_LONGEST] + mark_of(value)
