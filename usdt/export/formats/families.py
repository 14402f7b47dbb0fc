"""Values → families of samples, as Prometheus has them. Times are in seconds."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from usdt.engine.aggregate.values import Value
    from usdt.export.buckets import HistogramBuckets, Number
    from usdt.export.config import Metric
    from usdt.export.values import Labels

__all__ = ("Family", "HistogramPoint", "Native", "Sample", "family_of")


@frozen
class Native:
    """The buckets of a native histogram, of exponential widths.

    Attributes:
        schema: 2^schema of them in each power of two; number n ends with 2^(n / 2^schema).
        zeros: hits of the value 0.
        counts: number and hits of each bucket that has any, ascending.
    """

    schema: int
    zeros: int
    counts: tuple[tuple[int, int], ...]


@frozen
class HistogramPoint:
    """A histogram.

    Attributes:
        buckets: inclusive upper bound → values up to it, ascending.
        count: all values.
        sum: their sum; None if it may fall.
        native: the same as a native histogram; None if its buckets are others.
    """

    buckets: tuple[tuple[Number, int], ...]
    count: int
    sum: Number | None
    native: Native | None = None


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

    @property
    def sample_name(self) -> str:
        """The name of a sample; that of a counter ends in ``_total``."""
        return self.name + "_total" if self.type == "counter" else self.name


def family_of(metric: Metric, values: Mapping[Labels, Value]) -> Family:
    """Return a metric with its values."""
    names = (*metric.labels, *(("probe",) if metric.by_probe else ()))
    samples = tuple(
        Sample(tuple(zip(names, labels, strict=True)), _value(metric, value))
        for labels, value in sorted(values.items())
    )
    kind: Literal["counter", "histogram"] = "histogram" if metric.buckets else "counter"
    return Family(metric.name, metric.help, kind, metric.unit, samples)


def _value(metric: Metric, value: Value) -> Number | HistogramPoint:
    if metric.buckets is not None:
        falls = value.min is not None and value.min < 0
        total = None if falls else _scaled(value.sum, metric.divisor)
        native = _native(metric.buckets, value)
        counts = tuple(_buckets(metric, metric.buckets, value))
        return HistogramPoint(counts, value.count, total, native)
    if metric.aggregation.stats:
        return _scaled(value.sum, metric.divisor)
    return value.count


def _buckets(
    metric: Metric, buckets: HistogramBuckets, value: Value
) -> Iterable[tuple[Number, int]]:
    # The bounds are always the same.
    counts = value.buckets or (0,) * buckets.kernel.number
    low, high = metric.limits
    for index, total in enumerate(accumulate(counts[:-1])):
        if low < (buckets.kernel.edges(index)[1] or 0) <= high + 1:
            yield buckets.bounds[index], total


def _native(buckets: HistogramBuckets, value: Value) -> Native | None:
    counts = value.buckets or (0,) * buckets.kernel.number
    if buckets.schema is None or counts[0]:  # negative values share one bucket
        return None
    found = zip(buckets.indexes, counts[2:], strict=False)
    return Native(buckets.schema, counts[1], tuple((i, count) for i, count in found if count))


def _scaled(number: int, divisor: int) -> Number:
    return number if divisor == 1 else number / divisor
