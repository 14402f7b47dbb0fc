"""``usdt latency``: pairs of known sleeps, of recursion, of eight threads, and what is no pair."""

from __future__ import annotations

import os
import signal

import pytest
from aggregating import aggregating, beside_a_trace, in_process, log2_buckets, outcome, stopped
from fixtures import Fixture, build, start
from tracing_tools import one_error, run_usdt, until, usdt

from usdt import Provider
from usdt.engine.aggregate.pairs import UnpairedCounts
from usdt.engine.aggregate.spec import Aggregation, parse_keys
from usdt.engine.language import parse_probe

_SLEEP = 5_000  # microseconds between two rounds
_EVEN, _ODD = "threads:hit(arg1 % 2 == 0)", "threads:hit(arg1 % 2 == 1)"


def program(name: str, *words: object) -> Fixture:
    return start(build("default", name), "-w", *words)


def test_known_sleeps_of_eight_threads() -> None:
    with program("threads", "-t", 8, "-n", 20, "-s", _SLEEP) as threads:
        threads.wait_ready()
        words = (_EVEN, _ODD, "--by", "arg0")
        with aggregating("latency", "-p", threads.pid, *words) as tool:
            threads.fire()
            found = stopped(tool)
    assert {r["key"]["arg0"]: r["count"] for r in found.results} == dict.fromkeys(range(8), 10)
    for result in found.results:
        assert result["min"] >= _SLEEP * 1000
        assert result["max"] >= result["avg"] >= result["min"]
        assert sum(bucket["count"] for bucket in result["buckets"]) == 10
        assert result["buckets"][0]["high"] > _SLEEP * 1000
        assert result["unit"] == "ns"
        assert result["probe"] == "threads:hit"
    assert found.pairs == {"unfinished": 0, "unmatched": 0, "deep": 0}


def test_times_are_those_of_a_trace() -> None:
    # The trace is attached at the same places: its times differ by what a hit costs.
    with program("threads", "-t", 1, "-n", 10, "-s", 50_000) as threads:
        threads.wait_ready()
        found, hits = beside_a_trace(
            threads, "latency", _EVEN, _ODD, "--unit", "ms", probes=["threads:hit(arg1)"]
        )
    times = [later["time"] - first["time"] for first, later in zip(hits[::2], hits[1::2])]  # noqa: B905
    result = found.one
    assert result["count"] == len(times) == 5
    assert abs(result["sum"] - sum(times)) < sum(times) // 2
    assert result["buckets"][0]["low"] >= 32


def test_nested_starts_end_from_the_inside() -> None:
    # count0, count1, count2 begin; count3, count4, count5 end: each end takes the last start.
    with program("args", "-n", 10) as args:
        args.wait_ready()
        words = ("args:count[0-2]", "args:count[3-5]")
        with aggregating("latency", "-p", args.pid, *words) as tool:
            args.fire()
            found = stopped(tool)
    counts = {r["probe"]: r["count"] for r in found.results}
    assert counts == {"args:count3": 10, "args:count4": 10, "args:count5": 10}
    sums = [
        next(r["sum"] for r in found.results if r["probe"] == f"args:count{n}") for n in (3, 4, 5)
    ]
    assert sums == sorted(sums)
    assert sums[0] < sums[2]
    assert not any(found.pairs.values())


def test_what_is_nested_too_deeply_is_counted_and_still_ends() -> None:
    with program("loop", "-n", 40) as loop:
        loop.wait_ready()
        words = ("loop:hit(arg0 < 20)", "loop:hit(arg0 >= 20)")
        with aggregating("latency", "-p", loop.pid, *words) as tool:
            loop.fire()
            loop.fire()
            found = stopped(tool)
    assert found.one["count"] == 2 * 16
    assert found.pairs == {"unfinished": 0, "unmatched": 0, "deep": 2 * 4}
    assert "8 starts nested deeper than 16: not measured" in found.tool.errors


def test_starts_without_an_end_keep_no_pair_from_being_measured() -> None:
    with program("loop", "-n", 40) as loop:
        loop.wait_ready()
        words = ("loop:hit(arg0 < 39)", "loop:hit(arg0 == 39)", "--at-start", "--by", "arg0")
        with aggregating("latency", "-p", loop.pid, *words) as tool:
            loop.fire()
            loop.fire()
            found = stopped(tool)
    assert (found.one["count"], found.one["key"]) == (2, {"arg0": 38})
    assert found.pairs == {"unfinished": 2 * 38, "unmatched": 0, "deep": 0}


def test_an_end_that_never_comes_and_one_that_never_began() -> None:
    with program("args", "-n", 12) as args:
        args.wait_ready()
        never = ("args:count0", "args:count1(arg0 == 1, arg0 == 2)")
        with (
            aggregating("latency", "-p", args.pid, *never) as starts,
            aggregating("latency", "-p", args.pid, *reversed(never)) as ends,
        ):
            args.fire()
            begun, ended = stopped(starts), stopped(ends)
    assert not begun.results
    assert begun.pairs == {"unfinished": 12, "unmatched": 0, "deep": 0}
    assert "12 starts without an end" in begun.tool.errors
    assert not ended.results
    assert ended.pairs == {"unfinished": 0, "unmatched": 12, "deep": 0}
    assert "12 ends without a start" in ended.tool.errors


