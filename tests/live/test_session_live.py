"""Sessions on real probes: what is counted, when poll() returns, what close() leaves behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build, compiler, start

import usdt
from usdt.base.errors import TracingError
from usdt.engine.compiler.codegen.model import TaskFilter
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.runtime.session import RingBufferSession
from usdt.probes.matching import matching
from usdt.probes.probe import read_probes
from usdt.probes.sites import points_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fixtures import Fixture

    from usdt.engine.output.formatters.event_records import Event

pytestmark = pytest.mark.usefixtures("ringbuf")

_PAGE = os.sysconf("SC_PAGE_SIZE")


def _session(path: Path, pid: int, *texts: str, buffer: int = 1 << 20) -> RingBufferSession:
    """A session attached to these probes of the file in one process."""
    session = RingBufferSession(EventFormatter(), accept=TaskFilter((pid,)), buffer=buffer)
    try:
        probes = read_probes(str(path)).probes
        for text in texts:
            request = parse_probe(text)
            found = matching(request, probes)
            points = [point for probe in found for point in points_of(probe, str(path), pid=pid)]
            assert points, text
            assert not session.attach(request, points)
    except BaseException:
        session.close()
        raise
    return session


def _lost(session: RingBufferSession) -> dict[str, tuple[int, int]]:
    return {item.probe: (item.lost, item.unread) for item in session.lost()}


def _everything(session: RingBufferSession, *, quiet: float = 0.1) -> list[Event]:
    # Until nothing comes any more for a while.
    found: list[Event] = []
    while batch := session.poll(quiet):
        found += batch
    return found


@pytest.fixture
def loop() -> Iterator[Fixture]:
    with start(build("default", "loop"), "-w", "-q", "-n", 20000) as process:
        yield process.wait_ready()


@pytest.fixture
def slow() -> Iterator[Fixture]:
    """One hit each time it is told to fire."""
    with start(build("default", "loop"), "-w", "-n", 1) as process:
        yield process.wait_ready()


_LOOP = "loop:hit"


def _loop(process: Fixture, *texts: str, buffer: int = 1 << 20) -> RingBufferSession:
    return _session(build("default", "loop"), process.pid, *texts, buffer=buffer)


# ---------------------------------------------------------------- what is counted


@pytest.mark.parametrize("buffer", [1, _PAGE, 16 * _PAGE])
def test_every_hit_is_delivered_or_counted_as_lost(buffer: int, loop: Fixture) -> None:
    with _loop(loop, _LOOP, buffer=buffer) as session:
        loop.fire()
        found = _everything(session)
        lost, unread = _lost(session).get(_LOOP, (0, 0))
        assert len(found) + lost == 20000
        assert unread == 0
        assert lost > 0 or buffer > _PAGE, "64 records of room cannot do"
        rounds = [event.args["arg0"] for event in found]
        assert rounds == sorted(set(rounds))
        assert rounds[0] == 0, "the first ones found room"
        loop.fire()
        again = _everything(session)
        assert len(again) + _lost(session).get(_LOOP, (0, 0))[0] == 20000 + lost
        assert again[0].args["arg0"] == 0, "and there was room again"


def test_nothing_is_lost_where_there_is_room(loop: Fixture) -> None:
    with _loop(loop, _LOOP, buffer=2 << 20) as session:
        loop.fire()
        assert len(_everything(session)) == 20000
        assert session.lost() == []


def test_hits_are_accounted_for_while_they_are_read(loop: Fixture) -> None:
    found: list[Event] = []
    with _loop(loop, _LOOP, buffer=8 * _PAGE) as session:
        reader = threading.Thread(target=lambda: found.extend(_everything(session, quiet=0.3)))
        reader.start()
        loop.fire()
        reader.join()
        lost = _lost(session).get(_LOOP, (0, 0))[0]
    rounds = [event.args["arg0"] for event in found]
    assert rounds == sorted(set(rounds))
    assert len(rounds) + lost == 20000


def test_hits_that_predicates_turn_down_are_not_lost(loop: Fixture) -> None:
    with _loop(loop, f"{_LOOP}(arg0 % 100 == 7, arg0)", buffer=_PAGE) as session:
        loop.fire()
        found = _everything(session)
        lost, unread = _lost(session).get(_LOOP, (0, 0))
        assert len(found) + lost == 200
        assert unread == 0
        assert all(event.args["arg0"] % 100 == 7 for event in found)


def test_undecided_predicates_are_counted_apart(loop: Fixture) -> None:
    # Only odd hits try to read at address 0.
    with _loop(loop, f"{_LOOP}(arg0 % 2 == 0 || *(int *)0 == 1)", buffer=4 << 20) as session:
        loop.fire()
        assert len(_everything(session)) == 10000
        assert _lost(session) == {_LOOP: (0, 10000)}


# ---------------------------------------------------------------- when poll() returns


_LONG = 100.0  # seconds in which a poll has nothing to do but wait


def _seconds(began: float) -> float:
    return time.monotonic() - began


def test_poll_returns_when_its_time_is_over(slow: Fixture) -> None:
    with _loop(slow, _LOOP) as session:
        for timeout in (0.0, 0.15):
            began = time.monotonic()
            assert session.poll(timeout) == []
            assert timeout <= _seconds(began) < _LONG


def test_poll_returns_with_the_first_event(slow: Fixture) -> None:
    with _loop(slow, _LOOP) as session:
        for _ in range(5):
            timer = threading.Timer(0.02, slow.fire)
            timer.start()
            began = time.monotonic()
            assert len(session.poll(_LONG)) == 1
            assert _seconds(began) < _LONG
            timer.join()


def test_wake_ends_one_poll(slow: Fixture) -> None:
    with _loop(slow, _LOOP) as session:
        timer = threading.Timer(0.05, session.wake)
        timer.start()
        began = time.monotonic()
        assert session.poll(_LONG) == []
        assert _seconds(began) < _LONG
        timer.join()
        session.wake()
        session.wake()
        assert session.poll(10) == []  # two that nobody waited for are one
        began = time.monotonic()
        assert session.poll(0.05) == []
        assert _seconds(began) >= 0.05
        slow.fire()
        assert len(session.poll(10)) == 1
    session.wake()  # closed: nothing happens


def test_wake_takes_no_event_away(slow: Fixture) -> None:
    with _loop(slow, _LOOP) as session:
        for _ in range(5):
            slow.fire()
            session.wake()
            assert sorted(len(session.poll(10)) for _ in range(2)) == [0, 1]


def test_a_watched_descriptor_ends_poll(slow: Fixture) -> None:
    reader, writer = os.pipe()
    with _loop(slow, _LOOP) as session, contextlib.ExitStack() as stack:
        stack.callback(os.close, reader)
        stack.callback(os.close, writer)
        session.watch(reader)
        os.write(writer, b"x")
        began = time.monotonic()
        assert session.poll(_LONG) == []
        assert _seconds(began) < _LONG
        session.unwatch(reader)
        session.unwatch(reader)
        assert session.poll(0.05) == []
        assert _seconds(began) >= 0.05


def test_drain_detaches_and_gives_the_rest(loop: Fixture) -> None:
    with _loop(loop, _LOOP, buffer=2 << 20) as session:
        loop.fire()
        first = session.poll(1)
        rest = [event for batch in session.drain() for event in batch]
        assert [event.args["arg0"] for event in first + rest] == [*range(20000)]
        loop.fire()
        assert session.poll(0.05) == []
        assert [*session.drain()] == []
        assert session.lost() == []


# ---------------------------------------------------------------- records that are being written

_WRITERS = r"""
#include <sys/sdt.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
enum { THREADS = 6, ROUNDS = 1500, SIZE = 4000 };
static void *work(void *index)
{
    char text[SIZE + 1] = "";
    for (int round = 0; round < ROUNDS; round++) {
        memset(text, 'a' + (round + (long)index) % 26, SIZE);
        STAP_PROBE3(w, hit, (int)(long)index, round, text);
    }
    return 0;
}
int main(void)
{
    char line[100];
    printf("ready %d\n", getpid());
    while (fflush(stdout), fgets(line, sizeof line, stdin)) {
        pthread_t ids[THREADS];
        for (long i = 0; i < THREADS; i++)
            pthread_create(&ids[i], 0, work, (void *)i);
        for (int i = 0; i < THREADS; i++)
            pthread_join(ids[i], 0);
        printf("done %d\n", THREADS * ROUNDS);
    }
}
"""


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("writers") / "writers"
    command = [*compiler(), "-O1", "-x", "c", "-", "-o", str(path), "-pthread"]
    subprocess.run(command, input=_WRITERS, text=True, check=True)
    return path


@pytest.mark.parametrize("item", ["str(arg2, 4000)", "buf(arg2, 4000)"])
def test_records_that_are_still_written_are_never_seen(item: str, writers: Path) -> None:
    # Six threads on fewer CPUs with long records: the reader meets records half done.
    text = f"w:hit(arg0, arg1, {item})"
    found: list[Event] = []
    with start(writers) as process:
        process.wait_ready()
        with _session(writers, process.pid, text, buffer=1 << 20) as session:
            reader = threading.Thread(target=lambda: found.extend(_everything(session, quiet=0.5)))
            reader.start()
            hits = process.fire()
            reader.join()
            lost = _lost(session).get("w:hit", (0, 0))[0]
    assert len(found) + lost == hits
    assert len(found) > 100
    rounds: dict[int, int] = {}
    for event in found:
        index, number = event.args["arg0"], event.args["arg1"]
        assert number > rounds.get(index, -1), "a thread's hits stay in order"
        rounds[index] = number
        assert event.args[item.replace(" ", "")] == chr(97 + (number + index) % 26) * 4000


# ---------------------------------------------------------------- the end, and several at once


def _descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_close_is_idempotent_and_leaves_nothing(slow: Fixture) -> None:
    before = _descriptors()
    unused = RingBufferSession(EventFormatter())
    unused.close()
    session = _loop(slow, _LOOP, f"{_LOOP}(arg1)")
    slow.fire()
    session.close()
    session.close()
    assert _descriptors() == before
    slow.fire()  # whoever was traced goes on
    with pytest.raises(ValueError, match="closed kernel object"):
        session.lost()


def test_what_cannot_be_attached_leaves_nothing(slow: Fixture) -> None:
    before = _descriptors()
    with pytest.raises(ValueError, match="arg7 was asked for"):
        _loop(slow, _LOOP, f"{_LOOP}(arg7)")
    assert _descriptors() == before


def test_two_sessions_on_one_probe_each_see_everything(loop: Fixture) -> None:
    with _loop(loop, f"{_LOOP}(arg0)", buffer=4 << 20) as one:
        with _loop(loop, f"{_LOOP}(arg1)", buffer=4 << 20) as two:
            loop.fire()
            assert [event.args for event in _everything(two)] == [
                {"arg1": -value} for value in range(20000)
            ]
        loop.fire()
        assert [event.args for event in _everything(one)] == [
            {"arg0": value} for value in range(20000)
        ] * 2
        assert one.lost() == []


def test_a_probe_named_twice_is_shown_twice(slow: Fixture) -> None:
    with _loop(slow, f"{_LOOP}(arg0)", f"{_LOOP}(arg1)", f"{_LOOP}(arg0)") as session:
        slow.fire()
        found = _everything(session)
    assert Counter(str(event.args) for event in found) == {"{'arg0': 0}": 2, "{'arg1': 0}": 1}
    assert {event.probe for event in found} == {_LOOP}


def _known(hit: dict[str, Any]) -> tuple[Any, ...]:
    return hit["pid"], *hit["args"]


@pytest.mark.usefixtures("uprobe_multi")  # a tenth of a second for each site to detach without
def test_hundreds_of_cases_in_several_processes() -> None:
    path = build("default", "inline")
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(start(path, "-w")).wait_ready() for _ in range(4)]
        pids = [process.pid for process in processes]
        events = stack.enter_context(usdt.attach("inlined:site", pid=pids))
        hits = sum(process.fire() for process in processes)
        found: list[Event] = []
        while len(found) < hits and (batch := events.poll(2)):
            found += batch
        expected = [_known(hit) for process in processes for hit in process.hits]
        assert hits >= 4 * 300
        assert sorted((event.pid, *event.args.values()) for event in found) == sorted(expected)
        assert events.lost == 0


@pytest.mark.parametrize(("limit", "fits"), [(4000, True), (4039, True), (4040, False)])
def test_a_record_must_fit_the_buffer(limit: int, fits: bool, writers: Path) -> None:
    # 8 bytes of header, 40 of context, 8 of length and the NUL; and the kernel keeps one byte.
    text = f"w:hit(str(arg2, {limit - 8}))"
    with start(writers) as process:
        process.wait_ready()
        if fits:
            with _session(writers, process.pid, text, buffer=4096) as session:
                hits = process.fire()
                found = _everything(session)
                assert len(found) + _lost(session)["w:hit"][0] == hits
                assert 0 < len(found) < hits
                assert {len(value) for event in found for value in event.args.values()} == {
                    min(limit - 8, 4000)
                }
        else:
            with pytest.raises(TracingError, match="does not fit a ring buffer of 4096"):
                _session(writers, process.pid, text, buffer=4096)


@pytest.mark.parametrize("limit", [0, -1, 1 << 16])
def test_strings_have_a_least_and_a_greatest_length(limit: int) -> None:
    with pytest.raises(TracingError, match=f"str.. can keep 1 to 65535 bytes, not {limit}"):
        RingBufferSession(EventFormatter(), max_string=limit)
