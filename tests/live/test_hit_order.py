"""Hits of several probes at one place come in the order in which the user gave the probes."""

from __future__ import annotations

import json
import subprocess

import pytest
from aggregating import aggregating, stopped
from fixtures import build, start
from kernelprobes import results
from patience import patient
from tracing_tools import KPROBE, run_usdt

from usdt.bpf import features

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


# ---------------------------------------------------------------- the kernel


def _kernel_order(*probes: str, words: tuple[str, ...] = ()) -> list[int]:
    # The last value of each hit of one process, in the order of the hits.
    done = subprocess.run(
        [KPROBE, "trace", "--json", *words, "-c", "true", *probes],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(100),
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if '"cpu"' in line]
    return [int([*event["args"]][-1]) for event in events]


@pytest.mark.usefixtures("ringbuf")
@pytest.mark.parametrize(
    "probes",
    [
        pytest.param(["tracepoint:sched:sched_process_exit(prio, {})"] * 3, id="events"),
        pytest.param(["tracepoint:sched:sched_process_exit({})"] * 3, id="tracepoints"),
        pytest.param(
            [
                "tracepoint:sched:sched_process_exit(prio, {})",
                "tracepoint:sched:sched_process_exit({})",
                "tracepoint:sched:sched_process_exit(prio, {})",
            ],
            id="events and tracepoints",
        ),
        pytest.param(["rawtp:sched_process_exit({})"] * 3, id="raw tracepoints"),
        pytest.param(["syscall:exit_group({})"] * 3, id="system calls"),
        pytest.param(
            ["syscall:exit_group(error_code, {})", "syscall:exit_*({})", "syscall:exit_group({})"],
            id="a pattern of system calls",
        ),
        pytest.param(
            [
                "tracepoint:syscalls:sys_enter_exit_group(error_code, {})",
                "tracepoint:syscalls:sys_enter_exit_group({})",
                "tracepoint:syscalls:sys_enter_exit_group(error_code, {})",
            ],
            id="tracepoints of system calls",
        ),
    ],
)
def test_probes_of_the_kernel_at_one_place_fire_in_the_order_given(probes: list[str]) -> None:
    given = [probe.format(number) for probe, number in zip(probes, _ITEMS, strict=True)]
    assert _kernel_order(*given) == [*_ITEMS]


@pytest.mark.usefixtures("ringbuf")
def test_returns_of_system_calls_fire_in_the_order_given() -> None:
    probes = [f"syscall:close(fd == 3, return, {number})" for number in _ITEMS]
    found = _kernel_order(*probes)
    assert found
    assert found == [*_ITEMS] * (len(found) // 3)


_HAVE = {
    "fentry": features.have_fentry,
    "kprobe_multi": features.have_kprobe_multi,
    "perf-link": features.have_cookies,
    "perf-event": features.have_kprobes,
    "kprobe_events": features.have_kprobes,
}


@pytest.mark.usefixtures("kprobes")
@pytest.mark.parametrize("place", ["do_exit({})", "do_sys_openat2(return >= 0, {})"])
@pytest.mark.parametrize("method", _HAVE)
def test_functions_of_the_kernel_fire_in_the_order_given(method: str, place: str) -> None:
    if not _HAVE[method]():
        pytest.skip(f"needs {method}, which this kernel lacks")
    probes = [f"kprobe:{place.format(number)}" for number in _ITEMS]
    found = _kernel_order(*probes, words=("--via", method))
    assert found
    assert found == [*_ITEMS] * (len(found) // 3)


@pytest.mark.usefixtures("kprobes")
def test_latency_of_a_kernel_function_is_from_hit_to_hit() -> None:
    sleeps = "for i in 1 2 3; do sleep 0.02; done"
    found, *_ = results(
        *("latency", "-f", "-c", f"sh -c '{sleeps}'", "--key", "cpu * 0"),
        *("kprobe:hrtimer_nanosleep", "kprobe:hrtimer_nanosleep"),
    )
    assert found["count"] == 2
    assert found["min"] >= 20_000_000
