"""Percentiles of ``stats``, ``hist`` and ``latency``: those of a full trace, within their error."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from aggregating import Outcome, aggregating, beside_a_trace, stopped
from fixtures import Fixture, build, start
from tracing_tools import one_error, run_usdt, until

_PERCENTILES = {"p50": "50", "p90": "90", "p99": "99", "p99.9": "99.9"}


def fired(program: str, *words: object, variant: str = "default") -> Fixture:
    """A program that waits to be fired."""
    return start(build(variant, program), "-w", *words)


def check(result: dict[str, Any], values: list[int], error: float = 1 / 64) -> None:
    """Compare the percentiles of a result with those of its values."""
    assert result["count"] == len(values)
    assert result["error"] == error
    assert "unplaced" not in result
    for name, percent in _PERCENTILES.items():
        rank = math.ceil(Fraction(percent) * len(values) / 100)
        wanted = sorted(values)[rank - 1]
        assert abs(result[name] - wanted) <= error * abs(wanted), name


def values_of(found: Outcome, hits: list[dict[str, Any]], item: str) -> list[list[int]]:
    """The values that the hits of each result's probe have."""
    return [
        [hit["args"][item] for hit in hits if hit["probe"] == result["probe"]]
        for result in found.results
    ]


@pytest.mark.parametrize("command", ["stats", "hist"])
@pytest.mark.parametrize(
    ("variant", "probe", "item"),
    [
        pytest.param("default", "ints:i*", "arg0", id="signed"),
        pytest.param("m32", "ints:i32", "arg0", id="of a 32-bit process"),
        pytest.param("default", "ints:u*", "arg0", id="unsigned"),
    ],
)
def test_percentiles_are_those_of_the_values(
    command: str, variant: str, probe: str, item: str
) -> None:
    words = [f"{probe}({item})"]
    with fired("ints", "-n", 40, variant=variant) as ints:
        found, hits = beside_a_trace(ints.wait_ready(), command, *words, probes=words)
    assert found.results
    for result, values in zip(found.results, values_of(found, hits, item), strict=True):
        check(result, values)


@pytest.mark.parametrize(
    ("command", "more", "error"),
    [("stats", (), 1 / 64), ("hist", (), 1 / 64), ("stats", ("--resolution", 8), 1 / 512)],
)
def test_by_key_of_eight_threads_at_once(
    command: str, more: tuple[object, ...], error: float
) -> None:
    item = "arg1*arg1*77"
    with fired("threads", "-t", 8, "-n", 300) as threads:
        found, hits = beside_a_trace(
            threads.wait_ready(),
            *(command, f"threads:hit({item})", "--by", "arg0", *more),
            probes=[f"threads:hit(arg0, {item})"],
        )
    values: dict[int, list[int]] = {}
    for hit in hits:
        values.setdefault(hit["args"]["arg0"], []).append(hit["args"][item])
    assert len(found.results) == 8
    for result in found.results:
        check(result, values[result["key"]["arg0"]], error)


def test_a_histogram_of_a_resolution_has_its_buckets() -> None:
    with fired("loop", "-n", 1000) as loop:
        found, hits = beside_a_trace(
            loop.wait_ready(),
            *("hist", "loop:hit((int)arg1 * 7)", "--resolution", 2),
            probes=["loop:hit((int)arg1 * 7)"],
        )
    values = [value for hit in hits for value in hit["args"].values()]
    check(found.one, values, 1 / 8)
    assert min(values) < -1000
    for bucket in found.one["buckets"]:
        assert bucket["count"] == sum(bucket["low"] <= v < bucket["high"] for v in values) > 0
    assert sum(bucket["count"] for bucket in found.one["buckets"]) == 1000


@pytest.mark.parametrize("by", [(), ("--by", "comm")], ids=["by probe", "by key"])
def test_an_interval_has_percentiles_of_its_own(by: tuple[str, ...]) -> None:
    with fired("loop", "-n", 60, "-s", 10_000) as loop:
        loop.wait_ready()
        words = ("-p", loop.pid, "loop:hit(arg0 * 100)", "-i", 0.15, *by)
        with aggregating("hist", *words) as tool:
            loop.fire()
            until(
                lambda: sum(r.get("count", 0) for r in tool.records) == 60, "hits of all intervals"
            )
            found = stopped(tool)
    assert len(found.results) >= 3
    following = 0
    for result in found.results:
        values = [100 * n for n in range(following, following + result["count"])]
        check(result, values)
        following += result["count"]


def test_hits_without_space_for_a_bucket_are_counted_and_said() -> None:
    with fired("loop", "-n", 100) as loop:
        loop.wait_ready()
        words = (
            "loop:hit((u64)1 << arg0 % 60)",
            "--by",
            "comm",
            "--max-keys",
            1,
            "--resolution",
            6,
        )
        with aggregating("stats", "-p", loop.pid, *words) as tool:
            loop.fire()
            found = stopped(tool)
    result = found.one
    assert (result["count"], result["max"]) == (100, 1 << 59)
    assert 0 < result["unplaced"] < 100
    assert result["p50"] is None
    said = f"percentiles lack {result['unplaced']} hits: no space for more buckets; a larger"
    assert any(line.startswith(said) for line in found.tool.errors)


def test_percentiles_of_times_lie_in_order() -> None:
    even, odd = "threads:hit(arg1 % 2 == 0)", "threads:hit(arg1 % 2 == 1)"
    with fired("threads", "-t", 3, "-n", 20, "-s", 2000) as threads:
        threads.wait_ready()
        words = ("-p", threads.pid, even, odd, "--unit", "us")
        with (
            aggregating("latency", *words) as latency,
            aggregating("stats", *words[:-2], "--by", "arg0") as stats,
        ):
            threads.fire()
            results = [*stopped(latency).results, *stopped(stats).results]
    assert [result["count"] for result in results] == [30, 10, 10, 10]
    for result in results:
        numbers = [result[name] for name in ("min", *_PERCENTILES, "max")]
        assert numbers == sorted(numbers)
        assert numbers[0] >= 2_000_000  # nanoseconds, whatever the unit of the buckets is
        assert result["p99.9"] == result["max"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hist", "a:b(arg0)", "--resolution", "13"), "13 is not in the range 0<=x<=12"),
        (("count", "a:b", "--resolution", "3"), "No such option '--resolution'"),
    ],
)
def test_a_resolution_that_is_none(words: tuple[str, ...], message: str) -> None:
    assert message in one_error(run_usdt(*words), code=2)