def test_a_program_that_never_rests_leaves_at_most_its_last_pair_open() -> None:
    # It hits both probes all the time while these are attached and detached, one after the other.
    words = ("latency", "--json", "-n", 100, "args:count0", "args:count1")
    with (
        start(build("default", "args"), "-q", "-n", 1 << 30, "-s", 50) as args,
        usdt(*words, "-p", args.pid) as tool,
    ):
        found = outcome(tool)
    assert found.one["count"] >= 100
    assert found.one["max"] < 1_000_000_000
    assert found.pairs["unmatched"] <= 1
    assert found.pairs["unfinished"] <= 1
    assert found.pairs["deep"] == 0


@pytest.mark.usefixtures("providers")
def test_starts_before_the_end_is_attached_are_ignored() -> None:
    # The library with the end is loaded while the start is traced, and hit.
    requests = [parse_probe("early:begin"), parse_probe("late:done")]
    early, late = Provider("early"), Provider("late")
    begin, done = early.probe("begin"), late.probe("done")
    aggregation = Aggregation(stats=True, pair=parse_keys("tid", "--key"))
    with early, in_process(aggregation, requests, os.getpid()) as (tracer, session):
        for _ in range(20):
            begin.fire()
        with late:
            until(lambda: tracer.poll(0.01) or tracer.attached == 2, "the attached end")
            for _ in range(3):
                begin.fire()
                done.fire()
            assert not [batch for batch in tracer.drain() if batch]
            assert [row.value.count for row in session.read()] == [3]
            assert session.pairs() == UnpairedCounts(0, 0, 0)


def test_a_key_of_the_arguments() -> None:
    # main fires round N after the threads may have: the round is what both have in common.
    with program("threads", "-t", 1, "-n", 50) as threads:
        threads.wait_ready()
        words = ("threads:hit", "threads:hit", "--key", "arg1")
        with aggregating("latency", "-p", threads.pid, *words) as tool:
            threads.fire()
            found = stopped(tool)
    # Whichever of the two programs the kernel runs first at a place: every start has a hit's end,
    # or every end came before its start.
    pairs = sum(r["count"] for r in found.results)
    assert (pairs, found.pairs["unmatched"]) in {(50, 0), (0, 50)}
    assert pairs + found.pairs["unfinished"] == 50


def test_starts_without_room_are_counted() -> None:
    with program("threads", "-t", 1, "-n", 50) as threads:
        threads.wait_ready()
        words = ("threads:hit", "threads:main(arg0 < 0)", "--key", "arg1", "--max-keys", 20)
        with aggregating("latency", "-p", threads.pid, *words) as tool:
            threads.fire()
            found = stopped(tool)
    assert found.lost() == 30
    assert found.pairs["unfinished"] == 20


def test_two_probes_are_needed() -> None:
    done = run_usdt("latency", "-a", "a:b")
    assert done.returncode == 2
    assert "expected a predicate" in one_error(
        run_usdt("latency", "-a", "a:b(arg0)", "a:c"), code=2
    )


@pytest.mark.parametrize(("unit", "size"), [("us", 1000), ("s", 10**9)])
def test_units(unit: str, size: int) -> None:
    with program("threads", "-t", 1, "-n", 2, "-s", 40_000) as threads:
        threads.wait_ready()
        with aggregating("latency", "-p", threads.pid, _EVEN, _ODD, "--unit", unit) as tool:
            threads.fire()
            result = stopped(tool).one
    (bucket,) = result["buckets"]
    assert bucket == log2_buckets([result["sum"] // size])[0]


def test_groups_are_a_table_sorted_as_asked_for() -> None:
    with program("threads", "-t", 3, "-n", 20, "-s", 1000) as threads:
        threads.wait_ready()
        words = ("-p", threads.pid, _EVEN, _ODD, "--by", "arg0", "--sort", "arg0")
        with (
            usdt("latency", *words) as tool,
            usdt("latency", *words, "--hist") as histograms,
            usdt("stats", "--json", *words) as stats,
        ):
            for one in (tool, histograms, stats):
                one.wait_tracing()
            threads.fire()
            for one in (tool, histograms):
                one.process.send_signal(signal.SIGINT)
                one.finish()
            found = stopped(stats)
    head, *lines, note = (line.split() for line in tool.lines)
    numbers = ["COUNT", "P50", "P90", "P99", "P99.9", "AVG", "MAX", "TOTAL"]
    assert head == [*numbers, "PROBE", "arg0"]
    assert note == ["percentiles", "±1.6%"]
    assert [(line[0], line[-1]) for line in lines] == [("10", "0"), ("10", "1"), ("10", "2")]
    assert sum("|@" in line for line in histograms.lines) >= 3
    assert [(one["key"]["arg0"], one["count"]) for one in found.results] == [
        (0, 10),
        (1, 10),
        (2, 10),
    ]
    for result in found.results:
        assert "buckets" not in result
        assert result["start"] == _EVEN
        assert result["max"] >= result["avg"] >= result["min"] >= 1000 * 1000
    assert found.pairs == {"unfinished": 0, "unmatched": 0, "deep": 0}


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (
            ("latency", "a:b", "a:c", "--sort", "size"),
            "--sort size: no such column; expected one",
            1,
        ),
        (("count", "a:b", "--sort", "sum"), "--sort sum: no such column; expected one of count", 1),
        (
            ("stats", "a:b(arg0)", "--key", "tid"),
            "--key, --end-key and --at-start need START END",
            2,
        ),
    ],
)
def test_an_order_or_a_key_that_means_nothing(
    words: tuple[str, ...], message: str, code: int
) -> None:
    assert message in one_error(run_usdt(*words), code=code)
