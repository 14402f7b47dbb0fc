"""The buckets of a histogram: what the kernel counts, and what their bounds are called.

Bounds are those of the metric's unit; the kernel has them as the highest integer of each bucket. So
every value is in the bucket of its bounds, exactly, and both forms of histograms have the same.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.engine.aggregate.spec import Bounds, Linear, parse_linear

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("HistogramBuckets", "Number", "histogram_buckets")

Number = int | float

_EXAMPLE = 'buckets = "log2", "log2:4", "0:100:10" or [1, 5, 10]'
_SCHEMAS = {"log2": 0, "log2:1": 0, "log2:2": 1, "log2:4": 2, "log2:8": 3}
_MOST = 200  # bounds of a list
_LOWEST, _HIGHEST = -(1 << 63), (1 << 64) - 1


@frozen
class HistogramBuckets:
    """The buckets of a histogram.

    Attributes:
        kernel: the buckets that programs compute.
        bounds: the inclusive upper bound of each bucket but the last, in the metric's unit.
        schema: buckets of a power of two, as its logarithm, if they are those of native histograms.
        indexes: the number of each bucket in a native histogram, from the third on: the first two
            have the negative values and 0.
    """

    kernel: Linear | Bounds
    bounds: tuple[Number, ...]
    schema: int | None = None
    indexes: tuple[int, ...] = ()


def histogram_buckets(value: object, divisor: int) -> HistogramBuckets:
    """Return the buckets that a configuration asks for.

    Args:
        value: ``log2``, ``log2:N``, ``LOW:HIGH:STEP`` or a list of bounds.
        divisor: what the integers of programs are divided by.

    Raises:
        TracingError: it is none of them; the message says what to write.
    """
    if isinstance(value, list):
        return _listed(value, divisor)
    if isinstance(value, str) and value in _SCHEMAS:
        return _exponential(_SCHEMAS[value], divisor)
    if isinstance(value, str) and value.count(":") == 2:
        linear = parse_linear(value)
        ends = [linear.edges(index)[1] or 0 for index in range(linear.number - 1)]
        return HistogramBuckets(linear, tuple(_scaled(end - 1, divisor) for end in ends))
    raise TracingError(f"{value!r:.60}: not buckets; write {_EXAMPLE}")


def _listed(values: Sequence[Any], divisor: int) -> HistogramBuckets:
    if not all(type(one) in (int, float) and math.isfinite(one) for one in values):
        raise TracingError(f"expected numbers; write {_EXAMPLE}")
    if not 1 <= len(values) <= _MOST:
        raise TracingError(f"{len(values)} bounds; expected 1 to {_MOST}")
    # repr: 0.005 is what is written, not the binary number next to it.
    highest = [math.floor(Fraction(repr(one)) * divisor) for one in values]
    for one, after, low, high in zip(values, values[1:], highest, highest[1:], strict=False):
        if one >= after:
            raise TracingError(f"{after} after {one}: expected ascending bounds")
        if low == high:
            raise TracingError(f"no value is above {one} and up to {after}: leave one of them out")
    if highest[0] < _LOWEST or highest[-1] > _HIGHEST:
        raise TracingError("expected bounds of 64 bits")
    return HistogramBuckets(Bounds(tuple(highest)), tuple(values))


def _exponential(schema: int, divisor: int) -> HistogramBuckets:
    found = list(_powers(schema, divisor))
    zero = (_scaled(-1, divisor), 0)
    return HistogramBuckets(
        Bounds((-1, 0, *(highest for _, _, highest in found))),
        (*zero, *(bound for _, bound, _ in found)),
        schema,
        tuple(index for index, _, _ in found),
    )


def _powers(schema: int, divisor: int) -> Iterator[tuple[int, Number, int]]:
    # Number, bound and highest integer of each bucket that holds any, up to the highest of all.
    index = -(divisor.bit_length() << schema)
    before = 0
    while before < _HIGHEST:
        bound = 2.0 ** (index / (1 << schema))
        highest = math.floor(Fraction(bound) * divisor)
        if highest > before:
            yield index, int(bound) if divisor == 1 and bound.is_integer() else bound, highest
            before = highest
        index += 1


def _scaled(number: int, divisor: int) -> Number:
    return number if divisor == 1 else number / divisor
