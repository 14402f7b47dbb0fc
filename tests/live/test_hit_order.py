"""Hits of several probes at one place come in the order in which the user gave the probes."""

from __future__ import annotations

import json

import pytest
from aggregating import aggregating, stopped
from fixtures import build, start
from tracing_tools import run_usdt

_NEEDS = {
    "uprobe_multi": "uprobe_multi",
    "perf-link": "cookies",
    "perf-event": "ringbuf",
    "tracefs": "ringbuf",
}
_ROUNDS = 4
_ITEMS = (3, 1, 2)
_SLEEP = 4_000  # microseconds between two rounds


@pytest.mark.parametrize("method", _NEEDS)
def test_probes_at_one_place_fire_in_the_order_given(
    method: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(_NEEDS[method])
    program = str(build("default", "loop"))
    places = (f"{program}:loop:hit", f"uprobe:{program}:fire")
    probes = [f"{place}({number})" for number in _ITEMS for place in places]
    command = f"{program} -n {_ROUNDS} -s {_SLEEP}"
    done = run_usdt("trace", "--json", "--via", method, "-c", command, *probes)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if '"cpu"' in line]
    for name in ("loop:hit", "uprobe:loop:fire"):
        shown = [int(*event["args"]) for event in events if event["probe"] == name]
        assert shown == [*_ITEMS] * _ROUNDS


@pytest.mark.usefixtures("cookies")
def test_returns_at_one_place_fire_in_the_order_given() -> None:
    program = str(build("default", "loop"))
    probes = [f"uprobe:{program}:fire({number}, return)" for number in _ITEMS]
    done = run_usdt("trace", "--json", "-c", f"{program} -n {_ROUNDS} -s {_SLEEP}", *probes)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if '"cpu"' in line]
    assert [int(next(iter(event["args"]))) for event in events] == [*_ITEMS] * _ROUNDS


@pytest.mark.usefixtures("cookies")
def test_latency_from_a_probe_to_itself_is_from_hit_to_hit() -> None:
    with start(build("default", "loop"), "-w", "-n", 10, "-s", _SLEEP) as loop:
        loop.wait_ready()
        with aggregating("latency", "-p", loop.pid, "loop:hit", "loop:hit") as tool:
            loop.fire()
            found = stopped(tool)
    assert found.one["count"] == 9
    assert found.one["min"] >= _SLEEP * 1000
    assert found.pairs == {"unfinished": 1, "unmatched": 1, "deep": 0}
