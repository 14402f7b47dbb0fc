"""The numbers of results, which are added up without loss."""

from __future__ import annotations

import math
from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.aggregate.distribution import Distribution
from usdt.engine.aggregate.spec import (
    MAX_BUCKETS,
    Aggregation,
    Buckets,
    Items,
    Linear,
    Log2,
    LogLinear,
)
from usdt.engine.aggregate.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    # Bucket → hits, as it is kept: in pairs of 32 or 64 bits, a fifth of a dictionary, if they fit.
    _Packed = array[int] | dict[int, int]

__all__ = ("BadResultError", "Shape", "Sums", "integer", "raw_shape", "shape_of", "text")

_UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000}
_LARGEST = 1 << 200  # a sum of 2^64 values of 64 bits is far smaller
_FINEST = 16  # resolution
_LONGEST_INTERVAL = 86400  # seconds
_CODES = (("i", 1 << 31), ("q", 1 << 63))  # of arrays, and half their range
_NOTHING: dict[int, int] = {}  # buckets before the first hit; it is never changed


class BadResultError(ValueError):
    """An object that is not a result."""


@frozen
class Shape:
    """What results have in common that can be added up, and shown in one table.

    Attributes:
        aggregation: what was aggregated, without the expressions of the keys.
        start, unit: START of a time between two probes, and the unit of its buckets; else "".
        value: the expression; "" if there is none, or if there are several.
        interval: seconds of an interval; None without intervals.
        keys: the items of the keys.
    """

    aggregation: Aggregation
    start: str
    unit: str
    value: str
    interval: float | None
    keys: tuple[str, ...]
    fine: bool

    @property
    def heatmap(self) -> bool:
        """Whether the results are rows of a heatmap."""
        return self.aggregation.buckets is not None and not self.aggregation.stats

    @property
    def what(self) -> str:
        """The description of the numbers."""
        return f"{self.unit} from {self.start}" if self.start else self.value


