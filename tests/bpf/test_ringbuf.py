"""Ring buffer parsing: hand-made bytes as the kernel leaves them, and a naive walk beside it."""

from __future__ import annotations

import itertools
import os
import struct
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.base.errors import TracingError
from usdt.bpf.rings.ringbuf import (
    BUSY,
    DISCARD,
    HEADER,
    RingBuffer,
    committed_size,
    count_committed,
    equal_runs,
    ring_size,
    run_length,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Record = tuple[int, int]  # length and flags


def ring(records: Iterable[Record]) -> bytes:
    """The bytes from the consumer's to the producer's position; page offsets are nonsense."""
    data = b""
    for number, (length, flags) in enumerate(records):
        body = bytes([number & 0xFF or 1]) * length
        data += struct.pack("=II", length | flags, 0xDEAD0000 | number & 0xFFFF) + body
        data += b"\xee" * (-length % 8)  # the kernel never clears its padding
    return data


def walk(data: bytes) -> list[tuple[int, int, int]]:
    """(offset, step, header) of every record, one by one."""
    found, position = [], 0
    while position < len(data):
        (header,) = struct.unpack_from("=I", data, position)
        step = HEADER + -(-(header & ~(BUSY | DISCARD)) // 8) * 8
        found.append((position, step, header))
        position += step
    return found


def spread(data: bytes) -> list[tuple[int, int, int]]:
    """Every record that runs() tells of, one by one."""
    return [
        (start + index * step, step, header)
        for start, step, count, header in equal_runs(data)
        for index in range(count)
    ]


def being_written(header: int) -> bool:
    """Whether a record with this header may not be read yet."""
    return bool(header & BUSY) or not header


@pytest.mark.parametrize(
    ("records", "ready"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([(16, 0)], 24, id="one record"),
        pytest.param([(16, BUSY)], 0, id="one that is not submitted yet"),
        pytest.param([(0, 0)], 0, id="without a length, it is being written"),
        pytest.param([(0, DISCARD)], 8, id="an empty one is its header"),
        pytest.param([(1, 0)], 16, id="a body is padded to eight bytes"),
        pytest.param([(8, 0), (9, 0)], 40, id="two lengths"),
        pytest.param([(8, 0), (8, 0), (8, BUSY)], 32, id="the last of three equals is busy"),
        pytest.param([(8, BUSY), (8, 0)], 0, id="nothing may be read behind a busy one"),
        pytest.param([(8, 0), (40, BUSY), (8, 0)], 16, id="a busy one of another length"),
        pytest.param([(8, DISCARD)], 16, id="a discarded one is done with"),
        pytest.param([(8, DISCARD), (8, BUSY)], 16, id="discarded, then busy"),
        pytest.param([(8, 0), (8, DISCARD), (8, 0)], 48, id="discarded between submitted"),
        pytest.param([(8, 0)] * 1000 + [(8, BUSY)] * 3, 16000, id="a thousand, then busy ones"),
    ],
)
def test_what_may_be_read(records: list[Record], ready: int) -> None:
    data = ring(records)
    assert committed_size(data) == ready
    assert committed_size(memoryview(data)) == ready


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(8, 0)] * 5, [(0, 16, 5, 8)], id="equal ones are one run"),
        pytest.param([(7, 0), (8, 0)], [(0, 16, 1, 7), (16, 16, 1, 8)], id="one step, two lengths"),
        pytest.param(
            [(8, 0), (8, DISCARD), (8, DISCARD), (8, 0)],
            [(0, 16, 1, 8), (16, 16, 2, 8 | DISCARD), (48, 16, 1, 8)],
            id="discarded ones are runs of their own",
        ),
        pytest.param([(0, 0), (0, 0)], [(0, 8, 2, 0)], id="empty records"),
        pytest.param(
            [(24, 0), (8, BUSY)], [(0, 32, 1, 24), (32, 16, 1, 8 | BUSY)], id="busy ones are told"
        ),
    ],
)
def test_runs(records: list[Record], expected: list[tuple[int, int, int, int]]) -> None:
    assert list(equal_runs(ring(records))) == expected


def test_a_body_that_looks_like_a_header_is_no_record() -> None:
    # Eight-byte records, then one of 24 whose body repeats their header at their stride.
    fake = struct.pack("=II", 8, 0)
    data = ring([(8, 0), (8, 0)]) + struct.pack("=II", 24, 0) + fake * 3 + ring([(8, 0)])
    assert [start for start, _, _ in spread(data)] == [0, 16, 32, 64]


def test_runs_longer_than_any_doubling() -> None:
    records: list[Record] = [(8, 0)] * 4095 + [(16, 0)] * 4097 + [(8, 0)]
    assert [count for _, _, count, _ in equal_runs(ring(records))] == [4095, 4097, 1]


