"""Merging: parts make the whole, in any order and grouping, on lines of the real formatters."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merging import REALTIME, SHAPES, Hit, again, header, merged, stream, total

from usdt.engine.aggregate.output.json import left_out_line, missed_line, pairs_line, result_line
from usdt.engine.aggregate.pairs import UnpairedCounts
from usdt.engine.aggregate.results import Part, Result, order_by, top_of
from usdt.engine.aggregate.spec import Aggregation, Linear, Log2, LogLinear
from usdt.engine.aggregate.values import Value
from usdt.engine.merge.merge import Merge
from usdt.engine.merge.output import (
    Choice,
    json_lines,
    lines_of,
    loss_lines,
    text_lines,
)
from usdt.engine.runtime.session import Lost

if TYPE_CHECKING:
    import random

HITS = st.lists(
    st.tuples(
        st.sampled_from(["web1", "web2", "web3"]),
        st.integers(0, 3),
        st.integers(-10, 200) | st.integers(-(1 << 63), (1 << 64) - 1),
    ),
    max_size=40,
)


@pytest.mark.parametrize("kind", SHAPES)
@settings(max_examples=15, deadline=None)
@given(hits=HITS, shuffled=st.randoms())
def test_parts_make_the_whole(kind: str, hits: list[Hit], shuffled: random.Random) -> None:
    whole = json_lines(merged(stream(hits, kind, host="one")), Choice())
    hosts = [[hit for hit in hits if hit[0] == host] for host in ("web1", "web2", "web3")]
    parts = [stream(part, kind, host=f"h{number}") for number, part in enumerate(hosts)]
    assert json_lines(merged(*parts), Choice()) == whole
    shuffled.shuffle(parts)
    assert json_lines(merged(*parts), Choice()) == whole
    first, *others = parts
    assert json_lines(merged(again(merged(*others)), first), Choice()) == whole
    assert json_lines(merged(again(merged(*parts))), Choice()) == whole


@pytest.mark.parametrize("kind", SHAPES)
@given(hits=HITS)
@settings(max_examples=20, deadline=None)
def test_the_whole_is_what_its_machine_printed(kind: str, hits: list[Hit]) -> None:
    lines = stream(hits, kind, host="one")
    assert {*json_lines(merged(lines), Choice())} == {*lines[1:]}


@pytest.mark.parametrize("buckets", [Log2(), Linear(-7, 90, 4), LogLinear(0), LogLinear(5)])
@given(value=st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(-100, 100))
def test_the_bucket_of_a_value_has_it_between_its_edges(
    buckets: Log2 | Linear | LogLinear, value: int
) -> None:
    low, high = buckets.edges(buckets.bucket(value))
    assert low is None or low <= value
    assert high is None or value < high


def test_machines_are_kept_apart_on_demand() -> None:
    parts = [stream([("", 1, 5)] * count, "count", host=f"web{count}") for count in (1, 2)]
    merge = merged(*parts, by_host=True)
    assert text_lines(merge, Choice()) == [
        "   COUNT  PROBE  host  arg0\n",
        "       1  p:q    web1  1\n",
        "       2  p:q    web2  1\n",
    ]
    assert text_lines(merged(again(merge), by_host=True), Choice()) == text_lines(merge, Choice())


def test_text_is_that_of_the_live_command() -> None:
    hits = [("", 1, value) for value in (1, 5, 9)]
    lines = text_lines(
        merged(stream(hits, "hist", host="a"), stream(hits, "hist", host="b")), Choice()
    )
    assert lines[0].startswith("p:q  ")
    assert lines[1].startswith("[1]                    2 |@@@@")
    assert lines[-3] == "count 6, min 1, avg 5, max 9\n"


def test_losses_are_added_up_and_said() -> None:
    lost = [missed_line(Lost("p:q", 2, 1)), pairs_line(UnpairedCounts(1, 2, 0))]
    left_out = left_out_line(top_of([], 1)[1], {})
    top = '{"left_out": {"keys": 3, "count": 5, "largest": 2}}\n'
    merge = merged([header("a"), *lost, left_out, top], [header("b"), *lost, top])
    assert loss_lines(merge) == [
        "p:q: 4 hits lost",
        "p:q: skipped 2 hits: a value is unreadable",
        "2 starts without an end",
        "4 ends without a start",
        "the streams left out 6 results with 10 hits (--top): a count may be up to 4 too low",
    ]
    assert loss_lines(merged(again(merge))) == loss_lines(merge)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 50)), max_size=60), st.integers(1, 5))
def test_the_bound_of_top_holds(found: list[tuple[int, int]], top: int) -> None:
    truth: dict[int, int] = {}
    streams = []
    for number, part in enumerate((found[::2], found[1::2])):
        counts: dict[int, int] = {}
        for key, count in part:
            counts[key] = counts.get(key, 0) + count
            truth[key] = truth.get(key, 0) + count
        results = [
            Result("p:q", "p:q", (Part("arg0", str(key), str(key)),), Value(count))
            for key, count in counts.items()
        ]
        shown, left_out = top_of(sorted(results, key=order_by((), (), None)), top)
        lines = [result_line(result, Aggregation(), {}) for result in shown]
        streams.append([header(f"h{number}"), *lines, left_out_line(left_out, {})])
    merge = merged(*streams)
    kept = {
        int(result.key[0].json): result.value.count for g in merge.groups() for result in g.results
    }
    for key, count in truth.items():
        assert kept.get(key, 0) <= count <= kept.get(key, 0) + merge.left_out.largest


# ---------------------------------------------------------------- intervals


def interval(host: str, time: int, count: int) -> list[str]:
    line = {"time": time, "interval": 1.0, "probe": "p:q", "key": {"arg0": 1}, "count": count}
    return [header(host), json.dumps(line) + "\n"]


def test_intervals_of_the_same_time_are_one() -> None:
    early, late = 1000 + 5_000_000_000, 1000 + 5_002_000_000  # read 2 ms apart
    (line,) = json_lines(merged(interval("a", early, 2), interval("b", late, 3)), Choice())
    found = json.loads(line)
    assert (found["time"], found["count"]) == (REALTIME + 5_000_000_000, 5)


def aligned(host: str, ends: dict[int, bool]) -> list[str]:
    """A stream of intervals with a second each: end → whether it is partial."""
    lines = [header(host)]
    for end, partial in ends.items():
        when = {"time": 1000 + end - (700_000_000 if partial else 0), "interval": 1.0}
        about = when | {"end": REALTIME + end} | ({"partial": True} if partial else {})
        lines.append(json.dumps(about | {"probe": "p:q", "count": 1}) + "\n")
    return lines


SECOND = 1_000_000_000


def test_a_partial_interval_belongs_to_its_end() -> None:
    one = aligned("a", {5 * SECOND: True, 6 * SECOND: False, 7 * SECOND: True})
    other = aligned("b", {6 * SECOND: False, 7 * SECOND: False})
    lines = json_lines(merged(one, other), Choice())
    found = [json.loads(line) for line in lines]
    assert [(line["time"] - REALTIME, line["count"], "partial" in line) for line in found] == [
        (5 * SECOND, 1, True),
        (6 * SECOND, 2, False),
        (7 * SECOND, 2, True),
    ]
    text = text_lines(merged(again(merged(one, other))), Choice())
    assert sum("(partial)" in line for line in text) == 2


def test_partial_intervals_can_be_left_out() -> None:
    merge = Merge(whole=True)
    source = merge.source("s")
    for line in aligned("a", {5 * SECOND: True, 6 * SECOND: False}):
        merge.add(line, source)
    assert [group.end for group in merge.groups()] == [REALTIME + 6 * SECOND]
    assert merge.partial == 1


def test_intervals_that_are_not_aligned_are_noted() -> None:
    problems: list[str] = []
    merge = Merge(warn=problems.append)
    source = merge.source("s")
    for line in interval("a", 1000 + 5_400_000_000, 2):
        merge.add(line, source)
    assert problems == ["s:2: intervals do not begin with the epoch's: record them with --align"]


# ---------------------------------------------------------------- stacks


def frame(address: int, symbol: str | None = "f", **more: Any) -> dict[str, Any]:
    return {"address": address, "symbol": symbol, "offset": 4, "module": "m"} | more


def stack_stream(host: str, *frames: dict[str, Any]) -> list[str]:
    line = {"probe": "p:q", "key": {"ustack": [*frames]}, "count": 1}
    return [header(host), json.dumps(line) + "\n"]


def test_stacks_are_one_by_build_id_and_address() -> None:
    known = frame(1, build_id="ab", link_address=16)
    unknown = frame(2, None, build_id="ab", link_address=16)
    for parts in itertools.permutations((stack_stream("a", known), stack_stream("b", unknown))):
        (line,) = json_lines(merged(*parts), Choice())
        found = json.loads(line)
        assert found["count"] == 2
        assert found["key"]["ustack"][0]["symbol"] == "f"
    other = frame(1, build_id="ac", link_address=16)
    assert (
        len(json_lines(merged(stack_stream("a", known), stack_stream("b", other)), Choice())) == 2
    )
    lines = text_lines(merged(stack_stream("a", known)), Choice(folded=True))
    assert lines == ["f 1\n"]


def test_frames_of_kernels_are_one_by_symbol() -> None:
    parts = [
        stack_stream(host, frame(address, "vfs_read", module="[kernel]"))
        for host, address in (("a", 1), ("b", 2))
    ]
    (line,) = json_lines(merged(*parts), Choice())
    assert json.loads(line)["count"] == 2


def test_frames_of_one_kernel_build_are_one_and_those_of_others_are_not() -> None:
    first, same, other = (
        stack_stream(host, frame(address, symbol, module="[kernel]", build_id=build_id))
        for host, address, symbol, build_id in (
            ("a", 1, "vfs_read", "ab"),
            ("b", 2, "vfs_read", "ab"),
            ("c", 3, "vfs_read", "cd"),
        )
    )
    lines = json_lines(merged(first, same, other), Choice())
    assert sorted(json.loads(line)["count"] for line in lines) == [1, 2]
    assert '"build_id": "ab"' in "".join(lines)
    another = stack_stream("b", frame(2, "vfs_write", module="[kernel]", build_id="ab"))
    assert len(json_lines(merged(first, another), Choice())) == 2


# ---------------------------------------------------------------- speed


def test_a_thousand_streams_of_a_hundred_keys() -> None:
    lines = [stream([("", key, 1) for key in range(100)], "count", host="h")[1:]]
    headers = [header(f"h{number}") for number in range(1000)]
    began = time.process_time()
    merge = merged(*([first, *lines[0]] for first in headers))
    text_lines(merge, Choice())
    seconds = time.process_time() - began
    assert total(merge) == 100_000
    assert seconds < 6  # 1 s where nothing else runs
    tracemalloc.start()
    merged(*([first, *lines[0]] for first in headers[:100]), by_host=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20  # a tenth of the machines, all keys apart


def test_histograms_of_many_machines_take_little_memory() -> None:
    hits = [("", key, 1 << value) for key in range(20) for value in range(40)]
    lines = stream(hits, "hist", host="h")[1:]
    tracemalloc.start()
    merge = merged(*([header(f"h{number}"), *lines] for number in range(20)), by_host=True)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    shown = sum(1 for _ in lines_of(merge, Choice(), as_json=False))
    peak = tracemalloc.get_traced_memory()[1] - kept
    tracemalloc.stop()
    assert shown > 400 * 40
    assert kept < 400 * 3000  # bytes of a result with 40 buckets and percentiles
    assert peak < 400 * 1000  # its lines are made one result at a time
