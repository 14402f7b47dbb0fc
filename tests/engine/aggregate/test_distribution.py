"""Distributions: their buckets, and percentiles beside those of the values themselves."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.engine.aggregate.distribution import PERCENTILES, Distribution
from usdt.engine.aggregate.spec import LogLinear
from usdt.engine.aggregate.values import NONE, Value
from usdt.engine.compiler.limits import MAX_RESOLUTION

_RESOLUTIONS = st.integers(0, MAX_RESOLUTION)
_VALUES = st.lists(
    st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-3000, 3000) | st.integers(10**6, 10**7),
    min_size=1,
    max_size=200,
)


def bucket_of(value: int, resolution: int) -> int:
    """The bucket of a value, by its highest bit."""
    if value < 0:
        return -bucket_of(-value, resolution)
    shift = max(0, value.bit_length() - 1 - resolution)
    return (shift << resolution) + (value >> shift)


def spread(values: list[int], resolution: int, unplaced: int = 0) -> Distribution:
    """The distribution of some values."""
    counts: dict[int, int] = {}
    for value in values:
        bucket = bucket_of(value, resolution)
        counts[bucket] = counts.get(bucket, 0) + 1
    return Distribution(LogLinear(resolution), counts, unplaced)


def exact(values: list[int], percent: float) -> int:
    """The smallest value that so many of them do not exceed."""
    rank = math.ceil(Fraction(str(percent)) * len(values) / 100)
    return sorted(values)[max(1, rank) - 1]


# ---------------------------------------------------------------- buckets


@pytest.mark.parametrize("resolution", range(MAX_RESOLUTION + 1))
def test_buckets_leave_no_gap(resolution: int) -> None:
    buckets = LogLinear(resolution)
    last = bucket_of((1 << 64) - 1, resolution)
    assert buckets.edges(last)[1] == 1 << 64
    near = {*range(-300, 300), *range(0, last, max(1, last // 200)), last - 1}
    for bucket in near:
        low, high = buckets.edges(bucket)
        assert high == buckets.edges(bucket + 1)[0]
        assert bucket_of(low, resolution) == bucket_of(high - 1, resolution) == bucket
        for value in (low, high - 1):
            assert abs(buckets.middle(bucket) - value) <= buckets.error * abs(value)


def test_powers_of_two_have_edges_at_every_resolution() -> None:
    for resolution in range(MAX_RESOLUTION + 1):
        buckets = LogLinear(resolution)
        for power in range(64):
            assert buckets.edges(bucket_of(1 << power, resolution))[0] == 1 << power
        assert buckets.error == 2.0 ** -(resolution + 1)
    assert [LogLinear(1).edges(n) for n in (-4, 0, 1, 3, 4, 5, 6)] == [
        *((-5, -3), (0, 1), (1, 2), (3, 4), (4, 6), (6, 8), (8, 12)),
    ]


# ---------------------------------------------------------------- percentiles


@given(values=_VALUES, resolution=_RESOLUTIONS, percent=st.sampled_from([0, 0.1, 50, 99.9, 100]))
def test_percentiles_are_within_their_error(
    values: list[int], resolution: int, percent: float
) -> None:
    found = spread(values, resolution)
    for percentage in (percent, *PERCENTILES.values()):
        wanted = exact(values, percentage)
        for extremes in ((None, None), (min(values), max(values))):
            value = found.percentile(percentage, *extremes)
            assert value is not None
            assert abs(value - wanted) <= found.buckets.error * abs(wanted)
    assert found.percentile(0, min(values)) == min(values)
    assert found.percentile(100, None, max(values)) == max(values)
    small = [value % 64 for value in values]
    assert spread(small, 5).percentile(percent) == exact(small, percent)


@given(values=st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=300))
def test_percentiles_are_numpys(values: list[int]) -> None:
    # The exact percentile has numpy's definition; where numpy is installed, so is its result.
    np = None
    with contextlib.suppress(ImportError):
        import numpy as np
    for percent in (0, 12.5, *PERCENTILES.values(), 100):
        wanted = exact(values, percent)
        if np is not None:
            assert wanted == np.percentile(values, percent, method="inverted_cdf")
        value = spread(values, 5).percentile(percent)
        assert value is not None
        assert abs(value - wanted) <= abs(wanted) / 64


@given(values=_VALUES, missing=_VALUES, resolution=_RESOLUTIONS)
def test_hits_without_a_bucket_make_no_value_up(
    values: list[int], missing: list[int], resolution: int
) -> None:
    found = spread(values, resolution, unplaced=len(missing))
    for percent in PERCENTILES.values():
        value, wanted = found.percentile(percent), exact(values + missing, percent)
        assert value is None or abs(value - wanted) <= found.buckets.error * abs(wanted)


def test_few_missing_hits_leave_percentiles_known() -> None:
    assert spread([40] * 50 + [50] * 50, 5, unplaced=1).percentile(90) == 50
    assert spread([40] * 50 + [50] * 50, 5, unplaced=1).percentile(50) is None
    assert spread([], 5).percentile(50) is None
    assert spread([], 5, unplaced=3).percentile(50) is None


def test_distributions_are_added_and_subtracted() -> None:
    first, both = spread([1, 2, 300], 3), spread([1, 2, 2, -7, 300], 3, unplaced=2)
    assert both.plus(first, -1) == spread([2, -7], 3, unplaced=2)
    assert first.plus(spread([2, -7], 3, unplaced=2)) == both
    assert first.plus(first, -1).counts == {}


def test_values_have_percentiles_and_their_error() -> None:
    value = Value(3, 303, 1, 300, distribution=spread([1, 2, 300], 3))
    assert [value.percentile(percent) for percent in (0, 50, 99)] == [1, 2, 300]
    assert value.error == 1 / 16
    assert NONE.plus(value) == value
    assert value.minus(NONE) == value
    twice = value.plus(value)
    assert twice.percentile(60) == 2
    assert twice.minus(value).distribution == value.distribution
    assert (NONE.percentile(50), NONE.error) == (None, None)