class Memory:
    """A ring buffer's pages, for a reader without a kernel."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.positions = bytearray(struct.pack("=QQ", 0, len(data)))
        self.reader = RingBuffer.__new__(RingBuffer)
        self.reader.size = 4096
        self.reader._consumer = memoryview(self.positions)[:8].cast("Q")
        self.reader._producer = memoryview(self.positions)[8:].cast("Q")
        self.reader._data = memoryview(self.data)

    def place(self, position: int, data: bytes) -> None:
        """Put records at a position, which may go beyond the end of the data."""
        for at, byte in enumerate(data, position):
            self.data[at % len(self.data)] = byte
        self.positions[:] = struct.pack("=QQ", position, position + len(data))

    def submit(self, offset: int, body: bytes) -> None:
        """What a program does with the record that it reserved at an offset."""
        self.data[offset + HEADER : offset + HEADER + len(body)] = body
        self.data[offset : offset + 4] = struct.pack("=I", len(body))


def test_a_reader_stops_at_a_busy_record_and_comes_back_for_it() -> None:
    memory = Memory(ring([(8, 0), (8, BUSY), (8, 0)]))
    assert memory.reader.take() == memory.data[:16]
    assert memory.reader.pending() == 32
    assert memory.reader.take() == b""
    memory.submit(16, b"submit!!")
    assert memory.reader.take() == memory.data[16:]
    assert memory.reader.pending() == 0


@pytest.mark.parametrize(
    ("before", "first", "second"),
    [
        pytest.param(True, 32, 0, id="just before: it is taken as it is now"),
        pytest.param(False, 16, 16, id="just after: it is taken next time"),
    ],
)
def test_a_record_submitted_while_headers_are_read_is_never_torn(
    monkeypatch: pytest.MonkeyPatch, before: bool, first: int, second: int
) -> None:
    memory = Memory(ring([(8, 0), (8, BUSY)]))

    def meanwhile(data: bytes | memoryview, limit: int) -> int:
        if before:
            memory.submit(16, b"submit!!")
        ready = committed_size(data, limit)
        memory.submit(16, b"submit!!")
        return ready

    monkeypatch.setattr("usdt.bpf.rings.ringbuf.committed_size", meanwhile)
    taken = [memory.reader.take(), memory.reader.take()]
    assert [len(data) for data in taken] == [first, second]
    assert b"".join(taken) == memory.data
    assert taken[not before].endswith(b"submit!!")


def test_a_take_goes_on_where_the_data_begin() -> None:
    data = ring([(8, 0), (24, 0), (8, 0)])
    memory = Memory(bytes(4096))
    memory.place(4096 * 7 - 32, data)  # the second record goes beyond the end
    assert memory.reader.take() == data
    assert memory.reader.pending() == 0


def test_a_busy_record_beyond_the_end_is_left_until_it_is_submitted() -> None:
    memory = Memory(bytes(4096))
    memory.place(4096 - 32, ring([(8, 0), (24, BUSY), (8, 0)]))
    assert len(memory.reader.take()) == 16
    assert memory.reader.take() == b""
    memory.data[4096 - 16 : 4096 - 12] = struct.pack("=I", 24)
    assert len(memory.reader.take()) == 48


lengths = st.sampled_from([0, 1, 7, 8, 9, 16, 24, 100])
flags = st.sampled_from([0, 0, 0, 0, DISCARD, BUSY, BUSY | DISCARD])
groups = st.tuples(st.tuples(lengths, flags), st.integers(1, 40))


@settings(deadline=None)
@given(st.lists(st.tuples(lengths, flags), max_size=30), st.integers(0, 511), st.integers(8, 4096))
def test_takes_from_any_position_give_all_records_before_a_busy_one(
    records: list[Record], place: int, most: int
) -> None:
    data = ring(records)
    memory = Memory(bytes(4096))
    memory.place(8 * place, data)
    busy = [start for start, _, header in walk(data) if being_written(header)]
    taken = b"".join(iter(lambda: memory.reader.take(most), b""))
    assert taken == data[: busy[0] if busy else len(data)]


@settings(deadline=None)
@given(st.lists(groups, max_size=12))
def test_runs_tell_of_the_records_of_a_naive_walk(made: list[tuple[Record, int]]) -> None:
    data = ring(record for record, count in made for _ in range(count))
    assert spread(data) == walk(data)


@settings(deadline=None)
@given(st.lists(groups, max_size=12))
def test_runs_are_as_long_as_they_can_be(made: list[tuple[Record, int]]) -> None:
    data = ring(record for record, count in made for _ in range(count))
    headers = [header for *_, header in equal_runs(data)]
    assert all(one != other for one, other in itertools.pairwise(headers))


@settings(deadline=None)
@given(st.lists(groups, max_size=12))
def test_committed_ends_where_a_naive_walk_meets_a_busy_record(
    made: list[tuple[Record, int]],
) -> None:
    data = ring(record for record, count in made for _ in range(count))
    busy = [start for start, _, header in walk(data) if being_written(header)]
    assert committed_size(data) == (busy[0] if busy else len(data))


@pytest.mark.parametrize(
    ("records", "limit", "found"),
    [
        pytest.param([], 100, (0, 0), id="nothing"),
        pytest.param([(8, 0)] * 5, 1 << 20, (80, 5), id="no limit"),
        pytest.param([(8, 0)] * 5, 48, (48, 3), id="a limit behind a record"),
        pytest.param([(8, 0)] * 5, 47, (32, 2), id="a limit inside one"),
        pytest.param([(64, 0), (8, 0)], 8, (72, 1), id="the first one whatever the limit"),
        pytest.param([(8, 0), (64, 0), (8, 0)], 40, (16, 1), id="a long one behind the limit"),
        pytest.param([(8, BUSY)], 8, (0, 0), id="a busy one first"),
        pytest.param([(8, 0), (8, DISCARD), (8, 0)], 999, (48, 2), id="discarded do not count"),
    ],
)
def test_tally(records: list[Record], limit: int, found: tuple[int, int]) -> None:
    assert count_committed(ring(records), limit) == found


@settings(deadline=None)
@given(st.lists(groups, max_size=12), st.integers(0, 3000), st.integers(0, 200))
def test_tally_counts_like_a_naive_walk(
    made: list[tuple[Record, int]], limit: int, missing: int
) -> None:
    data = ring(record for record, count in made for _ in range(count))
    data = data[: max(0, len(data) - 8 * missing)]
    end = records = 0
    for start, step, header in walk(data):
        if (
            being_written(header)
            or start + step > len(data)
            or (start and start + step > limit & ~3)
        ):
            break
        if not start and limit < 4:
            break
        end, records = start + step, records + (not header & DISCARD)
    assert count_committed(data, limit) == (end, records)


def _same(words: list[int], start: int, stride: int, limit: int) -> int:
    column = words[start::stride][:limit]
    return next((i for i, word in enumerate(column) if word != column[0]), len(column))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0, 1]), min_size=1, max_size=300),
    st.integers(0, 299),
    st.integers(1, 9),
    st.integers(1, 400),
)
def test_same_counts_like_a_loop(words: list[int], start: int, stride: int, limit: int) -> None:
    start %= len(words)
    view = memoryview(struct.pack(f"={len(words)}I", *words)).cast("I")
    assert run_length(view, start, stride, limit) == _same(words, start, stride, limit)


@settings(deadline=None)
@given(st.integers(1, 6000), st.integers(0, 6000), st.integers(1, 5))
def test_same_finds_the_first_that_differs(total: int, other: int, stride: int) -> None:
    words = [3] * (total * stride)
    if 0 < other < total:
        words[other * stride] = 4
    view = memoryview(struct.pack(f"={len(words)}I", *words)).cast("I")
    assert run_length(view, 0, stride) == (other if 0 < other < total else total)


@pytest.mark.parametrize(
    ("wanted", "pages"),
    [
        pytest.param(0, 1, id="nothing wanted is a page"),
        pytest.param(1, 1, id="one byte"),
        pytest.param(1.0, 1, id="exactly a page"),
        pytest.param(1.5, 2, id="a page and a half"),
        pytest.param(3.0, 4, id="three pages are no power of two"),
        pytest.param(64.0, 64, id="sixty-four"),
    ],
)
def test_sizes_are_powers_of_two_of_pages(wanted: float, pages: int) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    size = int(wanted * page) if isinstance(wanted, float) else wanted
    assert ring_size(size) == pages * page


def test_a_size_that_no_map_can_have_is_an_error() -> None:
    assert ring_size(1 << 31) == 1 << 31
    with pytest.raises(TracingError, match=r"2147483649 bytes: the maximum is .*2 GiB"):
        ring_size((1 << 31) + 1)


class _Column(list[int]):
    """Words that a program changes while they are compared: they differ, and then they do not."""

    def __ne__(self, other: object) -> bool:
        return True

    def tolist(self) -> list[int]:
        return [*self]


class _Words(list[int]):
    """What a view of a ring buffer is to run_length(): its programs cannot be timed."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _Column(found) if isinstance(index, slice) else found


@pytest.mark.parametrize("words", [[8] * 40, [8] * 40 + [BUSY | 8]])
def test_a_record_is_submitted_while_headers_are_compared(words: list[int]) -> None:
    assert run_length(cast("memoryview", _Words(words)), 0, 1) == 40


@pytest.mark.parametrize("count", [17, 1000, 30_000])
def test_the_end_of_a_long_run_is_found_by_comparing_slices(count: int) -> None:
    # What waits in a ring buffer often ends with a record that is being written.
    read: list[int] = []  # words that the interpreter looks at, of each slice

    class Slice(list[int]):
        def tolist(self) -> list[int]:
            read.append(len(self))
            return [*self]

    class Words(list[int]):
        def __getitem__(self, index: Any) -> Any:
            found = super().__getitem__(index)
            return Slice(found) if isinstance(index, slice) else found

    words = Words([8] * count + [BUSY | 8] + [8] * 50)
    assert run_length(cast("memoryview", words), 0, 1) == count
    assert sum(read) <= 16
