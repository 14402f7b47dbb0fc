"""Pages of the kernel's tracer, made by hand: every kind of event in them, and damage."""

from __future__ import annotations

import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.base.errors import TracingError
from usdt.tracefs.pages import PageLayout, read_page

LAYOUT = PageLayout(8, 8, 16, 4096)
HEADER = """\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
"""


def head(kind: int, delta: int) -> bytes:
    """The word an event begins with."""
    word = kind | delta << 5 if sys.byteorder == "little" else kind << 27 | delta
    return struct.pack("=I", word)


def page(*parts: bytes, time: int = 1000, flags: int = 0, tail: bytes = b"") -> bytes:
    """A page of these events."""
    data = b"".join(parts)
    return struct.pack("=QQ", time, len(data) | flags) + data + tail


SMALL = head(2, 5) + b"8 bytes."
LARGE = head(0, 7) + struct.pack("=I", 4 + 13) + b"thirteen byte" + bytes(3)


@pytest.mark.parametrize(
    ("parts", "events"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([SMALL, SMALL], [(1005, b"8 bytes."), (1010, b"8 bytes.")], id="short ones"),
        pytest.param([LARGE, SMALL], [(1007, b"thirteen byte"), (1012, b"8 bytes.")], id="longer"),
        pytest.param(
            [head(29, 3) + struct.pack("=I", 8) + bytes(4), SMALL],
            [(1008, b"8 bytes.")],
            id="something that was discarded",
        ),
        pytest.param([SMALL, head(29, 0), bytes(40)], [(1005, b"8 bytes.")], id="an early end"),
        pytest.param(
            [head(30, 1) + struct.pack("=I", 2), SMALL],
            [(1000 + (2 << 27) + 1 + 5, b"8 bytes.")],
            id="a long pause",
        ),
        pytest.param(
            [head(31, 9) + struct.pack("=I", 3), SMALL],
            [((3 << 27) + 9 + 5, b"8 bytes.")],
            id="an absolute time",
        ),
    ],
)
def test_events(parts: list[bytes], events: list[tuple[int, bytes]]) -> None:
    found = read_page(page(*parts), LAYOUT)
    assert [(time, bytes(record)) for time, record in found.events] == events
    assert (found.lost, found.damaged) == (0, False)


def test_lost_events_are_counted() -> None:
    stored = page(SMALL, flags=3 << 30, tail=struct.pack("=Q", 77))
    assert read_page(stored, LAYOUT).lost == 77
    assert read_page(page(SMALL, flags=1 << 31), LAYOUT).lost == -1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(page(SMALL)[:20], id="cut in an event's head"),
        pytest.param(page(head(20, 0), b"short"), id="an event longer than the page"),
        pytest.param(page(head(0, 0), struct.pack("=I", 3)), id="a length that is none"),
        pytest.param(page(head(30, 0)), id="no second word"),
        pytest.param(b"\0" * 9, id="no header"),
    ],
)
def test_damage_is_noticed(data: bytes) -> None:
    found = read_page(data, LAYOUT)
    assert found.damaged or not found.events


@given(st.binary(max_size=300))
def test_any_bytes_are_a_page(data: bytes) -> None:
    for _, record in read_page(data, LAYOUT).events:
        assert len(record) <= len(data)


def test_the_layout_comes_from_the_kernel() -> None:
    assert PageLayout.parse(HEADER) == LAYOUT
    with pytest.raises(TracingError, match="no field 'commit'"):
        PageLayout.parse("field: u64 timestamp;\toffset:0;\tsize:8;")
