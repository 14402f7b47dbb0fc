"""``duration`` in every command: the time of a call, as the program measured it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from span_programs import measured, span_program
from tracing_tools import one_error, run_usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

_MORE = 50_000  # nanoseconds that probes may add; machines are busy
_PREEMPTED = 20_000_000  # nanoseconds for which another process may have the CPU


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return span_program(tmp_path_factory.mktemp("spans"))


def close(duration: int, own: int) -> bool:
    return own <= duration <= own * 1.5 + _PREEMPTED


def test_a_call_has_a_duration_and_values_of_both_ends(program: Path) -> None:
    probe = f"uprobe:{program}:work(str(arg0), arg1, return, duration, duration / 1000)"
    done = run_usdt("trace", "--json", "-c", f"{program} work 3 2000000", probe)
    own, events = measured(done)
    assert [event["args"]["arg1"] for event in events] == [1, 2, 3]
    for event in events:
        args = event["args"]
        assert args["str(arg0)"] == f"name {args['arg1']}"
        assert args["return"] == -args["arg1"]
        assert close(args["duration"], own[args["arg1"]])
        assert args["duration/1000"] == args["duration"] // 1000


def test_duration_alone_makes_the_return_the_hit(program: Path) -> None:
    probe = f"uprobe:{program}:work(arg1, duration >= 4ms)"
    done = run_usdt("trace", "--json", "-c", f"{program} work 3 2000000", probe)
    own, events = measured(done)
    assert {event["event"] for event in events} == {"return"}
    found = {event["args"]["arg1"] for event in events}
    assert {number for number, ns in own.items() if ns >= 4_000_000} <= found
    assert found <= {number for number, ns in own.items() if ns >= 4_000_000 - _MORE * 20}


def test_recursive_calls_have_durations_of_their_own(program: Path) -> None:
    probe = f"uprobe:{program}:nest(arg0, duration)"
    done = run_usdt("trace", "--json", "-c", f"{program} nest 3 1000000", probe)
    own, events = measured(done)
    assert [event["args"]["arg0"] for event in events] == [0, 1, 2, 3]
    assert all(close(e["args"]["duration"], own[e["args"]["arg0"]]) for e in events)


@pytest.mark.parametrize(
    ("command", "items"),
    [("hist", "duration / 1ms"), ("stats", "duration"), ("count", "duration >= 4ms")],
)
def test_aggregates_of_durations(program: Path, command: str, items: str) -> None:
    words = (f"uprobe:{program}:work({items})", "--by", "duration >> 60, arg1")
    done = run_usdt(command, "--json", "-c", f"{program} work 3 2000000", *words)
    _, results = measured(done)
    counts = {result["key"]["arg1"]: result["count"] for result in results}
    counts.pop(1) if command != "count" else counts.pop(1, None)  # it may sleep longer
    assert counts == {2: 1, 3: 1}
    if command == "stats":
        assert all(result["min"] >= result["key"]["arg1"] * 2_000_000 for result in results)


def test_system_calls_have_a_duration(program: Path) -> None:
    probe = "syscall:clock_nanosleep(args, return, duration >= 1ms, duration)"
    done = run_usdt("trace", "--json", "-c", f"{program} work 3 2000000", probe)
    own, events = measured(done)
    assert len(events) == 3
    for number, event in enumerate(events, 1):
        assert event["args"]["return"] == 0
        assert 2_000_000 * number <= event["args"]["duration"] <= own[number] + _MORE
    words = ("-c", f"{program} work 3 2000000", "syscall:clock_nanosleep(duration > 1s)")
    assert "0 events, 0 lost" in run_usdt("trace", *words).stderr


def test_recordings_keep_durations(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "calls.rec"
    probe = f"uprobe:{program}:work(arg1, arg1 > 1, duration > 3ms, duration)"
    recorded = run_usdt("record", "-o", file, "-c", f"{program} work 2 2000000", probe)
    assert "1 event, 0 lost" in recorded.stderr
    done = run_usdt("report", "--json", file)
    (event,) = map(json.loads, done.stdout.splitlines())
    assert event["args"]["arg1"] == 2
    assert event["args"]["duration"] > 4_000_000


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        pytest.param("span:begin(duration > 1ms)", "has no end", id="a USDT probe"),
        pytest.param("tracepoint:sched:sched_switch(duration > 1ms)", "has no end", id="an event"),
        pytest.param("uprobe:{}:work+4(duration)", "inside a function", id="an instruction"),
        pytest.param("uprobe:{}:work(duration > 10x)", "expected a number", id="a unit"),
        pytest.param("uprobe:{}:work(duration > 1.5)", "a duration has a unit", id="no unit"),
    ],
)
def test_duration_needs_an_end_and_units(program: Path, probe: str, reason: str) -> None:
    done = run_usdt("trace", "-c", program, probe.replace("{}", str(program)))
    assert reason in one_error(done, code=2)


@pytest.mark.parametrize("option", ["1x", "nan", "", "-1ms", "0s"])
def test_options_that_are_no_durations(program: Path, option: str) -> None:
    assert run_usdt("trace", "-c", program, "a:b", "-d", option).returncode == 2


def test_an_option_may_be_a_duration() -> None:
    done = run_usdt("count", "-a", "syscall:close", "-d", "20ms", "-i", "10ms")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1].endswith((" event, 0 lost", " events, 0 lost"))
