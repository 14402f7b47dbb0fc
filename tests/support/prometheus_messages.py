"""The messages of Prometheus, by the library of Protocol Buffers; fields as in its client_model."""

from __future__ import annotations

import functools
import io
from typing import Any

import pytest
from protobuf_messages import message_types

__all__ = ("families_of",)

_MESSAGES = {
    "LabelPair": ["string name = 1;", "string value = 2;"],
    "Number": ["double value = 1;"],
    "Bucket": ["uint64 cumulative_count = 1;", "double upper_bound = 2;"],
    "BucketSpan": ["sint32 offset = 1;", "uint32 length = 2;"],
    "Histogram": [
        "uint64 sample_count = 1;",
        "double sample_sum = 2;",
        "repeated message Bucket bucket = 3;",
        "sint32 schema = 5;",
        "double zero_threshold = 6;",
        "uint64 zero_count = 7;",
        "repeated message BucketSpan positive_span = 12;",
        "repeated sint64 positive_delta = 13;",
    ],
    "Metric": [
        "repeated message LabelPair label = 1;",
        "message Number gauge = 2;",
        "message Number counter = 3;",
        "message Histogram histogram = 7;",
    ],
    "MetricFamily": [
        "string name = 1;",
        "string help = 2;",
        "int32 type = 3;",
        "repeated message Metric metric = 4;",
        "string unit = 5;",
    ],
}


def families_of(data: bytes) -> list[Any]:
    """The messages MetricFamily of a body."""
    needs = "needs protobuf (pip install protobuf)"
    proto = pytest.importorskip("google.protobuf.proto", reason=needs)
    stream = io.BytesIO(data)
    return list(iter(lambda: proto.parse_length_prefixed(_family(), stream), None))


@functools.cache
def _family() -> Any:
    return message_types(_MESSAGES)["MetricFamily"]
