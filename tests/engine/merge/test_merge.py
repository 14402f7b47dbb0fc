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

from usdt.base.errors import TracingError
from usdt.engine.aggregate.distribution import Distribution
from usdt.engine.aggregate.output.json import left_out_line, missed_line, pairs_line, result_line
from usdt.engine.aggregate.pairs import UnpairedCounts
from usdt.engine.aggregate.results import Part, Result, order_by, top_of
from usdt.engine.aggregate.spec import Aggregation, Items, Linear, Log2, LogLinear
from usdt.engine.aggregate.values import Value
from usdt.engine.merge.merge import Merge
from usdt.engine.merge.output import (
    Choice,
    header_line,
    json_lines,
    lines_of,
    loss_lines,
    text_lines,
)
from usdt.engine.runtime.session import Lost

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

REALTIME = 1_700_000_000_000_000_000
Hit = tuple[str, int, int]  # host, key, value

SHAPES = {
    "count": Aggregation(),
    "stats": Aggregation(stats=True, resolution=5),
    "hist": Aggregation(stats=True, buckets=Log2(), resolution=5),
    "linear": Aggregation(stats=True, buckets=Linear(-5, 100, 10), resolution=3),
    "latency": Aggregation(stats=True, buckets=Log2(), resolution=5, pair=Items(), unit=1000),
    "fine": Aggregation(stats=True, buckets=Log2(), resolution=2),
    "heatmap": Aggregation(buckets=Log2()),
}


def header(host: str, **more: Any) -> str:
    about = {
        "usdt": 1,
        "host": host,
        "boot_id": host,
        "machine_id": None,
        "kernel": "6.18.5",
        "machine": "x86_64",
        "cpus": 2,
        "version": "0.1.0",
        "command": "count",
        "probes": ["p:q"],
        "by": ["arg0"],
        "clock": {"monotonic": 1000, "realtime": REALTIME, "error": 50},
    }
    return json.dumps(about | more) + "\n"


def value_of(values: Sequence[int], aggregation: Aggregation) -> Value:
    """What a machine would have computed of these values."""
    buckets: tuple[int, ...] = ()
    if aggregation.buckets is not None:
        counts = [0] * aggregation.buckets.number
        for value in values:
            counts[aggregation.buckets.bucket(value // aggregation.unit)] += 1
        buckets = tuple(counts)
    spread = None
    if aggregation.distribution is not None:
        of = aggregation.distribution
        found = [of.bucket(value) for value in values]
        spread = Distribution(of, {bucket: found.count(bucket) for bucket in {*found}})
    if not aggregation.stats:
        return Value(len(values), buckets=buckets)
    return Value(len(values), sum(values), min(values), max(values), buckets, spread)


def stream(hits: Iterable[Hit], kind: str, *, host: str) -> list[str]:
    """The stream of one machine that has seen these hits."""
    aggregation = SHAPES[kind]
    about = {"start": "p:s", "unit": "us"} if aggregation.pair is not None else {}
    keys: dict[int, list[int]] = {}
    for _, key, value in hits:
        keys.setdefault(key, []).append(value)
    lines = [header(host)]
    for key, values in keys.items():
        part = Part("arg0", str(key), str(key), number=key)
        result = Result("p:q", "p:q", (part,), value_of(values, aggregation))
        lines.append(result_line(result, aggregation, about, fine=kind == "fine"))
    return lines


def merged(*streams: Iterable[str], by_host: bool = False) -> Merge:
    problems: list[str] = []
    merge = Merge(by_host=by_host, warn=problems.append)
    for number, lines in enumerate(streams):
        source = merge.source(f"s{number}")
        for line in lines:
            merge.add(line, source)
    assert problems == []
    return merge


def again(merge: Merge) -> list[str]:
    """What merge --json prints, to be merged again."""
    return [header_line(merge), *json_lines(merge, Choice())]


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


# ---------------------------------------------------------------- bad input


def after(*lines: str | bytes, **options: Any) -> tuple[Merge, list[str]]:
    """A merge of these lines, between two that are good, and what it said."""
    problems: list[str] = []
    merge = Merge(warn=problems.append, **options)
    source = merge.source("f")
    good = '{"probe": "p:q", "key": {"arg0": 1}, "count": 1}'
    for line in (header("a"), good, *lines, good):
        merge.add(line, source)
    source.close()
    return merge, problems


def total(merge: Merge) -> int:
    return sum(result.value.count for group in merge.groups() for result in group.results)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"probe": "p:q", "cou', "not JSON, or cut: skipped"),
        (b"\x89\xff\x00", "not JSON, but binary data: skipped"),
        ("[" * 100_000, "not JSON, or cut: skipped"),
        ("[1]", "no JSON object: skipped"),
        ('{"probe": "p:q", "count": NaN}', "NaN is no JSON: skipped"),
        ('{"probe": "p:q", "count": -1}', "a number of hits is negative: skipped"),
        ('{"probe": "p:q", "key": {"arg0": 1}, "count": 1.5}', "an integer expected: skipped"),
        ('{"probe": 7, "count": 1}', "probe, request: texts expected: skipped"),
        ('{"probe": "p:q", "key": [1], "count": 1}', "a damaged object (AttributeError): skipped"),
        ('{"usdt": 1, "host": 7}', "'host': str expected, found int: skipped"),
        (
            '{"probe": "p:q", "key": {"ustack": [{"symbol": 7}]}, "count": 1}',
            "a frame of a stack has a name that is no text: skipped",
        ),
    ],
)
def test_a_damaged_line_is_named_and_the_rest_is_kept(line: str | bytes, said: str) -> None:
    merge, problems = after(line)
    assert [one for one in problems if "kept apart" not in one] == [f"f:3: {said}"]
    assert total(merge) == 2
    with pytest.raises(TracingError, match=r"^f:3: "):
        after(line, strict=True)


