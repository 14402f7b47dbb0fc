"""Values → families of samples, as Prometheus has them. Times are in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from usdt.engine.aggregate.values import Value
    from usdt.export.config import Metric
    from usdt.export.values import Labels

__all__ = ("Family", "HistogramPoint", "Number", "Sample", "family_of")

Number = int | float


@frozen
class HistogramPoint:
    """A histogram.

    Attributes:
        buckets: inclusive upper bound → values up to it, ascending.
        count: all values.
        sum: their sum; None if it may fall.
    """

    buckets: tuple[tuple[Number, int], ...]
    count: int
    sum: Number | None


@frozen
class Sample:
    """One combination of labels and its value."""

    labels: tuple[tuple[str, str], ...]
    value: Number | HistogramPoint


@frozen
class Family:
    """A metric with its samples; ``name`` has no suffix."""

    name: str
    help: str
    type: Literal["counter", "gauge", "histogram"]
    unit: str
    samples: tuple[Sample, ...]


def family_of(metric: Metric, values: Mapping[Labels, Value]) -> Family:
    """Return a metric with its values."""
    names = (*metric.labels, *(("probe",) if metric.by_probe else ()))
    samples = tuple(
        Sample(tuple(zip(names, labels, strict=True)), _value(metric, value))
        for labels, value in sorted(values.items())
    )
    kind: Literal["counter", "histogram"] = "histogram" if metric.histogram else "counter"
    return Family(metric.name, metric.help, kind, metric.unit, samples)


def _value(metric: Metric, value: Value) -> Number | HistogramPoint:
    if metric.histogram:
        falls = value.min is not None and value.min < 0
        total = None if falls else _scaled(value.sum, metric.divisor)
        return HistogramPoint(tuple(_buckets(metric, value)), value.count, total)
    if metric.aggregation.stats:
        return _scaled(value.sum, metric.divisor)
    return value.count


def _buckets(metric: Metric, value: Value) -> Iterable[tuple[Number, int]]:
    # Values are integers: the bucket [8, 16) holds values up to 15. The bounds are always the same.
    buckets = metric.aggregation.buckets
    if buckets is None:
        return
    low, high = metric.limits
    total = 0
    for index in range(buckets.number):
        total += value.buckets[index] if value.buckets else 0
        end = buckets.edges(index)[1]
        if end is None or end > high:
            continue
        if end > low:
            yield _scaled(end - 1, metric.divisor), total


def _scaled(number: int, divisor: int) -> Number:
    return number if divisor == 1 else number / divisor
