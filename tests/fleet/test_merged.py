"""Merged results: parts add up to the whole, and no machine can spoil the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.engine.merge.event_text import EventText
from usdt.engine.merge.events import is_event
from usdt.fleet.machine import Machine, State
from usdt.fleet.merged import Merged

KEYS = ("a", "b", "c")


def result(values: list[int], key: str) -> dict[str, Any]:
    """What ``hist --linear 0:100:10`` prints of some values."""
    buckets = dict.fromkeys((value // 10 * 10 for value in values), 0)
    for value in values:
        buckets[value // 10 * 10] += 1
    return {
        "probe": "p:n", "value": "arg0", "key": {"comm": key}, "count": len(values),
        "min": min(values), "avg": 0.5, "max": max(values), "sum": sum(values),
        "linear": {"low": 0, "high": 100, "step": 10},
        "buckets": [{"low": low, "high": low + 10, "count": n} for low, n in buckets.items()],
    }  # fmt: skip


def merged(parts: list[tuple[str, dict[str, Any]]], **more: Any) -> Merged:
    found = Merged(**more)
    for host, one in parts:
        assert found.add(host, json.loads(json.dumps(one)))
    return found


def results(found: Merged) -> list[dict[str, Any]]:
    """The results in the stream of a merge."""
    return [one for one in map(json.loads, found.json()) if "count" in one and "probe" in one]


VALUES = st.lists(st.integers(0, 99), min_size=1, max_size=20)


@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=12))
def test_the_sum_of_parts_is_that_of_one_machine(parts: list[tuple[str, list[int]]]) -> None:
    whole: dict[str, list[int]] = {}
    for key, values in parts:
        whole.setdefault(key, []).extend(values)
    found = merged(
        [(f"n{index}", result(values, key)) for index, (key, values) in enumerate(parts)]
    )
    expected = merged([("all", result(values, key)) for key, values in whole.items()])
    assert by_key(found) == by_key(expected)
    for one in results(found):
        values = whole[one["key"]["comm"]]
        assert one["avg"] == sum(values) / len(values)


def by_key(found: Merged) -> dict[str, Any]:
    return {one["key"]["comm"]: one for one in results(found)}


def test_machines_are_kept_apart_whatever_they_call_themselves() -> None:
    spoof = {"probe": "p:n", "key": {"host": "web2"}, "count": 1}
    found = merged([("web1", spoof), ("web2", spoof)], by_host=True)
    assert [one["key"] for one in results(found)] == [{"host": "web1"}, {"host": "web2"}]


def test_losses_and_pairs_are_added() -> None:
    lost = {"lost": 2, "unreadable": 1, "probe": "p:n"}
    pairs = {"unfinished": 1, "unmatched": 2, "deep": 0}
    found = merged([("a", lost), ("b", lost), ("a", pairs), ("b", pairs)])
    assert (found.lost, found.unreadable) == (4, 2)
    assert '{"unfinished": 2, "unmatched": 4, "deep": 0}\n' in found.json()
    assert "2 starts without an end" in found.missing()


def test_intervals_of_updates_are_added_and_a_question_for_intervals_is_not() -> None:
    clock = {"monotonic": 1, "realtime": 1, "error": 0}
    head = {"usdt": 1, "host": "x", "command": "count", "probes": ["p:n"], "clock": clock}
    result = {"probe": "p:n", "interval": 1.0}
    parts = [("a", result | {"count": n, "time": n * 10**9}) for n in (1, 2)]
    parts.insert(0, ("a", head))
    assert [one["count"] for one in results(merged(parts, whole=True))] == [3]
    assert [one["count"] for one in results(merged(parts))] == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"count": "5"}, {"count": -1}, {"count": 1.5}, {"count": 1 << 200}, {"count": None},
        {"key": [1]}, {"buckets": 5}, {"buckets": [{"low": "x", "high": 1, "count": 1}]},
        {"buckets": [{"low": [], "high": 1, "count": 1}]}, {"buckets": [{}]}, {"sum": None},
        {"buckets": [{"low": n, "high": n + 1, "count": 1} for n in range(30_000)]},
    ],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_what_is_no_result_is_refused_and_changes_nothing(change: dict[str, Any]) -> None:
    found = merged([("a", result([1, 2], "x"))])
    before = results(found), [*found.lines()]
    assert not found.add("b", result([1, 2], "x") | change)
    assert (results(found), [*found.lines()]) == before


def test_text_of_a_machine_is_escaped() -> None:
    found = merged([("a", {"probe": "p\x1b[2J", "key": {"k\n": "v\r"}, "count": 1})])
    assert [*found.lines()] == ["   COUNT  PROBE     k\\n\n", "       1  p\\x1b[2J  v\\r\n"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "probe",
                    "count",
                    "key",
                    "time",
                    "pid",
                    "sum",
                    "min",
                    "max",
                    "buckets",
                    "low",
                    "high",
                ]
            )
            | st.sampled_from(["lost", "args", "duration", "unfinished", "comm", "value", "start"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON | st.binary(max_size=20), max_size=8), st.booleans())
def test_nothing_that_a_machine_sends_is_an_error(lines: list[Any], by_host: bool) -> None:
    found = Merged(by_host=by_host)
    events: list[str] = []
    text = EventText(4, realtime=False)

    def take(host: str, one: dict[str, Any]) -> None:
        event = found.event(host, one) if is_event(one) else None
        if event is not None:
            events.append(text.lines(*event))
        found.add(host, one)

    one = Machine("web1", "W", take)
    one.output(b"usdt-fleet W run\n")
    for line in lines:
        one.output(line if isinstance(line, bytes) else json.dumps(line).encode())
        one.output(b"\n")
    one.output(b"usdt-fleet W exit 0\n")
    one.close(0)
    assert one.state is State.ANSWERED
    shown = "".join([*found.lines(), *events])
    assert shown.replace("\n", "").isprintable()
    json.dumps(results(found))
