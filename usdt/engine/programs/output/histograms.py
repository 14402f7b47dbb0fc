"""The buckets of histograms of programs, and their picture in text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.programs.types import Aggregate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from usdt.engine.programs.types import AggregateType

__all__ = ("Bucket", "buckets", "drawn")

_BAR = 52
_LABEL = 16  # columns of a label
_COUNT = 8  # columns of a number of hits
_UNITS = "KMGTPE"


@frozen
class Bucket:
    """A bucket: hits of ``low`` ≤ value < ``high``; None where it has no bound."""

    low: int | None
    high: int | None
    hits: int


def buckets(type_: AggregateType, hits: Mapping[int, int]) -> Iterator[Bucket]:
    """Yield the buckets from the first to the last that was hit; none after zero()."""
    bounds = _log if type_.function is Aggregate.HIST else _linear
    hit = [number for number, count in hits.items() if count]
    for number in range(min(hit), max(hit) + 1) if hit else ():
        yield Bucket(*bounds(type_, number), hits.get(number, 0))


def _log(type_: AggregateType, number: int) -> tuple[int | None, int | None]:
    (bits,) = type_.parameters
    if number < 0:
        return None, 0
    shift = max(0, (number >> bits) - 1)
    low = number - (shift << bits) << shift
    return low, low + (1 << shift)


def _linear(type_: AggregateType, number: int) -> tuple[int | None, int | None]:
    low, high, step = type_.parameters
    if number < 0:
        return None, low
    start = low + number * step
    return (start, start + step) if start < high else (high, None)


def drawn(type_: AggregateType, hits: Mapping[int, int]) -> Iterator[str]:
    """Yield the lines of a histogram's picture."""
    every = list(buckets(type_, hits))
    most = max((one.hits for one in every), default=0)
    for one in every:
        bar = "@" * (one.hits * _BAR // most)
        yield f"{_label(one):<{_LABEL}}{one.hits:>{_COUNT}} |{bar:<{_BAR}}|"


def _label(bucket: Bucket) -> str:
    if bucket.low is None:
        return f"(..., {_short(bucket.high or 0)})"
    if bucket.high is None:
        return f"[{_short(bucket.low)}, ...)"
    if bucket.high == bucket.low + 1:
        return f"[{_short(bucket.low)}]"
    return f"[{_short(bucket.low)}, {_short(bucket.high)})"


def _short(number: int) -> str:
    # K, M … for multiples of powers of 1024.
    unit = ""
    for name in _UNITS:
        if not number or number % 1024:
            break
        number //= 1024
        unit = name
    return f"{number}{unit}"
