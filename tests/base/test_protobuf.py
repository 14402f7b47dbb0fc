"""Messages in the wire format, beside the library of Protocol Buffers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protobuf_messages import message_types

from usdt.base import protobuf

TYPES = {
    "small": "sint32 small = 1;",
    "large": "int64 large = 2;",
    "count": "uint64 count = 3;",
    "part": "double part = 4;",
    "name": "string name = 17;",
    "raw": "bytes raw = 6;",
    "numbers": "repeated int64 numbers = 7;",
    "changes": "repeated sint64 changes = 8;",
    "inner": "message Probe inner = 2000;",
}
PROBE = message_types({"Probe": list(TYPES.values())})["Probe"]
s64 = st.integers(-(1 << 63), (1 << 63) - 1)
u64 = st.integers(0, (1 << 64) - 1)
strings = st.text(st.characters(codec="utf-8"))


@given(s64, u64, st.floats(allow_nan=False), strings, st.lists(s64))
def test_the_library_reads_what_is_written(
    large: int, count: int, part: float, name: str, numbers: list[int]
) -> None:
    fields = (
        protobuf.zigzag(1, large >> 32),
        protobuf.signed(2, large),
        protobuf.unsigned(3, count),
        protobuf.double(4, part),
        protobuf.text(17, name),
        protobuf.length_delimited(6, name.encode()),
        protobuf.packed(7, numbers),
        protobuf.packed_zigzag(8, numbers),
    )
    found = PROBE.FromString(b"".join((*fields, protobuf.message(2000, *fields))))
    for one in (found, found.inner):
        assert (one.small, one.large, one.count, one.part) == (large >> 32, large, count, part)
        assert (one.name, one.raw) == (name, name.encode())
        assert list(one.numbers) == list(one.changes) == numbers


def test_text_that_is_not_unicode() -> None:
    assert PROBE.FromString(protobuf.text(17, "a\udc80b")).name == "a?b"


def test_a_negative_number_is_not_unsigned() -> None:
    with pytest.raises(OverflowError):
        protobuf.unsigned(1, -1)
