"""Metrics as messages of Prometheus, read by the library of Protocol Buffers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_messages import families_of

from usdt.export.buckets import histogram_buckets
from usdt.export.formats.exposition import preferred_format
from usdt.export.formats.families import Family, HistogramPoint, Native, Sample
from usdt.export.formats.protobuf import PROTOBUF, render_protobuf
from usdt.export.formats.text import OPEN_METRICS, PLAIN

FULL = PROTOBUF.replace(" ", "")


def test_counters_and_gauges() -> None:
    families = [
        Family("hits", "h", "counter", "", (Sample((("by", "ü"),), 3), Sample((("by", "b"),), 1))),
        Family("up", "u", "gauge", "", (Sample((), 1),)),
    ]
    hits, up = families_of(render_protobuf(families))
    assert (hits.name, hits.help, hits.type) == ("hits_total", "h", 0)
    assert [(one.label[0].value, one.counter.value) for one in hits.metric] == [("ü", 3), ("b", 1)]
    assert (up.name, up.type, up.metric[0].gauge.value) == ("up", 1, 1)


@given(st.dictionaries(st.integers(-100, 100), st.integers(1, 1 << 62), max_size=20))
def test_buckets_of_native_histograms(counts: dict[int, int]) -> None:
    native = Native(2, 4, tuple(sorted(counts.items())))
    point = HistogramPoint(((1, 2), (2.5, 5)), 9, None, native)
    family = Family("size_bytes", "h", "histogram", "bytes", (Sample((), point),))
    (found,) = families_of(render_protobuf([family]))
    assert (found.type, found.unit) == (4, "bytes")
    histogram = found.metric[0].histogram
    assert [(one.upper_bound, one.cumulative_count) for one in histogram.bucket] == [
        *[(1, 2), (2.5, 5)],
        (math.inf, 9),
    ]
    assert math.isnan(histogram.sample_sum)
    assert (histogram.schema, histogram.zero_count) == (2, 4)
    assert read_native(histogram) == counts


def read_native(histogram: Any) -> dict[int, int]:
    """Number and hits of buckets, as the format describes them."""
    found = {}
    deltas = iter(histogram.positive_delta)
    index = count = 0
    for span in histogram.positive_span:
        index += span.offset
        for _ in range(span.length):
            count += next(deltas)
            found[index] = count
            index += 1
    assert next(deltas, None) is None
    return found


@pytest.mark.parametrize("divisor", [1, 1000, 10**6, 10**9])
@pytest.mark.parametrize("text", ["log2", "log2:2", "log2:4", "log2:8"])
@given(value=st.integers(1, (1 << 64) - 1) | st.integers(1, 10**10))
def test_a_value_is_in_the_bucket_of_its_bounds(text: str, divisor: int, value: int) -> None:
    buckets = histogram_buckets(text, divisor)
    assert buckets.schema is not None
    place = buckets.kernel.bucket(value)
    index = buckets.indexes[place - 2]
    low, high = (2.0 ** (n / (1 << buckets.schema)) for n in (index - 1, index))
    assert low * divisor < value <= high * divisor * (1 + 1e-15)


def test_the_first_buckets_have_negative_values_and_zero() -> None:
    for text in ("log2", "log2:8"):
        kernel = histogram_buckets(text, 10**9).kernel
        assert [kernel.bucket(value) for value in (-(1 << 63), -1, 0, 1)] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain;version=0.0.4", PLAIN),
        ("application/openmetrics-text", OPEN_METRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3", OPEN_METRICS),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.9", PLAIN),
        ("application/openmetrics-text;q=x" * 50, PLAIN),
        (FULL, PROTOBUF),
        (f"{FULL},application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1", PROTOBUF),
        (f"{FULL};q=0.3,text/plain;q=0.5", PLAIN),
        (FULL.replace("delimited", "text"), PLAIN),
        ("application/vnd.google.protobuf", PLAIN),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, expected: str) -> None:
    assert preferred_format(accept) == expected
