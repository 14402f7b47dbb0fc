"""Several ring buffers, as on machines with more than two CPUs: what comes is one stream."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start
from patience import patient

import usdt
from usdt.bpf.maps import read_cpu_list
from usdt.bpf.rings.groups import ONE_RING, RingGroups
from usdt.engine.compiler.codegen import record
from usdt.engine.programs.codegen import action
from usdt.engine.runtime import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fixtures import Fixture

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")

_HITS = 2_000
_CPUS = sorted(os.sched_getaffinity(0))[:2]


@pytest.fixture(autouse=True, params=["several", "several of the kernel", "one of the kernel"])
def _rings(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    # Several, in an array where the machine has that: or the kernel's, as on other machines.
    if "kernel" in request.param:
        monkeypatch.setattr(session, "can_use_array", lambda *_: False)
    cpus = max(*read_cpu_list("possible"), 1) + 1
    groups = ONE_RING if "one" in request.param else RingGroups(cpus, 0)
    for module in (record, action):
        monkeypatch.setattr(module, "ring_groups", lambda: groups)


@pytest.fixture
def two() -> Iterator[list[Fixture]]:
    """Two programs that are about to fire, each on a CPU of its own."""
    loop = build("default", "loop")
    with (
        start(loop, "-w", "-q", "-n", _HITS, "-s", 20) as first,
        start(loop, "-w", "-q", "-n", _HITS, "-s", 20) as second,
    ):
        both = [first.wait_ready(), second.wait_ready()]
        for one, cpu in zip(both, (_CPUS[0], _CPUS[-1]), strict=True):
            os.sched_setaffinity(one.pid, {cpu})
        yield both


def _fire(programs: list[Fixture]) -> None:
    for one in programs:
        one.send("fire")
    for one in programs:
        one.wait_line("done", timeout=patient(100))


def test_events_of_all_cpus_come_in_the_order_of_time(two: list[Fixture]) -> None:
    pids = [one.pid for one in two]
    with usdt.attach("loop:hit(arg0)", pid=pids) as events:
        _fire(two)
        found = events.finish()
        assert events.lost == 0
    times = [event.time for event in found]
    if record.ring_groups() != ONE_RING:  # else one may come between a reservation and its time
        assert times == sorted(times)
    assert sorted({event.cpu for event in found}) == _CPUS
    for pid in pids:
        assert [one.args["arg0"] for one in found if one.pid == pid] == [*range(_HITS)]


def test_a_full_ring_buffer_is_counted(two: list[Fixture]) -> None:
    pids = [one.pid for one in two]
    with usdt.attach("loop:hit(arg0)", pid=pids, buffer=4096, backlog=0) as events:
        _fire(two)
        found = events.finish()
        assert len(found) + events.lost == 2 * _HITS
        assert events.lost > 0


def test_programs_print_in_the_order_of_time(two: list[Fixture]) -> None:
    place = f"usdt:{build('default', 'loop')}:loop:hit"
    text = place + ' { printf("%llu %d %d %d", nsecs, cpu, pid, arg0); }'
    with usdt.run(text, pid=[one.pid for one in two]) as program:
        _fire(two)
        for one in two:
            one.finish(timeout=patient(100))
        rows = [[int(word) for word in one.text.split()] for one in program]
    assert sorted({cpu for _, cpu, _, _ in rows}) == _CPUS
    for one in two:
        assert [number for _, _, pid, number in rows if pid == one.pid] == [*range(_HITS)]
    # The record has the time; the program reads the clock again.
    late = [now for (before, *_), (now, *_) in itertools.pairwise(rows) if now < before]
    assert record.ring_groups() == ONE_RING or len(late) < len(rows) / 100
