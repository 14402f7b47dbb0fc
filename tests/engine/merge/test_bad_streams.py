"""Streams that are damaged, hostile or do not belong together: the rest counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merging import REALTIME, header, merged, stream, total

from usdt.base.errors import TracingError
from usdt.engine.merge.merge import Merge
from usdt.engine.merge.output import (
    Choice,
    header_line,
    json_lines,
    text_lines,
)


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


def test_machines_with_the_same_name_are_noted() -> None:
    problems: list[str] = []
    merge = Merge(by_host=True, warn=problems.append)
    merge.add(header("web1", machine_id="m1"), merge.source("a"))
    merge.add(header("web1", machine_id="m1", boot_id="later"), merge.source("b"))
    assert problems == []
    merge.add(header("web1", machine_id="m2", boot_id="other"), merge.source("c"))
    assert problems == ["c:1: another machine than in a has the name web1, too"]


def test_only_probes_that_are_wanted_count() -> None:
    merge, problems = after(
        '{"probe": "x:y", "count": 3}', '{"lost": 4, "probe": "x:y"}', wanted="p:q".__eq__
    )
    assert problems == []
    assert total(merge) == 2
    assert merge.lost == {}


def test_intervals_without_space_take_none() -> None:
    lines = [
        json.dumps({"probe": "p:q", "count": 1, "time": n << 30, "interval": 1.0, "partial": True})
        for n in range(50)
    ]
    merge, _ = after(*lines, max_keys=10)
    assert len(merge.groups()) == 10
    assert merge.partial == 9


def test_a_long_text_does_not_widen_all_lines() -> None:
    lines = [
        json.dumps({"probe": "p:q", "key": {"str(arg0)": text, "arg1": 1}, "count": 2})
        for text in ("x" * 100_000, *map(str, range(100)))
    ]
    shown = text_lines(merged([header("a"), *lines]), Choice())
    assert len("".join(shown)) < 200_000


def test_a_stack_and_a_text_with_one_name() -> None:
    frame = {"symbol": "f", "offset": 1, "module": "m", "build_id": "ab", "link_address": 1}
    lines = [
        json.dumps({"probe": "p:q", "key": {"comm": value}, "count": 2})
        for value in ([frame], "x", [frame, frame])
    ]
    shown = text_lines(merged([header("a"), *lines]), Choice())
    assert [line.split() for line in shown[:3]] == [
        ["COUNT", "PROBE", "comm"],
        ["2", "p:q", "x"],
        ["2", "p:q"],
    ]


def test_a_clock_that_was_set_is_noted() -> None:
    _, problems = after(
        json.dumps({"clock": {"monotonic": 2000, "realtime": REALTIME + 5_000_001_000}})
    )
    assert problems == ["f:3: the clock of a was set by 5.0 s"]


def test_only_the_first_problems_are_shown() -> None:
    _, problems = after(*["x"] * 100)
    assert problems[-1] == "f: 95 more such lines"
    assert len(problems) == 6
    _, problems = after(*["x"] * 6)
    assert problems[-1] == "f: 1 more such line"


def test_keys_without_end_are_lost_and_said() -> None:
    lines = [json.dumps({"probe": "p:q", "key": {"arg0": n}, "count": 2}) for n in range(2, 50)]
    merge, problems = after(*lines, max_keys=10)
    assert total(merge) + merge.lost["", "p:q"][0] == 2 + 96
    assert problems == ["f:12: no space for more than 10 keys: hits are lost"]


def test_the_text_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usdt.engine.merge.merge._MOST_TEXT", 1000)
    lines = [{"probe": "p:q", "key": {"arg0": letter * 400}, "count": 1} for letter in "abcab"]
    merge, problems = after(*map(json.dumps, lines))
    assert problems == ["f:5: no space for more text of keys than 1000: hits are lost"]
    assert total(merge) == 2 + 4
    assert merge.lost["", "p:q"][0] == 1


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
