"""Probes of a Python program, traced while it runs."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from providing import VALUES, providing
from skips import requires_root
from tracing_tools import run_usdt, tracing

import usdt

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.provider import FiredProbe

pytestmark = requires_root

ALL = "shop:order(arg0,str(arg1),arg2,arg3,arg4,arg5,arg6,buf(arg7,4),arg8,arg9,arg10,arg11)"
THREADS, COUNT = 4, 25_000


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
    with shop, usdt.attach("forked:it(arg0, pid)", everything=True) as events:
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
        with tracing("--buffer", "64M", "-p", program.pid, "shop:tick") as tool:

            def visit() -> None:
                while not done.is_set():
                    with usdt.attach("shop:tick(arg1)", pid=program.pid) as events:
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
