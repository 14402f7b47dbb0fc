"""Stacks that weigh what happened there, and times grouped by what their start had."""

from __future__ import annotations

import signal
import subprocess

import pytest
from aggregating import aggregating, stopped
from fixtures import Fixture, build, start
from tracing_tools import KPROBE, Tool, one_error, run_usdt, until, usdt

_EVEN, _ODD = "threads:hit(arg1 % 2 == 0)", "threads:hit(arg1 % 2 == 1)"


def fired(program: str, *words: object) -> Fixture:
    """A program that waits to be fired."""
    return start(build("default", program), "-w", *words)


def weights(tool: Tool) -> dict[str, int]:
    """The lines of --folded: stack → weight."""
    return {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in tool.lines}


def end(tool: Tool) -> None:
    """End a command as ^C does."""
    tool.process.send_signal(signal.SIGINT)
    tool.finish()


def test_stacks_weigh_the_sum_of_their_values() -> None:
    with fired("loop", "-n", 100) as loop:
        loop.wait_ready()
        with (
            usdt("stats", "-p", loop.pid, "loop:hit(arg0)", "--folded") as tool,
            usdt("hist", "-p", loop.pid, "loop:hit(arg0)", "--folded") as counts,
        ):
            for one in (tool, counts):
                one.wait_tracing()
            loop.fire()
            for one in (tool, counts):
                end(one)
    assert all(line.startswith("loop;") for line in weights(tool))
    assert sum(weights(tool).values()) == sum(range(100))
    assert sum(weights(counts).values()) == 100


@pytest.mark.parametrize("command", ["latency", "stats"])
def test_stacks_weigh_the_time_until_there(command: str) -> None:
    with fired("threads", "-t", 2, "-n", 10, "-s", 3000) as threads:
        threads.wait_ready()
        words = (command, "-p", threads.pid, _EVEN, _ODD, "--by", "arg0", "--folded")
        with usdt(*words) as tool:
            tool.wait_tracing()
            threads.fire()
            end(tool)
    found = weights(tool)
    assert {line.split(";")[1] for line in found} == {"arg0=0", "arg0=1"}
    for number in (0, 1):
        total = sum(n for line, n in found.items() if f"arg0={number}" in line)
        assert total >= 5 * 3_000_000


@pytest.mark.usefixtures("vmlinux_btf", "ringbuf")
def test_where_a_process_waits() -> None:
    event = "tracepoint:sched:sched_switch"
    words = (f'{event}(prev_comm == "sleep")', f'{event}(next_comm == "sleep")')
    keys = ("--key", "prev_pid", "--end-key", "next_pid", "--by", "kstack", "--at-start")
    with Tool("latency", *words, *keys, "--folded", command=KPROBE) as tool:
        tool.wait_tracing()
        subprocess.run(["sleep", "0.3"], check=True)
        end(tool)
    found = {line: n for line, n in weights(tool).items() if "nanosleep" in line}
    assert all(line.startswith("sleep;") for line in found)
    assert sum(found.values()) >= 295_000_000


def test_times_are_grouped_by_what_the_start_had() -> None:
    with fired("threads", "-t", 2, "-n", 20, "-s", 500) as threads:
        threads.wait_ready()
        words = ("-p", threads.pid, _EVEN, _ODD, "--by", "arg1")
        with (
            aggregating("latency", *words, "--at-start") as at_start,
            aggregating("latency", *words) as at_end,
        ):
            threads.fire()
            starts, ends = stopped(at_start), stopped(at_end)
    assert {r["key"]["arg1"]: r["count"] for r in starts.results} == dict.fromkeys(
        range(0, 20, 2), 2
    )
    assert {r["key"]["arg1"]: r["count"] for r in ends.results} == dict.fromkeys(range(1, 20, 2), 2)
    for result in starts.results:
        assert result["min"] >= 500_000
        assert result["min"] <= result["p50"] <= result["max"]
    assert starts.pairs == {"unfinished": 0, "unmatched": 0, "deep": 0}


def test_groups_of_starts_in_intervals() -> None:
    with fired("threads", "-t", 1, "-n", 40, "-s", 10_000) as threads:
        threads.wait_ready()
        words = ("-p", threads.pid, _EVEN, _ODD, "--by", "arg1 % 4", "--at-start", "-i", 0.1)
        with aggregating("stats", *words) as tool:
            threads.fire()
            until(lambda: sum(r.get("count", 0) for r in tool.records) == 20, "all pairs")
            found = stopped(tool)
    counts = {0: 0, 2: 0}
    for result in found.results:
        counts[result["key"]["arg1%4"]] += result["count"]
    assert counts == {0: 10, 2: 10}
    assert len(found.results) > 2


def test_groups_without_space_are_counted() -> None:
    with fired("threads", "-t", 1, "-n", 20) as threads:
        threads.wait_ready()
        words = (_EVEN, _ODD, "--by", "arg1", "--at-start", "--max-keys", 3)
        with aggregating("latency", "-p", threads.pid, *words) as tool:
            threads.fire()
            found = stopped(tool)
    assert [result["count"] for result in found.results] == [1, 1, 1]
    assert found.lost() == found.pairs["unmatched"] == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("latency", "a:b", "a:c", "--at-start"), "--at-start needs --by"),
        (("stats", "a:b(arg0)", "--by", "comm", "--at-start"), "--at-start need START END"),
    ],
)
def test_a_start_that_is_none(words: tuple[str, ...], message: str) -> None:
    assert message in one_error(run_usdt(*words), code=2)
