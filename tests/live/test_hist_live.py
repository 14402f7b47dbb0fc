"""``usdt hist``: every bucket is that of a full trace of the same hits."""

from __future__ import annotations

from typing import Any

import pytest
from aggregating import aggregated, aggregating, beside_a_trace, log2_buckets, stopped
from fixtures import build, start
from tracing_tools import one_error, run_usdt

from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.engine.aggregate.output.json import bucket_list
from usdt.engine.aggregate.spec import Aggregation, Linear, Log2


def linear_buckets(values: list[int], low: int, high: int, step: int) -> list[dict[str, Any]]:
    """The buckets with hits of some values."""
    edges: list[tuple[int | None, int | None]] = [(None, low)]
    edges += [(edge, min(edge + step, high)) for edge in range(low, high, step)]
    edges.append((high, None))
    found = [
        {
            "low": first,
            "high": last,
            "count": sum(
                (first is None or value >= first) and (last is None or value < last)
                for value in values
            ),
        }
        for first, last in edges
    ]
    used = [index for index, bucket in enumerate(found) if bucket["count"]]
    return found[used[0] : used[-1] + 1]


@pytest.mark.parametrize(
    ("probe", "item"),
    [
        pytest.param("ints:i8", "arg0", id="signed bytes"),
        pytest.param("ints:i32", "arg0", id="signed integers"),
        pytest.param("ints:i64", "arg0", id="the least and the greatest of 64 bits"),
        pytest.param("ints:u64", "arg0", id="unsigned beyond the signed ones"),
        pytest.param("ints:u8", "(arg0 - 128) * 3", id="an expression"),
        pytest.param("ints:*", "arg3", id="many probes"),
    ],
)
def test_powers_of_two(probe: str, item: str) -> None:
    words = [f"{probe}({item})"]
    with start(build("default", "ints"), "-w", "-n", 40) as ints:
        rows, _, hits = aggregated(ints.wait_ready(), Aggregation(buckets=Log2()), words, words)
    values: dict[str, list[int]] = {}
    for hit in hits:
        (value,) = hit.args.values()
        if isinstance(value, int):
            values.setdefault(hit.probe, []).append(value)
    assert values or KERNEL_WORD_SIZE == 4  # where compilers pass 64 bits in two operands
    assert {row.source.probe: bucket_list(row.value.buckets, Log2()) for row in rows} == {
        name: log2_buckets(numbers) for name, numbers in values.items()
    }


@pytest.mark.parametrize(
    ("item", "linear"),
    [
        pytest.param("arg0", (0, 100, 10), id="unsigned"),
        pytest.param("(int)arg0 - 50", (-20, 33, 7), id="signed, a last bucket that is narrower"),
        pytest.param("arg0", (150, 160, 1), id="all below"),
        pytest.param("arg0", (-100, -50, 5), id="all above, negative edges, unsigned values"),
        pytest.param("arg0", (-7, 3, 2), id="negative and positive edges, unsigned values"),
        pytest.param("arg0", (0, 1 << 62, 1 << 61), id="large steps"),
        pytest.param("(long)arg0 << 33", (-(1 << 40), 1 << 40, 1 << 36), id="large values"),
    ],
)
def test_equal_steps(item: str, linear: tuple[int, int, int]) -> None:
    probes = [f"loop:hit({item})"]
    buckets = Linear(*linear)
    with start(build("default", "loop"), "-w", "-n", 120) as loop:
        rows, _, hits = aggregated(loop.wait_ready(), Aggregation(buckets=buckets), probes, probes)
    values = [value for hit in hits for value in hit.args.values()]
    assert len(values) == 120
    (row,) = rows
    assert bucket_list(row.value.buckets, buckets) == linear_buckets(values, *linear)


def test_by_key_in_equal_steps() -> None:
    with start(build("default", "threads"), "-w", "-n", 200) as threads:
        found, hits = beside_a_trace(
            threads.wait_ready(),
            *("hist", "threads:hit(arg1)", "--linear", "0:150:25", "--by", "arg0,comm"),
            probes=["threads:hit(arg0, arg1)"],
        )
    values: dict[int, list[int]] = {}
    for hit in hits:
        values.setdefault(hit["args"]["arg0"], []).append(hit["args"]["arg1"])
    assert {r["key"]["arg0"]: r["buckets"] for r in found.results} == {
        key: linear_buckets(numbers, 0, 150, 25) for key, numbers in values.items()
    }
    assert {r["key"]["comm"] for r in found.results} == {"threads"}


def test_intervals_add_up() -> None:
    with start(build("default", "loop"), "-w", "-n", 500) as loop:
        loop.wait_ready()
        with aggregating("hist", "-p", loop.pid, "loop:hit(arg0)", "-i", 0.05) as tool:
            for _ in range(4):
                loop.fire()
            found = stopped(tool)
    counts = [bucket["count"] for r in found.results for bucket in r["buckets"]]
    assert sum(counts) == 2000


def test_a_value_that_cannot_be_read_is_counted_and_said() -> None:
    with start(build("default", "strings"), "-w", "-n", 2) as strings:
        strings.wait_ready()
        words = ("strings:bad(*(int *)arg0)", "strings:literal(*(u8 *)arg0)")
        found, hits = beside_a_trace(strings, "hist", *words, probes=words)
    unread = sum(isinstance(value, dict) for hit in hits for value in hit["args"].values())
    assert unread > 0
    assert found.unreadable() == unread
    assert sum(r["count"] for r in found.results) == len(hits) - unread


def test_a_probe_without_a_value_is_refused() -> None:
    reason = "expected the value to aggregate"
    assert reason in one_error(run_usdt("hist", "-a", "a:b(arg0 > 1)"), code=2)


def test_steps_that_are_none_are_refused() -> None:
    done = run_usdt("hist", "-a", "a:b(arg0)", "--linear", "5:1:1")
    assert (done.returncode, "--linear 5:1:1: " in done.stderr) == (2, True)


def test_intervals_that_are_no_number_are_refused() -> None:
    reason = "'nan' is not a duration; write "
    words = ("-a", "a:b(arg0)", "-i", "nan")
    assert all(reason in run_usdt(name, *words).stderr for name in ("hist", "heatmap"))


def test_a_string_is_no_value() -> None:
    with start(build("default", "strings"), "-w") as strings:
        strings.wait_ready()
        done = run_usdt("hist", "-p", strings.pid, "strings:two(str(arg0))")
    assert "only integers can be aggregated" in one_error(done, code=2)
