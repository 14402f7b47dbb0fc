"""Layout of a map's value, as programs write it.

    stats      u64 count, u64 sum of the low halves, s64 or u64 sum of the high halves,
               u64 maximum, u64 complement of the minimum
    buckets    u64 each, after the statistics if there are any
    count      u64, if there is neither

The sum has two halves because a sum of 64-bit values does not fit 64 bits. The sum of each half
fits for 2^32 hits. For signed values, the sign bit of maximum and minimum is inverted, so that both
are found by unsigned comparison and start at 0.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.aggregate.spec import Aggregation, Linear, Log2

__all__ = (
    "COUNT",
    "HIGH",
    "LOW",
    "MAX",
    "MIN",
    "NONE",
    "Value",
    "buckets_at",
    "median",
    "total",
    "unpack",
    "value_size",
)

COUNT, LOW, HIGH, MAX, MIN = 0, 8, 16, 24, 32  # offsets
_STATS = 5  # u64 words
_SIGN = 1 << 63
_ALL = (1 << 64) - 1


@frozen
class Value:
    """The aggregated values of one key.

    Attributes:
        count: number of hits.
        sum: exact sum of their values; 0 without statistics.
        min, max: None without statistics or without hits.
        buckets: hits of each bucket; empty without a histogram.
    """

    count: int
    sum: int = 0
    min: int | None = None
    max: int | None = None
    buckets: tuple[int, ...] = ()

    @property
    def average(self) -> float:
        """The sum divided by the count; 0.0 without hits."""
        return self.sum / self.count if self.count else 0.0

    def plus(self, other: Value) -> Value:
        """Return the aggregate of this value and another."""
        mins = [v for v in (self.min, other.min) if v is not None]
        maxs = [v for v in (self.max, other.max) if v is not None]
        return Value(
            self.count + other.count,
            self.sum + other.sum,
            min(mins, default=None),
            max(maxs, default=None),
            _added(self.buckets, other.buckets, 1),
        )

    def minus(self, earlier: Value) -> Value:
        """Return the values added since ``earlier``; min and max are None if they are unknown."""
        count, added = self.count - earlier.count, self.sum - earlier.sum
        low, high = self.min, self.max
        if earlier.count:
            low = None if low == earlier.min else low
            high = None if high == earlier.max else high
            if count == 1 and self.min is not None:
                low = high = added
        buckets = _added(self.buckets, earlier.buckets, -1)
        return Value(count, added, low, high, buckets)


NONE = Value(0)


def _added(one: tuple[int, ...], other: tuple[int, ...], sign: int) -> tuple[int, ...]:
    if not one or not other:
        return one or tuple(sign * number for number in other)
    return tuple(a + sign * b for a, b in zip(one, other, strict=True))


def total(values: list[Value]) -> Value:
    """Return the aggregate of all values."""
    result = NONE
    for value in values:
        result = result.plus(value)
    return result


def median(value: Value, buckets: Log2 | Linear | None, unit: int = 1) -> float | None:
    """Return the value that half of the hits do not exceed, interpolated within its bucket.

    Args:
        value: counts of the buckets, and minimum and maximum if they are known.
        buckets: the edges of the buckets.
        unit: the size of one unit of the edges, in units of the result.

    Returns:
        None without hits, or if the bucket is unbounded and the extreme beyond it is unknown.
    """
    if buckets is None:
        return None
    below, half = 0, value.count / 2
    for index, count in enumerate(value.buckets):
        if count and below + count >= half:
            low, high = buckets.edges(index)
            least = _bound(None if low is None else low * unit, value.min, max)
            greatest = _bound(None if high is None else high * unit - 1, value.max, min)
            if least is None or greatest is None:
                return None
            return least + (greatest - least) * (half - below) / count
        below += count
    return None


def _bound(edge: int | None, extreme: int | None, tighter: Callable[..., int]) -> int | None:
    # Returns the tighter of an edge and an extreme, if any is known.
    known = [number for number in (edge, extreme) if number is not None]
    return tighter(known) if known else None


def buckets_at(aggregation: Aggregation) -> int:
    """Return the offset of the buckets in a value, in bytes."""
    return 8 * _STATS if aggregation.stats else 0


def value_size(aggregation: Aggregation) -> int:
    """Return the size of a value in bytes."""
    if aggregation.buckets is None:
        return 8 * _STATS if aggregation.stats else 8
    return buckets_at(aggregation) + 8 * aggregation.buckets.number


def unpack(aggregation: Aggregation, data: bytes, *, signed: bool) -> Value:
    """Decode a value; a per-CPU map has one for each CPU, which are added."""
    size = value_size(aggregation)
    parts = [
        _unpack(aggregation, data[start : start + size], signed=signed)
        for start in range(0, len(data), size)
    ]
    return parts[0] if len(parts) == 1 else total(parts)


def _unpack(aggregation: Aggregation, data: bytes, *, signed: bool) -> Value:
    words = struct.unpack(f"={len(data) // 8}Q", data)
    if not aggregation.stats:
        return Value(sum(words), buckets=words if aggregation.buckets else ())
    count, low, high, greatest, least = words[:_STATS]
    if not count:
        return Value(0, buckets=words[_STATS:])
    if signed and high & _SIGN:
        high -= 1 << 64
    turned = _SIGN if signed else 0
    return Value(
        count,
        (high << 32) + low,
        (least ^ _ALL) - turned,
        greatest - turned,
        words[_STATS:],
    )
