"""Layout of a map's value, as programs write it.

    stats          u64 count, u64 sum of the low halves, s64 or u64 sum of the high halves,
                   u64 maximum, u64 complement of the minimum
    distribution   u64 number, u64 hits without a bucket
    buckets        u64 each
    count          u64, if there is nothing else

Parts that are not needed are left out. The buckets of a distribution are entries of another map,
because few of them are hit: number and group of buckets → u64 hits of each bucket of the group. The
number is that of this value, or of its part that belongs to one CPU; 0 before the first hit.

The sum has two halves because a sum of 64-bit values does not fit 64 bits. The sum of each half
fits for 2^32 hits. For signed values, the sign bit of maximum and minimum is inverted, so that both
are found by unsigned comparison and start at 0.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.aggregate.distribution import Distribution

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from usdt.engine.aggregate.spec import Aggregation

__all__ = (
    "COUNT",
    "GROUP",
    "HIGH",
    "LOW",
    "MAX",
    "MIN",
    "NONE",
    "NUMBER",
    "SPREAD_KEY",
    "UNPLACED",
    "Value",
    "buckets_at",
    "distribution_at",
    "numbers_of",
    "spread_of",
    "total",
    "unpack",
    "value_size",
)

COUNT, LOW, HIGH, MAX, MIN = 0, 8, 16, 24, 32  # offsets
SPREAD_KEY = struct.Struct("=iI")  # group of buckets, number of the value
GROUP = 16  # buckets of a group
NUMBER, UNPLACED = 0, 8  # offsets in the part of the distribution
_STATS = 5  # u64 words
_DISTRIBUTION = 2  # u64 words
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
        distribution: where the values lie, for percentiles; None without percentiles.
    """

    count: int
    sum: int = 0
    min: int | None = None
    max: int | None = None
    buckets: tuple[int, ...] = ()
    distribution: Distribution | None = None

    @property
    def average(self) -> float:
        """The sum divided by the count; 0.0 without hits."""
        return self.sum / self.count if self.count else 0.0

    @property
    def error(self) -> float | None:
        """The largest relative error of :meth:`percentile`; None without percentiles."""
        return None if self.distribution is None else self.distribution.buckets.error

    def percentile(self, percent: float) -> int | None:
        """Return the smallest value that at least ``percent`` of the hits do not exceed.

        Its relative error is :attr:`error` at most. None without hits, if percentiles were not
        requested, or if hits that had no space leave it open.
        """
        if self.distribution is None:
            return None
        return self.distribution.percentile(percent, self.min, self.max)

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
            _joined(self.distribution, other.distribution, 1),
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
        spread = _joined(self.distribution, earlier.distribution, -1)
        return Value(count, added, low, high, buckets, spread)


NONE = Value(0)


def _added(one: tuple[int, ...], other: tuple[int, ...], sign: int) -> tuple[int, ...]:
    if not one or not other:
        return one or tuple(sign * number for number in other)
    return tuple(a + sign * b for a, b in zip(one, other, strict=True))


def _joined(one: Distribution | None, other: Distribution | None, sign: int) -> Distribution | None:
    if one is None or other is None:
        return one if sign < 0 else one or other
    return one.plus(other, sign)


def total(values: list[Value]) -> Value:
    """Return the aggregate of all values."""
    result = NONE
    for value in values:
        result = result.plus(value)
    return result


def distribution_at(aggregation: Aggregation) -> int:
    """Return the offset of a distribution's number in a value, in bytes."""
    return 8 * _STATS if aggregation.stats else 0


def buckets_at(aggregation: Aggregation) -> int:
    """Return the offset of the buckets in a value, in bytes."""
    spread = _DISTRIBUTION if aggregation.resolution is not None else 0
    return distribution_at(aggregation) + 8 * spread


def value_size(aggregation: Aggregation) -> int:
    """Return the size of a value in bytes."""
    buckets = 0 if aggregation.buckets is None else aggregation.buckets.number
    return buckets_at(aggregation) + 8 * buckets or 8


def numbers_of(aggregation: Aggregation, data: bytes) -> list[int]:
    """Return the numbers of the distributions of a value, one for each CPU that has one."""
    offsets = range(distribution_at(aggregation), len(data), value_size(aggregation))
    return [struct.unpack_from("=Q", data, offset + NUMBER)[0] for offset in offsets]


def spread_of(entries: Iterable[tuple[bytes, bytes]]) -> dict[int, dict[int, int]]:
    """Decode the buckets of all distributions: number → bucket → hits."""
    found: dict[int, dict[int, int]] = {}
    for key, data in entries:
        group, number = SPREAD_KEY.unpack(key)
        counts = found.setdefault(number, {})
        for bucket, hits in enumerate(struct.unpack(f"={GROUP}Q", data), group * GROUP):
            if hits:
                counts[bucket] = hits
    return found


def unpack(
    aggregation: Aggregation,
    data: bytes,
    *,
    signed: bool,
    spread: Mapping[int, dict[int, int]] | None = None,
) -> Value:
    """Decode a value; a per-CPU map has one for each CPU, which are added.

    Args:
        aggregation: what was aggregated.
        data: the value.
        signed: whether the numbers are signed.
        spread: the buckets of all distributions, by number; None: they were not read.
    """
    if aggregation.counts_alone:
        return Value(sum(struct.unpack(f"={len(data) // 8}Q", data)))  # the hits of each CPU
    size = value_size(aggregation)
    parts = [
        _unpack(aggregation, data[start : start + size], signed=signed, spread=spread)
        for start in range(0, len(data), size)
    ]
    return parts[0] if len(parts) == 1 else total(parts)


def _unpack(
    aggregation: Aggregation,
    data: bytes,
    *,
    signed: bool,
    spread: Mapping[int, dict[int, int]] | None,
) -> Value:
    words = struct.unpack(f"={len(data) // 8}Q", data)
    buckets = words[buckets_at(aggregation) // 8 :]
    found = None
    if aggregation.distribution is not None and spread is not None:
        at = distribution_at(aggregation) // 8
        number, unplaced = words[at : at + _DISTRIBUTION]
        found = Distribution(aggregation.distribution, spread.get(number, {}), unplaced)
    if not aggregation.stats:
        return Value(
            sum(buckets), buckets=buckets if aggregation.buckets else (), distribution=found
        )
    count, low, high, greatest, least = words[:_STATS]
    if not count:
        return Value(0, buckets=buckets, distribution=found)
    if signed and high & _SIGN:
        high -= 1 << 64
    turned = _SIGN if signed else 0
    return Value(
        count,
        (high << 32) + low,
        (least ^ _ALL) - turned,
        greatest - turned,
        buckets,
        found,
    )
