"""The order of the records of several ring buffers, from hand-made bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.bpf.rings import time_order
from usdt.bpf.rings.groups import ONE_RING, RingGroups, groups_of
from usdt.bpf.rings.ringbuf import DISCARD, HEADER
from usdt.bpf.rings.time_order import TakenRecords, TimeOrder

Record = tuple[int, int, int]  # time, number, bytes of the body


def written(records: list[Record], flags: int = 0) -> bytes:
    """The bytes of records whose bodies have a time, a number and nothing else."""
    data = b""
    for time, number, size in records:
        data += struct.pack("=IIQQ", size | flags, 0, time, number) + bytes(size - 16)
    return data


def numbers(data: bytes) -> list[int]:
    """The numbers of records, one by one."""
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from("=I", data, at)
        found.append(struct.unpack_from("=Q", data, at + HEADER + 8)[0])
        at += HEADER + (size & ~DISCARD)
    return found


def taken(*data: bytes, before: int, incomplete: tuple[int, ...] = ()) -> TakenRecords:
    """What was taken of some ring buffers at a time."""
    complete = tuple(at not in incomplete for at in range(len(data)))
    return TakenRecords(before, data, complete)


@pytest.fixture(autouse=True, params=["lists", "arrays"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether records are sorted in lists, or by numpy from the second time on."""
    module = None
    if request.param == "arrays":
        module = pytest.importorskip("numpy", reason="needs the extra numpy")
    monkeypatch.setattr(time_order, "numpy_after", lambda _: module)
    return str(request.param)


def begun(count: int, most: int = 1 << 20) -> TimeOrder:
    """An order that has sorted records already."""
    order = TimeOrder(count, most)
    first = [written([(1, 0, 16)])] * 2 + [b""] * (count - 2)
    assert len(order.next(taken(*first, before=1))) == len(b"".join(first))
    return order


_RINGS = 3
_steps = st.sampled_from([[16, 24, 64], [16]]).flatmap(
    lambda sizes: st.lists(
        st.tuples(st.integers(0, _RINGS - 1), st.integers(0, 3), st.sampled_from(sizes)),
        max_size=60,
    )
)


@given(_steps, st.sets(st.integers(0, 60)))
def test_records_come_in_the_order_of_time(
    steps: list[tuple[int, int, int]], cuts: set[int]
) -> None:
    order = begun(_RINGS)
    now, found = 10, b""
    rings: list[list[Record]] = [[] for _ in range(_RINGS)]
    for number, (ring, later, size) in enumerate(steps):
        now += later
        rings[ring].append((now, number, size))
        if number in cuts:  # taken between two hits, or while others come: the last time again
            found += order.next(taken(*map(written, rings), before=now - later))
            rings = [[] for _ in range(_RINGS)]
    found += order.next(taken(*map(written, rings), before=now))
    times, now = {}, 10
    for number, (_, later, _) in enumerate(steps):
        now += later
        times[number] = now
    shown = numbers(found)
    assert sorted(shown) == [*range(len(steps))]
    assert [times[one] for one in shown] == sorted(times.values())


def test_what_is_newer_than_the_moment_of_the_take_waits() -> None:
    order = begun(2)
    first = written([(5, 1, 16), (12, 3, 16)])
    assert numbers(order.next(taken(first, b"", before=10))) == [1]
    assert numbers(order.next(taken(b"", written([(11, 2, 16)]), before=20))) == [2, 3]


def test_nothing_overtakes_a_record_that_is_being_written() -> None:
    order = begun(2)
    ahead = written([(8, 2, 16), (9, 3, 16)])
    data = (written([(5, 1, 16)]), ahead)
    assert numbers(order.next(taken(*data, before=10, incomplete=(0,)))) == [1]
    assert order.next(taken(b"", b"", before=11, incomplete=(0,))) == b""
    rest = written([(7, 4, 16)])
    assert numbers(order.next(taken(rest, b"", before=12))) == [4, 2, 3]


def test_records_wait_only_while_there_is_memory_for_them() -> None:
    order = begun(2, most=50)
    ahead = written([(8, 2, 16), (9, 3, 16)])
    assert order.next(taken(b"", ahead, before=10, incomplete=(0,))) == b""
    more = written([(10, 4, 16)])
    assert numbers(order.next(taken(b"", more, before=11, incomplete=(0,)))) == [2, 3, 4]


def test_a_program_that_interrupts_another_keeps_its_place() -> None:
    order = begun(2)
    nested = written([(7, 1, 16), (6, 2, 24), (9, 4, 16)])
    assert numbers(order.next(taken(nested, written([(8, 3, 64)]), before=10))) == [1, 2, 3, 4]


def test_discarded_records_stay_where_they_are() -> None:
    order = begun(2)
    data = written([(7, 1, 16)]) + written([(1 << 60, 2, 16)], DISCARD) + written([(9, 4, 16)])
    assert numbers(order.next(taken(data, written([(8, 3, 16)]), before=10))) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("cpus", "groups"),
    [
        (1, ONE_RING),
        (2, ONE_RING),
        (3, RingGroups(3, 0)),
        (16, RingGroups(16, 0)),
        (17, RingGroups(9, 1)),
        (64, RingGroups(16, 2)),
        (65, RingGroups(9, 3)),
        (1024, RingGroups(16, 6)),
    ],
)
def test_groups_of_cpus(cpus: int, groups: RingGroups) -> None:
    assert groups_of(cpus) == groups
    assert groups == ONE_RING or cpus - 1 >> groups.shift < groups.count
