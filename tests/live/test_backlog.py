"""The memory that a tracer keeps for hits that nobody has taken yet."""

from __future__ import annotations

from typing import Any

import pytest
from fixtures import build, start
from patience import patient
from tracing_tools import tracing

import usdt
from usdt.engine.compiler.limits import DEFAULT_BACKLOG

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")

_HITS = 40_000
_RECORD = 64  # bytes of a record of loop:hit and its header
_PAGE = 65536  # the largest of any CPU: the least that a ring buffer has


def _reader(events: usdt.Events) -> Any:
    targets: Any = events._targets
    return targets._session._reader


@pytest.mark.parametrize("backlog", [0, 1 << 16, 1 << 18], ids=["one record", "64K", "256K"])
def test_hits_beyond_the_backlog_are_counted_as_lost(backlog: int) -> None:
    with (
        start(build("default", "loop"), "-w", "-q", "-n", _HITS) as program,
        usdt.attach(
            "loop:hit(arg0)", pid=program.wait_ready().pid, buffer=_PAGE, backlog=backlog
        ) as events,
    ):
        program.fire(timeout=patient(100))
        reader = _reader(events)
        assert reader.held < backlog + _RECORD
        found = events.finish()
        lost = events.lost
    assert len(found) + lost == _HITS
    numbers = [event.args["arg0"] for event in found]
    assert numbers == sorted(set(numbers))
    assert 0 < lost < _HITS


def test_the_default_is_enough_for_them() -> None:
    assert DEFAULT_BACKLOG == 64 << 20
    with (
        start(build("default", "loop"), "-w", "-q", "-n", _HITS, "-s", "0") as program,
        usdt.attach("loop:hit(arg0)", pid=program.wait_ready().pid) as events,
    ):
        program.fire(timeout=patient(100))
        assert len(events.finish()) == _HITS
        assert events.lost == 0


def test_the_option_of_trace(tmp_path: Any) -> None:
    output = tmp_path / "events"
    words = ("-o", output, "--buffer", "4K", "--backlog", "4K")
    with (
        start(build("default", "loop"), "-w", "-q", "-n", _HITS) as program,
        tracing("-p", program.wait_ready().pid, *words, "loop:hit") as tool,
    ):
        program.fire(timeout=patient(100))
        program.finish()
        tool.finish(timeout=patient(100))
        delivered, lost = tool.closing
    assert delivered + lost == _HITS
