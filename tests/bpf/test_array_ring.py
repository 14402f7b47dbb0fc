"""The reader's side of a ring buffer in an array, over memory that tests write."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.bpf.rings.array_rings import HEAD, POSITIONS, TAIL, ArrayRing
from usdt.bpf.rings.ringbuf import DISCARD, HEADER, TAKE, equal_runs

_SIZE = 4096


class Writer:
    """What programs do, in Python: one ring buffer behind its positions."""

    def __init__(self, size: int = _SIZE) -> None:
        self.memory = bytearray(POSITIONS + size)
        self.size = size
        self.ring = ArrayRing(memoryview(self.memory), 0, POSITIONS, size)

    def position(self, offset: int) -> int:
        """HEAD or TAIL."""
        return int(struct.unpack_from("=Q", self.memory, offset)[0])

    def reserve(self, length: int) -> int | None:
        """Reserve a record; return where it is, or None if there is no space."""
        head, total = self.position(HEAD), HEADER + -(-length // 8) * 8
        start = head % self.size
        rest = self.size - start if start > self.size - total else 0
        if head + rest + total - self.position(TAIL) > self.size:
            return None
        struct.pack_into("=Q", self.memory, HEAD, head + rest + total)
        if rest:
            struct.pack_into("=I", self.memory, POSITIONS + start, DISCARD | rest - HEADER)
        return POSITIONS + (head + rest) % self.size

    def write(self, place: int, length: int, fill: int, flags: int = 0) -> None:
        """Fill a record that is reserved, then submit it."""
        body = bytes([fill]) * length
        self.memory[place + HEADER : place + HEADER + length] = body
        struct.pack_into("=I", self.memory, place, length | flags)


def _bodies(data: bytes) -> list[bytes]:
    return [
        data[start + HEADER + step * index :][: header & ~DISCARD]
        for start, step, count, header in equal_runs(data)
        for index in range(count)
        if not header & DISCARD
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 600), st.sampled_from([0, 0, 0, DISCARD]), st.booleans()),
        max_size=60,
    )
)
def test_what_is_written_is_read_and_cleared(made: list[tuple[int, int, bool]]) -> None:
    writer = Writer()
    expected, found = [], []
    for number, (length, flags, read) in enumerate(made):
        place = writer.reserve(length)
        if place is not None:
            writer.write(place, length, number + 1, flags)
            if not flags:
                expected.append(bytes([number + 1]) * length)
        if read:
            found += _bodies(writer.ring.take())
    found += _bodies(writer.ring.take())
    assert found == expected
    assert writer.ring.pending() == 0
    assert not any(writer.memory[POSITIONS:])


def test_nothing_is_read_behind_a_record_that_is_being_written() -> None:
    writer = Writer()
    first, second = writer.reserve(16), writer.reserve(16)
    assert first is not None
    assert second is not None
    writer.write(second, 16, 2)
    assert writer.ring.take() == b""
    writer.write(first, 16, 1)
    assert _bodies(writer.ring.take()) == [b"\1" * 16, b"\2" * 16]


@pytest.mark.parametrize("most", [8, 64, TAKE])
def test_a_record_larger_than_a_take(most: int) -> None:
    writer = Writer(1 << 23)
    length = TAKE + 8
    place = writer.reserve(length)
    assert place is not None
    writer.write(place, length, 7)
    assert len(writer.ring.take(most)) == HEADER + length
    assert not any(writer.memory[POSITIONS:])
