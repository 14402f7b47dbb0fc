"""Probes of a Python program, traced while it runs."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import patient
from providing import VALUES, providing
from skips import requires_root
from tracing_tools import run_usdt, tracing, until

import usdt

if TYPE_CHECKING:
    from usdt.provider import FiredProbe

pytestmark = [requires_root, pytest.mark.usefixtures("providers")]

ALL = "shop:order(arg0,str(arg1),arg2,arg3,arg4,arg5,arg6,buf(arg7,4),arg8,arg9,arg10,arg11)"
THREADS = 4
# The million of a long run: USDT_FIRES=1000000. An emulated CPU takes milliseconds for one.
EMULATED = patient(1) > 1
FIRES = int(os.environ.get("USDT_FIRES", "100000")) // (100 if EMULATED else 1)
COUNT = FIRES // THREADS
TICK = "shop:tick(arg0, arg1)"


@pytest.mark.parametrize("written", [False, True], ids=["in a memfd", "in a file"])
def test_every_type_arrives_as_it_was_given(written: bool, tmp_path: Path) -> None:
    path = tmp_path / "shop.so" if written else None
    with providing("values", path=path) as program:
        listed = run_usdt("list", "-p", program.pid, "shop:*").stdout
        assert "shop:order" in listed
        assert (str(path) if written else "/memfd:usdt-shop") in listed
        with tracing("-p", program.pid, ALL, "shop:nothing") as tool:
            program.order()
            order, nothing = tool.wait_events(2)
            assert [*order["args"].values()] == VALUES
            assert (nothing["probe"], nothing["args"]) == ("shop:nothing", {})
            assert program.read() == "1 0"
            tool.stop()
        program.order()
        assert program.read() == "0 0"
    assert path is None or not path.exists()


def test_two_tracers_at_once_see_the_same() -> None:
    with providing("values") as program:
        with tracing("-p", program.pid, ALL) as one, tracing("-p", program.pid, ALL) as other:
            program.order()
            seen = [tool.wait_events(1)[0]["args"] for tool in (one, other)]
            assert program.read() == "1 0"
            one.stop()
            other.stop()
        assert seen[0] == seen[1]
        assert [*seen[0].values()] == VALUES


def test_a_forked_child_has_the_probes() -> None:
    shop = usdt.Provider("forked")
    probe = shop.probe("it", int)
    with shop, usdt.attach("forked:it(arg0, pid)", all_processes=True) as events:
        child = _forked(probe)
        (event,) = events.poll(20)
    assert event.args == {"arg0": 5, "pid": child}


def _forked(probe: FiredProbe) -> int:
    pid = os.fork()
    if not pid:
        try:
            probe.fire(5)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_every_fire_of_four_threads_is_accounted_for_while_tracers_come_and_go() -> None:
    options = ("-X", "dev", "-X", "faulthandler")
    with providing("threads", THREADS, COUNT, options=options) as program:
        done = threading.Event()
        visits = Counter[str]()
        with tracing("--buffer", "64M", "-p", program.pid, TICK) as tool:

            def visit() -> None:
                while not done.is_set():
                    with usdt.attach(
                        "shop:tick(arg1)", pid=program.pid, library_timeout=0
                    ) as events:
                        visits["events"] += len(events.poll(0.2))
                        visits["times"] += 1

            visitor = threading.Thread(target=visit)
            visitor.start()
            program.order()
            try:
                assert program.read() == "done"
            finally:
                done.set()
                visitor.join()
            hits = tool.stop()
            _, lost = tool.closing
        assert visits["times"]
        assert len(hits) + lost == THREADS * COUNT
        if not lost:
            seen = Counter((hit["args"]["arg0"], hit["args"]["arg1"]) for hit in hits)
            assert set(seen.values()) == {1}
        program.order()
        assert program.read() == "0 0"


def test_spans_pair_by_id_and_tell_durations_and_errors() -> None:
    shop = usdt.Provider("spans")
    span = shop.span("request")

    @span
    def inner() -> None:
        raise KeyError("no")

    start = "spans:request__start(arg0, str(arg1))"
    shown = "spans:request__done(arg0, arg1, str(arg2), str(arg3))"
    with shop, usdt.attach(start, shown, pid=os.getpid()) as events:
        with span, pytest.raises(KeyError):
            inner()
        found = events.poll(20)
        while len(found) < 4:
            found += events.poll(20)

    names = [event.probe.removeprefix("spans:request__") for event in found]
    assert names == ["start", "start", "done", "done"]
    outer, nested = (event.args["arg0"] for event in found[:2])
    assert [event.args["arg0"] for event in found[2:]] == [nested, outer]
    assert found[2].args["str(arg3)"] == "KeyError"
    assert isinstance(found[3].args["str(arg3)"], usdt.Unreadable)
    assert 0 < found[2].args["arg1"] <= found[3].args["arg1"] < 60e9
    assert found[3].args["str(arg2)"] == "request"


def test_probes_loaded_again_are_found_again() -> None:
    shop, other = usdt.Provider("again"), usdt.Provider("beside")
    probe, _ = shop.probe("it", int), other.probe("it", int)
    with other, usdt.attach("again:it(arg0)", pid=os.getpid(), library_timeout=None) as events:
        for number in range(3):
            assert not probe.enabled
            with shop:
                until(lambda: events.poll(0.01) or probe.enabled, "the tracer to find the object")
                probe.fire(number)
                (event,) = until(lambda: events.poll(0.1), "the event")
                assert event.args == {"arg0": number}
        probe.fire(3)  # not loaded: nobody sees it
        assert events.poll(0.2) == []


def test_spans_of_asyncio_tasks_interleave_and_pair() -> None:
    shop = usdt.Provider("tasks")
    part = shop.span("part")

    @shop.span("work")
    async def work(seconds: float) -> None:
        with part:
            await asyncio.sleep(seconds)

    async def both() -> None:
        await asyncio.gather(work(0.06), work(0.02))

    words = ("tasks:*__start(arg0)", "tasks:*__done(arg0, arg1)")
    with shop, usdt.attach(*words, pid=os.getpid()) as events:
        asyncio.run(both())
        found = events.finish()
    began = {event.args["arg0"]: event.time for event in found if "start" in event.probe}
    ended = {event.args["arg0"]: event for event in found if "done" in event.probe}
    assert len(began) == len(ended) == 4
    assert began.keys() == ended.keys()
    for number, event in ended.items():
        # The span's own clock, and the tracer's of the two hits around it.
        assert event.args["arg1"] <= event.time - began[number]
    slow, _, quick, _ = sorted(began)
    assert ended[slow].args["arg1"] > 60e6
    assert ended[quick].time < ended[slow].time


def test_fires_while_another_thread_unloads() -> None:
    shop = usdt.Provider("restless")
    probe = shop.probe("it", int, str)
    done = threading.Event()

    def fire() -> None:
        while not done.wait(0.05 if EMULATED else 0.0001):
            for _ in range(20):
                probe.fire(1, "text")

    threads = [threading.Thread(target=fire) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(1 if EMULATED else 3):
            with shop, usdt.attach("restless:it(arg0, str(arg1))", pid=os.getpid()) as events:
                (event, *_) = until(lambda: events.poll(0.1), "an event")
                shop.unload()  # under the tracer, in the middle of everybody's calls
                assert [*event.args.values()] == [1, "text"]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert "restless" not in Path("/proc/self/maps").read_text()


def test_polling_brings_all_that_has_fired() -> None:
    # The first event of a quiet spell is passed on at once, and the next ones with a pause.
    shop = usdt.Provider("polled")
    order = shop.probe("order", int)
    with shop, usdt.attach("polled:order(arg0)", pid=os.getpid()) as events:
        for number in range(0, 40, 2):
            order.fire(number)
            time.sleep(0.002)
            order.fire(number + 1)
            assert [event.args["arg0"] for event in events.poll(5)] == [number, number + 1]
