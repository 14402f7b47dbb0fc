"""Records of a perf event's buffer, as bytes: what is taken of them, and what of damaged ones."""

from __future__ import annotations

import struct

import pytest

from usdt.bpf.mmapevents import MappedNow, parse_mmap_records

_HEADER = struct.Struct("=IHH")


def record(kind: int, body: bytes) -> bytes:
    """A record with its header, padded to eight bytes."""
    body += bytes(-len(body) % 8)
    return _HEADER.pack(kind, 0, _HEADER.size + len(body)) + body


def mmap2(path: bytes, *, inode: int = 7) -> bytes:
    """PERF_RECORD_MMAP2, as perf_event_open(2) has it."""
    fields = (10, 11, 0x400000, 0x1000, 0, 8, 1, inode, 3, 5, 2)
    return record(10, struct.pack("=IIQQQIIQQII", *fields) + path + b"\0")


def test_mappings_and_gaps_are_told_and_other_records_passed_over() -> None:
    lost = record(2, struct.pack("=QQ", 1, 42))
    data = mmap2(b"/usr/bin/ls") + record(4, bytes(24)) + lost + mmap2(b"/a b")
    assert list(parse_mmap_records(data)) == [
        MappedNow(10, (8, 1), 7, 3, b"/usr/bin/ls"),
        42,
        MappedNow(10, (8, 1), 7, 3, b"/a b"),
    ]


def test_what_is_no_file_is_left_out() -> None:
    assert list(parse_mmap_records(mmap2(b"[vdso]", inode=0))) == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0" * 7, id="less than a header"),
        pytest.param(_HEADER.pack(10, 0, 0), id="a record without length"),
        pytest.param(_HEADER.pack(10, 0, 4) * 4, id="shorter than its header"),
        pytest.param(mmap2(b"/x")[:-8], id="cut off"),
        pytest.param(record(10, bytes(8)), id="a mapping without its fields"),
        pytest.param(record(2, b""), id="a loss without its number"),
    ],
)
def test_damaged_records_end_it(data: bytes) -> None:
    assert list(parse_mmap_records(data)) == []
