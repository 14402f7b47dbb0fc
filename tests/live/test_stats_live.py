"""``usdt stats``: every number is that of a full trace of the same hits."""

from __future__ import annotations

from typing import Any

import pytest
from aggregating import aggregated, aggregating, beside_a_trace, stopped
from fixtures import build, start
from tracing_tools import until

from usdt.engine.aggregate.spec import Aggregation


def numbers(values: list[int]) -> dict[str, Any]:
    """The statistics of some values."""
    return {
        "count": len(values),
        "min": min(values),
        "avg": sum(values) / len(values),
        "max": max(values),
        "sum": sum(values),
    }


def statistics_in(record: dict[str, Any]) -> dict[str, Any]:
    """The statistics of a result."""
    return {name: record[name] for name in ("count", "min", "avg", "max", "sum")}


@pytest.mark.parametrize("item", ["arg0", "arg1", "arg4"])
def test_every_integer_type(item: str) -> None:
    # Sums of 64-bit values at the ends of their range do not fit 64 bits.
    words = [f"ints:*({item})"]
    with start(build("default", "ints"), "-w", "-n", 30) as ints:
        rows, lost, hits = aggregated(ints.wait_ready(), Aggregation(stats=True), words, words)
    values: dict[str, list[int]] = {}
    for hit in hits:
        if isinstance(hit.args[item], int):
            values.setdefault(hit.probe, []).append(hit.args[item])
    assert len(values) >= 20
    assert {
        row.source.probe: (row.value.count, row.value.min, row.value.max, row.value.sum)
        for row in rows
    } == {name: (len(v), min(v), max(v), sum(v)) for name, v in values.items()}
    left_out = len(hits) - sum(map(len, values.values()))
    assert sum(item.unread for item in lost) == left_out


def test_by_key_of_eight_threads_at_once() -> None:
    with start(build("default", "threads"), "-w", "-t", 8, "-n", 500) as threads:
        found, hits = beside_a_trace(
            threads.wait_ready(),
            *("stats", "threads:hit(arg1 * 7 - 1000)", "--by", "arg0 % 2"),
            probes=["threads:hit(arg0, arg1)"],
        )
    values: dict[int, list[int]] = {0: [], 1: []}
    for hit in hits:
        values[hit["args"]["arg0"] % 2].append(hit["args"]["arg1"] * 7 - 1000)
    # arg1 is unsigned: what is below 0 is large there.
    wrapped = {key: [v % (1 << 64) for v in those] for key, those in values.items()}
    assert {r["key"]["arg0%2"]: statistics_in(r) for r in found.results} == {
        key: numbers(those) for key, those in wrapped.items()
    }


@pytest.mark.parametrize("by", [(), ("--by", "comm")], ids=["by probe", "by key"])
def test_an_interval_has_a_least_and_a_greatest_of_its_own(by: tuple[str, ...]) -> None:
    with start(build("default", "loop"), "-w", "-n", 60, "-s", 10_000) as loop:
        loop.wait_ready()
        with aggregating("stats", "-p", loop.pid, "loop:hit(arg0)", "-i", 0.15, *by) as tool:
            loop.fire()
            until(
                lambda: sum(r.get("count", 0) for r in tool.records) == 60, "hits of all intervals"
            )
            found = stopped(tool)
    assert len(found.results) >= 3
    following = 0
    for result in found.results:
        assert result["min"] == following
        following = result["max"] + 1
        assert result["count"] == following - result["min"]
    assert following == 60


def test_without_cookies_each_probe_has_a_program_of_its_own() -> None:
    with start(build("default", "args"), "-w", "-n", 5) as args:
        args.wait_ready()
        words = ("-p", args.pid, "--via", "perf-event", "args:count1(arg0)", "args:count2(arg1)")
        with aggregating("stats", *words) as tool:
            args.fire()
            found = stopped(tool)
    fired: dict[str, list[int]] = {}
    for hit in args.hits:
        if hit["args"]:
            fired.setdefault(hit["probe"], []).append(hit["args"][-1])
    assert {r["probe"]: statistics_in(r) for r in found.results} == {
        name: numbers(fired[name]) for name in ("args:count1", "args:count2")
    }