def test_a_stream_of_another_version_is_skipped() -> None:
    merge, problems = after('{"usdt": 2}')
    assert total(merge) == 1
    assert problems == [
        "f:3: a stream of version 2; this program reads version 1; its lines are skipped"
    ]


def test_other_buckets_are_kept_apart() -> None:
    lines = [stream([("", 1, 5)], kind, host=kind) for kind in ("hist", "linear")]
    problems: list[str] = []
    merge = Merge(warn=problems.append)
    for number, part in enumerate(lines):
        source = merge.source(f"s{number}")
        for line in part:
            merge.add(line, source)
    assert problems == ["s1:2: other buckets than in the first stream: kept apart"]
    assert [group.results[0].value.count for group in merge.groups()] == [1, 1]


@pytest.mark.parametrize("second", ["b", "a"])
def test_the_same_stream_twice_is_noted(second: str) -> None:
    _, problems = after()
    assert problems == []
    merge = Merge(warn=problems.append)
    for name in ("a", second):
        merge.add(header("web1"), merge.source(name))
    assert problems == [f"{second}:1: the same stream as a: its results are counted twice"]


def test_other_probes_are_noted() -> None:
    problems: list[str] = []
    merge = Merge(warn=problems.append)
    merge.add(header("web1"), merge.source("a"))
    merge.add(header("web2", probes=["x:y"]), merge.source("b"))
    assert problems == ["b:1: another command, or other probes, than in a"]


def test_a_clock_that_was_set_is_noted() -> None:
    _, problems = after(
        json.dumps({"clock": {"monotonic": 2000, "realtime": REALTIME + 5_000_001_000}})
    )
    assert problems == ["f:3: the clock of a was set by 5.0 s"]


def test_only_the_first_problems_are_shown() -> None:
    _, problems = after(*["x"] * 100)
    assert problems[-1] == "f: 95 more such lines"
    assert len(problems) == 6


def test_keys_without_end_are_lost_and_said() -> None:
    lines = [json.dumps({"probe": "p:q", "key": {"arg0": n}, "count": 2}) for n in range(2, 50)]
    merge, problems = after(*lines, max_keys=10)
    assert total(merge) + merge.lost["", "p:q"][0] == 2 + 96
    assert problems == ["f:12: no space for more than 10 keys: hits are lost"]


def test_hostile_text_is_escaped() -> None:
    key = {"str(arg0)": "\x1b[2J", "\x1b]0;x\x07": "y"}
    line = json.dumps({"probe": "\x1b[31m", "key": key, "count": 1})
    merge = merged([header("we\x1bb"), line], by_host=True)
    assert "\x1b" not in "".join(text_lines(merge, Choice()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_NAMES = """
    usdt probe count key names sum min max buckets linear error distribution unplaced resolution
    start unit value time interval lost unfinished left_out clock host request pid hosts
"""
MEMBERS = st.sampled_from(_NAMES.split())


@given(st.lists(st.dictionaries(MEMBERS, JSON), max_size=6))
@settings(max_examples=30, deadline=None)
def test_any_objects_are_survived(objects: list[dict[str, Any]]) -> None:
    merge = Merge()
    source = merge.source("s")
    for found in objects:
        merge.add_object(found, source)
    text_lines(merge, Choice())
    json_lines(merge, Choice())
    header_line(merge)


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


def test_the_text_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usdt.engine.merge.merge._MOST_TEXT", 1000)
    lines = [{"probe": "p:q", "key": {"arg0": letter * 400}, "count": 1} for letter in "abcab"]
    merge, problems = after(*map(json.dumps, lines))
    assert problems == ["f:5: no space for more text of keys than 1000: hits are lost"]
    assert total(merge) == 2 + 4
    assert merge.lost["", "p:q"][0] == 1
