"""The Python interface on running programs, as its documentation promises it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import Fixture, build, start
from patience import patient
from tracing_tools import private, until

import usdt
from usdt.base.machine import PROCESS_MACHINE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COUNT3 = "args:count3(arg0, arg1, arg2)"


@pytest.fixture
def target() -> Iterator[Fixture]:
    """A process that waits, with the probes of args; each order fires two rounds."""
    with start(build("default", "args"), "-w", "-n", 2) as fixture:
        yield fixture.wait_ready()


_LONG = 100.0  # seconds in which who is to wait has nothing else to do


def count3(hits: list[dict[str, Any]]) -> list[list[int]]:
    """What was printed of count3."""
    return [hit["args"] for hit in hits if hit["probe"] == "args:count3"]


def values(events: list[usdt.Event]) -> list[list[int]]:
    """The same of events."""
    return [[*event.args.values()] for event in events if event.probe == "args:count3"]


def gathered(events: usdt.Events, number: int) -> list[usdt.Event]:
    """So many events, by as many polls as it takes."""
    found: list[usdt.Event] = []
    deadline = time.monotonic() + patient(100)
    while len(found) < number and time.monotonic() < deadline:
        found += events.poll(1)
    assert len(found) == number
    return found


# ---------------------------------------------------------------- listing


def test_probes_of_a_file() -> None:
    path = build("default", "args")
    probes = usdt.list_probes(path)
    assert {probe.full_name for probe in probes} >= {"args:count0", "args:mixed12"}
    assert [p.name for p in usdt.list_probes(str(path), pattern="args:count3")] == ["count3"]
    (probe,) = usdt.list_probes(str(path), pattern="*:count12")
    assert (probe.provider, probe.machine, len(probe.sites)) == ("args", PROCESS_MACHINE, 1)
    assert len(probe.operands(probe.sites[0])) == 12


def test_probes_of_a_process(target: Fixture) -> None:
    names = {probe.full_name for probe in usdt.list_probes(pid=target.pid)}
    assert {"args:count0", "args:mixed12"} <= names


# ---------------------------------------------------------------- events


def test_events_hold_what_was_fired(target: Fixture) -> None:
    with usdt.attach(_COUNT3, "args:dtrace0", pid=target.pid) as events:
        before = time.monotonic_ns()
        target.fire()
        found = gathered(events, 4)
        after = time.monotonic_ns()
        assert values(found) == count3(target.hits)
        assert events.lost == 0
    assert [event.probe for event in found] == ["args:count3", "args:dtrace0"] * 2
    first = found[0]
    assert isinstance(first, usdt.Event)
    assert before < first.time < after
    assert (first.pid, first.tid, first.comm) == (target.pid, target.pid, "args")
    assert 0 <= first.cpu < (os.cpu_count() or 1)
    assert list(first.args) == ["arg0", "arg1", "arg2"]


def test_iteration_ends_with_the_process_and_has_everything(target: Fixture) -> None:
    with usdt.attach(_COUNT3, pid=target.pid) as events:
        target.fire()
        printed = count3(target.finish())
        assert values(list(events)) == printed
        assert events.poll(0) == []
        assert list(events) == []


@pytest.mark.parametrize("attempt", range(5))
def test_the_last_events_of_a_process_are_not_forgotten(attempt: int) -> None:
    words = [str(build("default", "args")), "-n", "100", "-q"]
    with usdt.attach("args:*", command=words) as events:
        if attempt % 2:
            time.sleep(0.1)  # it has ended before anybody looks
        found = list(events)
    assert len(found) == 100 * 19


def test_an_iteration_that_is_left_goes_on_where_it_was(target: Fixture) -> None:
    with usdt.attach(_COUNT3, pid=target.pid) as events:
        for _ in range(5):
            target.fire()
        found = []
        for _ in range(10):
            for event in events:
                found.append(event)
                break
        assert values(found) == count3(target.hits)


def test_poll_returns_in_time_with_nothing(target: Fixture) -> None:
    with usdt.attach(_COUNT3, pid=target.pid) as events:
        for timeout in (0.0, 0.3):
            began = time.monotonic()
            assert events.poll(timeout) == []
            assert timeout <= time.monotonic() - began < _LONG


def test_poll_returns_as_soon_as_there_is_something(target: Fixture) -> None:
    with usdt.attach(_COUNT3, pid=target.pid) as events:
        timer = threading.Timer(0.2, target.send, ["fire"])
        timer.start()
        began = time.monotonic()
        assert events.poll(_LONG)
        assert time.monotonic() - began < _LONG
        timer.join()


def test_poll_returns_in_a_flood() -> None:
    with start(build("default", "loop"), "-w", "-q", "-n", 100_000_000) as fixture:
        fixture.wait_ready()
        with usdt.attach("loop:hit", pid=fixture.pid) as events:
            fixture.send("fire")
            for _ in range(5):
                began = time.monotonic()
                assert events.poll(_LONG)
                assert time.monotonic() - began < _LONG


def test_callbacks(target: Fixture) -> None:
    found: list[usdt.Event] = []
    with usdt.attach(_COUNT3, pid=target.pid, on_event=found.append) as events:
        target.fire()
        assert events.run(timeout=0.5) == 2
        target.fire()
        target.finish()
        assert events.run() == 2
    assert values(found) == count3(target.hits)


def test_a_callback_may_close(target: Fixture) -> None:
    found: list[usdt.Event] = []

    def enough(event: usdt.Event) -> None:
        found.append(event)
        events.close()

    events = usdt.attach(_COUNT3, pid=target.pid, on_event=enough)
    target.fire()
    events.run()
    assert found


def test_async_iteration(target: Fixture) -> None:
    async def collect() -> list[usdt.Event]:
        found = []
        with usdt.attach(_COUNT3, pid=target.pid) as events:
            asyncio.get_running_loop().call_later(0.1, target.send, "fire")
            async for event in events:
                found.append(event)
                if len(found) == 2:
                    target.send("end")
        return found

    assert values(asyncio.run(collect())) == count3(target.hits)


def test_two_async_iterations_run_side_by_side(target: Fixture) -> None:
    async def collect(probe: str) -> int:
        number = 0
        with usdt.attach(probe, pid=target.pid) as events:
            started.append(probe)
            if len(started) == 2:
                target.send("fire")
                target.send("end")
            async for _ in events:
                number += 1
        return number

    async def both() -> list[int]:
        return await asyncio.gather(collect("args:count3"), collect("args:count?"))

    started: list[str] = []
    assert asyncio.run(both()) == [2, 20]


# ---------------------------------------------------------------- values


def test_values_have_the_types_of_python() -> None:
    with start(build("default", "strings"), "-w", "-n", 1) as fixture:
        fixture.wait_ready()
        words = ("strings:bytes(str(arg0))", "strings:null(arg0,str(arg0))")
        with usdt.attach(*words, pid=fixture.pid) as events:
            fixture.fire()
            found = gathered(events, 11)
        printed = [h["args"][0]["str"] for h in fixture.hits if h["probe"] == "strings:bytes"]
    texts = [event.args["str(arg0)"] for event in found if event.probe == "strings:bytes"]
    assert texts == printed
    assert texts[0].encode("utf-8", "surrogateescape").startswith(b"\xff\xfe not")
    (null,) = [event.args for event in found if event.probe == "strings:null"]
    assert null["arg0"] == 0
    assert isinstance(null["str(arg0)"], usdt.Unreadable)
    assert null["str(arg0)"].reason


def test_floats_and_structures() -> None:
    path = build("default", "floats")
    with start(path, "-w", "-n", 1) as fixture:
        fixture.wait_ready()
        with usdt.attach("floats:infinite64", "floats:special64", pid=fixture.pid) as events:
            fixture.fire()
            infinite, special = gathered(events, 2)
    assert [*infinite.args.values()] == [math.inf, -math.inf]
    assert math.isnan(special.args["arg0"])
    assert math.copysign(1, special.args["arg1"]) == -1
    with start(build("default", "structs"), "-w", "-n", 1) as fixture:
        fixture.wait_ready()
        with usdt.attach("structs:s12", pid=fixture.pid) as events:
            fixture.fire()
            (event,) = gathered(events, 1)
        (printed,) = [hit["args"] for hit in fixture.hits if hit["probe"] == "structs:s12"]
    assert event.args["arg0"] == bytes.fromhex(printed[0]["hex"])


# ---------------------------------------------------------------- whom


def test_several_processes_and_a_file() -> None:
    path = build("default", "args")
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(start(path, "-w", "-n", 2)).wait_ready() for _ in range(2)]
        both = stack.enter_context(usdt.attach(_COUNT3, pid=[one.pid for one in pair]))
        every = stack.enter_context(usdt.attach(f"{path}:{_COUNT3}"))
        for one in pair:
            one.fire()
        for events in (both, every):
            found: list[usdt.Event] = []
            until(lambda: len(found) >= 4 or found.extend(events.poll(1)), "events")  # noqa: B023
            for one in pair:
                own = [event for event in found if event.pid == one.pid]
                assert values(own) == count3(one.hits)


def test_everything(target: Fixture) -> None:
    with usdt.attach(_COUNT3, all_processes=True) as events:
        target.fire()
        found: list[usdt.Event] = []
        while len(found) < 2:
            found += [event for event in events.poll(5) if event.pid == target.pid]
        assert values(found) == count3(target.hits)


def test_several_sessions_at_once(target: Fixture) -> None:
    with (
        usdt.attach(_COUNT3, pid=target.pid) as one,
        usdt.attach("args:count3(arg1 > 100, arg1)", pid=target.pid) as other,
    ):
        target.fire()
        printed = count3(target.hits)
        assert values(gathered(one, 2)) == printed
        assert values(gathered(other, 1)) == [[args[1]] for args in printed if args[1] > 100]


def test_what_does_not_fit_is_counted() -> None:
    path = build("default", "loop")
    with start(path, "-w", "-q", "-n", 100_000) as fixture:
        fixture.wait_ready()
        with usdt.attach("loop:hit", pid=fixture.pid, buffer=4096) as events:
            fixture.fire()
            fixture.finish()
            number = sum(1 for _ in events)
            assert events.lost > 0
            assert number + events.lost == 100_000
            assert [item.probe for item in events.losses] == ["loop:hit"]
        assert number + events.lost == 100_000, "the count outlives the session"


# ---------------------------------------------------------------- ends


def test_close_in_another_thread_ends_an_iteration(target: Fixture) -> None:
    events = usdt.attach(_COUNT3, pid=target.pid)
    found: list[usdt.Event] = []
    thread = threading.Thread(target=lambda: found.extend(events))
    thread.start()
    target.fire()
    until(lambda: len(found) == 2, "the events")
    began = time.monotonic()
    events.close()
    thread.join(_LONG)
    assert not thread.is_alive()
    assert time.monotonic() - began < _LONG
    events.close()
    assert events.poll(1) == []
    assert list(events) == []
    target.fire()


def test_close_in_another_thread_ends_a_poll_without_end() -> None:
    events = usdt.attach(f"{build('default', 'args')}:{_COUNT3}")
    thread = threading.Thread(target=events.poll, args=[1000])
    thread.start()
    time.sleep(0.2)
    events.close()
    thread.join(_LONG)
    assert not thread.is_alive()


def test_a_signal_handler_may_close(target: Fixture) -> None:
    events = usdt.attach(_COUNT3, pid=target.pid)
    before = signal.signal(signal.SIGALRM, lambda *_: events.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        began = time.monotonic()
        assert list(events) == []
        assert time.monotonic() - began < _LONG
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    target.fire()
    target.finish()


def test_an_error_in_the_block_leaves_nothing_attached(tmp_path: Path) -> None:
    with start(private(build("default", "sema_shared"), tmp_path), "-w") as fixture:
        fixture.wait_ready()
        with (
            contextlib.suppress(ZeroDivisionError),
            usdt.attach("sema_shared:*", pid=fixture.pid),
        ):
            assert min(count for counts in fixture.state().values() for count in counts) > 0
            1 / 0  # noqa: B018
        assert {count for counts in fixture.state().values() for count in counts} == {0}


def test_a_command_ends_with_its_session() -> None:
    with usdt.attach(
        "args:*", command=[str(build("default", "args")), "-qs", "1000000", "-n", "999"]
    ):
        began = time.monotonic()
    assert time.monotonic() - began < _LONG


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("words", "options", "error", "said"),
    [
        pytest.param(["args:nope3"], {}, usdt.ProbeNotFound, "args:nope3", id="no such probe"),
        pytest.param(["args:coutn3"], {}, usdt.ProbeNotFound, "count3", id="a misspelt probe"),
        pytest.param(["args:count3("], {}, usdt.LanguageError, "column", id="bad items"),
        pytest.param(["args:count3(arg9)"], {}, usdt.LanguageError, "arg9", id="bad argument"),
        pytest.param(["a:b"], {"pid": 4194303}, usdt.TargetError, "4194303", id="no such process"),
        pytest.param(["/nowhere:a:b"], {"pid": None}, usdt.TargetError, "/nowhere", id="no file"),
        pytest.param(["/etc/passwd:a:b"], {"pid": None}, usdt.ElfError, "ELF", id="no program"),
        pytest.param(["a:b"], {"pid": None}, usdt.TargetError, "a:b", id="nobody to trace"),
    ],
)
def test_errors_are_named(
    target: Fixture, words: list[str], options: dict[str, Any], error: type, said: str
) -> None:
    with (
        pytest.raises(error, match=said) as caught,
        usdt.attach(*words, **{"pid": target.pid, "library_timeout": 0.2, **options}) as events,
    ):
        events.poll(5)
    assert isinstance(caught.value, usdt.TracingError)
    assert "\n" not in str(caught.value)