def raw_shape(found: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the members that decide the shape of a result; raises TypeError unless hashable."""
    linear = found.get("linear")
    edges = None if linear is None else (linear["low"], linear["high"], linear["step"])
    get = found.get
    raw = (
        *("sum" in found, "buckets" in found, edges, get("resolution"), get("error")),
        *(get("start"), get("unit"), get("value"), get("interval"), keys),
    )
    hash(raw)
    return raw


def shape_of(raw: tuple[Any, ...]) -> Shape:
    """Return the shape of a result.

    Raises:
        BadResultError: members have other types, or are out of range.
    """
    stats, buckets, edges, fine, error, start, unit, value, interval, keys = raw
    for text in (start, unit, value):
        if text is not None and not isinstance(text, str):
            raise BadResultError("start, unit, value: texts expected")
    if unit is not None and unit not in _UNITS:
        raise BadResultError(f"unit: expected one of {', '.join(_UNITS)}")
    length = _interval(interval)
    resolution = None if error is None else _resolution(error)
    if fine is not None and fine != resolution:
        raise BadResultError("resolution: it is not that of the error")
    aggregation = Aggregation(
        stats=stats,
        buckets=_buckets(edges) if buckets else None,
        pair=None if start is None else Items(),
        unit=_UNITS[unit or "ns"],
        resolution=resolution,
        intervals=length is not None,
    )
    return Shape(
        aggregation, start or "", unit or "", value or "", length, keys, fine=fine is not None
    )


def _interval(interval: Any) -> float | None:
    if interval is None:
        return None
    known = isinstance(interval, int | float) and not isinstance(interval, bool)
    if not known or not 0.001 <= interval <= _LONGEST_INTERVAL:
        raise BadResultError("interval: seconds expected")
    return float(interval)


def _resolution(error: Any) -> int:
    mantissa, exponent = math.frexp(error if isinstance(error, float) else 0.0)
    if mantissa != 0.5 or not 0 <= -exponent <= _FINEST:
        raise BadResultError("error: not that of any resolution")
    return -exponent


def _buckets(edges: tuple[Any, ...] | None) -> Log2 | Linear:
    if edges is None:
        return Log2()
    low, high, step = map(integer, edges)
    if not low < high or step < 1 or Linear(low, high, step).inner > MAX_BUCKETS:
        raise BadResultError("linear: low < high expected, and at most 1000 buckets")
    return Linear(low, high, step)


def integer(value: Any) -> int:
    """Return an integer of a result.

    Raises:
        BadResultError: it is none, or far too large.
    """
    if type(value) is not int or not -_LARGEST < value < _LARGEST:
        raise BadResultError("an integer expected")
    return value


def text(value: Any) -> str:
    """Return a text of a result.

    Raises:
        BadResultError: it is none.
    """
    if not isinstance(value, str):
        raise BadResultError("a text expected")
    return value


def _count(value: Any) -> int:
    found = integer(value)
    if found < 0:
        raise BadResultError("a number of hits is negative")
    return found


class Sums:
    """The numbers of one key, which grow.

    Attributes:
        count, sum: as in the value.
        min, max: None if they are not known, or without hits.
        unplaced: hits without a bucket of the distribution.
    """

    __slots__ = ("_buckets", "_spread", "count", "max", "min", "sum", "unplaced")

    def __init__(self) -> None:
        self.count = self.sum = self.unplaced = 0
        self.min: int | None = None
        self.max: int | None = None
        self._buckets: _Packed = _NOTHING
        self._spread: _Packed = _NOTHING

    def add(self, found: dict[str, Any], shape: Shape) -> None:
        """Add the numbers of a result; nothing is added if one is invalid.

        Raises:
            BadResultError: the numbers are invalid.
        """
        count = _count(found["count"])
        aggregation = shape.aggregation
        total, least, greatest = _statistics(found, count) if aggregation.stats else (0, None, None)
        buckets = None
        if aggregation.buckets is not None and not shape.fine:
            buckets = _coarse(found["buckets"], aggregation.buckets)
        spread, unplaced = _spread(found, count, aggregation)
        if count and aggregation.stats:
            self.min = _extreme(min, self.min, least, first=not self.count)
            self.max = _extreme(max, self.max, greatest, first=not self.count)
        self.count += count
        self.sum += total
        self.unplaced += unplaced
        if buckets:
            self._buckets = _packed(_grown(_unpacked(self._buckets), buckets))
        if spread:
            self._spread = _packed(_grown(_unpacked(self._spread), spread))

    def value(self, shape: Shape) -> Value:
        """Return the sums as a value."""
        aggregation = shape.aggregation
        buckets: tuple[int, ...] = ()
        if aggregation.buckets is not None:
            hits = _unpacked(self._buckets)
            buckets = tuple(hits.get(index, 0) for index in range(aggregation.buckets.number))
        spread = None
        if aggregation.distribution is not None:
            spread = Distribution(aggregation.distribution, _unpacked(self._spread), self.unplaced)
        return Value(self.count, self.sum, self.min, self.max, buckets, spread)


def _extreme(
    of: Callable[[int, int], int], known: int | None, more: int | None, *, first: bool
) -> int | None:
    # What is not known of a part is not known of the whole.
    if first:
        return more
    return None if known is None or more is None else of(known, more)


def _packed(counts: dict[int, int]) -> _Packed:
    least, largest = min(map(min, counts.items())), max(map(max, counts.items()))
    for code, half in _CODES:
        if -half <= least and largest < half:
            return array(code, chain.from_iterable(counts.items()))
    return counts


def _unpacked(packed: _Packed) -> dict[int, int]:
    # The dictionary must not be changed.
    return packed if isinstance(packed, dict) else dict(zip(packed[::2], packed[1::2], strict=True))


def _grown(known: dict[int, int], more: dict[int, int]) -> dict[int, int]:
    if not known:
        return more
    for bucket, hits in more.items():
        known[bucket] = known.get(bucket, 0) + hits
    return known


def _statistics(found: dict[str, Any], count: int) -> tuple[int, int | None, int | None]:
    least, greatest = (
        None if value is None else integer(value) for value in (found["min"], found["max"])
    )
    total = integer(found["sum"])
    if count and least is not None and greatest is not None and least > greatest:
        raise BadResultError("the minimum is above the maximum")
    return total, least, greatest


def _coarse(found: Any, buckets: Buckets) -> dict[int, int]:
    counts: dict[int, int] = {}
    for one in found:
        low, high = one["low"], one["high"]
        bucket = 0 if low is None else buckets.bucket(integer(low))
        if buckets.edges(bucket) != (low, high):
            raise BadResultError(f"a bucket from {low!r:.30} to {high!r:.30} has another width")
        if one["count"]:
            counts[bucket] = counts.get(bucket, 0) + _count(one["count"])
    return counts


def _spread(
    found: dict[str, Any], count: int, aggregation: Aggregation
) -> tuple[dict[int, int] | None, int]:
    buckets = aggregation.distribution
    if buckets is None:
        return None, 0
    if "distribution" not in found:  # of an older version: percentiles remain open
        return None, count
    return _placed(found["distribution"], buckets), _count(found.get("unplaced", 0))


def _placed(found: Any, buckets: LogLinear) -> dict[int, int]:
    counts: dict[int, int] = {}
    for low, hits in found:
        bucket = buckets.bucket(integer(low))
        if buckets.edges(bucket)[0] != low:
            raise BadResultError("distribution: a bucket begins elsewhere")
        counts[bucket] = counts.get(bucket, 0) + _count(hits)
    return counts
