"""Families as messages of Prometheus, ``io.prometheus.client.MetricFamily``, each after its length.

It is the only format with native histograms. The numbers of fields are those of
https://github.com/prometheus/client_model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from usdt.base.protobuf import (
    delimited,
    double,
    message,
    packed_zigzag,
    text,
    unsigned,
    zigzag,
)
from usdt.export.formats.families import HistogramPoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from usdt.export.formats.families import Family, Native, Sample

__all__ = ("PROTOBUF", "render_protobuf")

PROTOBUF = (
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
_TYPES = {"counter": 0, "gauge": 1, "histogram": 4}
_VALUES = {"gauge": 2, "counter": 3}  # fields of a Metric
_HISTOGRAM = 7
_ZERO_THRESHOLD = 2.0**-128  # a histogram without hits is native because it has one


def render_protobuf(families: Iterable[Family]) -> bytes:
    """Return families as messages."""
    return b"".join(delimited(b"".join(_family(family))) for family in families)


def _family(family: Family) -> Iterator[bytes]:
    yield text(1, family.sample_name)
    yield text(2, family.help)
    yield unsigned(3, _TYPES[family.type])
    for sample in family.samples:
        labels = [message(1, text(1, name), text(2, value)) for name, value in sample.labels]
        yield message(4, *labels, _value(family, sample))
    if family.unit:
        yield text(5, family.unit)


def _value(family: Family, sample: Sample) -> bytes:
    point = sample.value
    if isinstance(point, HistogramPoint):
        return message(_HISTOGRAM, *_histogram(point))
    return message(_VALUES[family.type], double(1, float(point)))


def _histogram(point: HistogramPoint) -> Iterator[bytes]:
    yield unsigned(1, point.count)
    yield double(2, math.nan if point.sum is None else float(point.sum))
    for bound, count in (*point.buckets, (math.inf, point.count)):
        yield message(3, unsigned(1, count), double(2, float(bound)))
    if point.native is not None:
        yield from _native(point.native)


def _native(native: Native) -> Iterator[bytes]:
    yield zigzag(5, native.schema)
    yield double(6, _ZERO_THRESHOLD)
    yield unsigned(7, native.zeros)
    # Spans of adjacent buckets: the distance to the span before, and the length.
    after = 0
    for start, length in _spans([index for index, _ in native.counts]):
        yield message(12, zigzag(1, start - after), unsigned(2, length))
        after = start + length
    counts = [count for _, count in native.counts]
    yield packed_zigzag(
        13, (count - before for before, count in zip([0, *counts], counts, strict=False))
    )


def _spans(indexes: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for place, index in enumerate(indexes):
        if place + 1 == len(indexes) or indexes[place + 1] != index + 1:
            yield indexes[start], place + 1 - start
            start = place + 1
