"""What a report page tells of events: rates, durations, the longest, a sample; all bounded."""

from __future__ import annotations

from typing import Any

import pytest

from usdt.engine.pages import summary as summary_module
from usdt.engine.pages import timeline as timeline_module
from usdt.engine.pages.summary import Summary
from usdt.engine.pages.texts import Texts
from usdt.engine.pages.timebins import LANES, TimeBins

_SECOND = 1_000_000_000
_DAY = 1_764_000_000 * _SECOND


def event(time: int, probe: str = "app:hit", **more: Any) -> tuple[int, str, dict[str, Any]]:
    found = {"time": time, "pid": 10, "tid": 11, "cpu": 0, "comm": "app", "probe": probe}
    return _DAY + time, "web1", found | {"args": {}} | more


def summed(*events: tuple[int, str, dict[str, Any]]) -> Summary:
    summary = Summary()
    summary.add(events)
    summary.finish()
    return summary


# ---------------------------------------------------------------- bins


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "the last first"])
def test_bins_become_wider_and_keep_every_count(order: int) -> None:
    bins = TimeBins(100)
    for time in range(0, 3600 * _SECOND, _SECOND)[::order]:
        bins.add(time, time // _SECOND % 2)
    assert bins.bins <= 100
    assert bins.width >= 36 * _SECOND
    assert sum(count for *_, count in bins.rows()) == 3600
    assert {lane for _, lane, _ in bins.rows()} == {0, 1}
    assert [row[0] for row in bins.rows()] == sorted(row[0] for row in bins.rows())


def test_bins_become_wider_if_there_are_too_many_cells() -> None:
    bins = TimeBins(1000, 500)
    for time in range(900):
        bins.add(time * 1_000_000, time % 7)
    assert len(bins.cells) <= 500
    assert sum(bins.cells.values()) == 900


def test_lanes_alone_do_not_widen_bins_for_ever() -> None:
    bins = TimeBins(10, 5)
    for lane in range(100):
        bins.add(7, lane)
    assert len(bins.cells) == 100
    assert max(cell % LANES for cell in bins.cells) == 99


# ---------------------------------------------------------------- rates


def test_rates_of_each_probe() -> None:
    events = [event(n * _SECOND // 10, "app:one" if n % 4 else "app:two") for n in range(40)]
    rates = summed(*events).rates()
    assert rates["names"] == ["app:one", "app:two"]
    assert [sum(row) for row in rates["rows"]] == [30, 10]
    assert rates["start"] <= _DAY / 1e6 < rates["start"] + rates["width"]


def test_many_probes_are_shown_together_and_counted() -> None:
    summary = summed(*(event(n, f"app:p{n}") for n in range(3000)))
    rates = summary.rates()
    assert len(rates["names"]) == 21
    assert sum(map(sum, rates["rows"])) == 3000
    probes = summary.probes({"app:never": 7})
    assert len(probes) == 1002  # 1000, the others, and the one that lost all its hits
    assert sum(probe["hits"] for probe in probes) == 3000
    assert [probe["name"] for probe in probes if probe["lost"] == 7] == ["app:never"]


@pytest.mark.parametrize(
    "change",
    [{"pid": "10"}, {"pid": []}, {"tid": None}],
    ids=["a text as process", "a list as process", "a null as thread"],
)
def test_events_of_no_thread_are_counted_and_left_out(change: dict[str, Any]) -> None:
    summary = summed(event(5), event(6, **change))
    assert (summary.events, summary.bad) == (1, 1)


@pytest.mark.parametrize("time", [-_DAY - 1, 1 << 70], ids=["before 1970", "after the end"])
def test_times_that_are_none_are_left_out(time: int) -> None:
    summary = summed(event(5), event(time))
    assert (summary.events, summary.bad) == (1, 1)


# ---------------------------------------------------------------- durations


def test_spans_by_the_names_of_their_probes() -> None:
    summary = summed(
        event(100, "app:query__start", args={"arg0": 5}),
        event(150, "app:query__start", tid=12),
        event(300, "app:query__done", args={"arg0": 0}),
        event(350, "app:query__done", tid=99),
        event(400, "app:query__start"),
    )
    found = summary.latencies.to_json()["names"]
    assert [(one["name"], one["sum"]) for one in found] == [("app:query", 200)]
    assert (summary.unbegun, summary.unfinished) == (1, 2)
    (slow,) = summary.timeline.slowest(_DAY, Texts())
    assert (slow["duration"], slow["time"], slow["tid"]) == (200, 0.0001, 11)
    assert slow["text"] == "arg0=5  arg0=0"


def test_starts_without_any_end_are_hits() -> None:
    summary = summed(event(1, "app:query__start"), event(2, "app:query__start"))
    assert (summary.unfinished, summary.latencies.spans, summary.timeline.hits) == (0, 0, 2)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        pytest.param({"end_probe": "app:q__done"}, "app:q", id="a pair of one name"),
        pytest.param({"end_probe": "app:other"}, "app:q__start → app:other", id="another pair"),
        pytest.param({"end_probe": "app:q__start"}, "app:q__start", id="a call"),
        pytest.param({"end_probe": 5}, "app:q__start", id="a number as probe"),
    ],
)
def test_spans_that_are_events(more: dict[str, Any], name: str) -> None:
    summary = summed(event(7, "app:q__start", duration=1500, end_args={"return": 3}, **more))
    (found,) = summary.latencies.to_json()["names"]
    assert (found["name"], found["numbers"][:4]) == (name, [1, 1500, 1500.0, 1500])
    assert summary.timeline.slowest(_DAY, Texts())[0]["text"] == "return=3"


def test_a_return_with_its_duration_is_a_span() -> None:
    summary = summed(event(2000, "uprobe:x:f", event="return", args={"duration": 500}))
    assert summary.timeline.slowest(_DAY, Texts())[0]["time"] == 0.0015


def test_an_open_span_has_no_percentile() -> None:
    summary = summed(event(7, age=900))
    assert (summary.latencies.spans, summary.timeline.spans) == (0, 1)
    assert summary.timeline.slowest(_DAY, Texts())[0]["open"]


@pytest.mark.parametrize("duration", [-1, 1 << 70, "5", True], ids=str)
def test_durations_that_are_none(duration: Any) -> None:
    summary = summed(event(7, duration=duration))
    assert (summary.latencies.spans, summary.bad) == (0, 1)


def test_percentiles_and_the_cells_of_a_heatmap() -> None:
    summary = summed(*(event(n * 1_000_000, duration=1000 * n) for n in range(1, 1001)))
    found = summary.latencies.to_json()
    (one,) = found["names"]
    numbers = dict(zip(found["columns"], one["numbers"], strict=True))
    assert (numbers["count"], numbers["min"], numbers["max"]) == (1000, 1000, 1_000_000)
    assert numbers["p50"] == pytest.approx(500_000, rel=0.02)
    assert numbers["p99"] == pytest.approx(990_000, rel=0.02)
    assert sum(one["cells"][2::3]) == 1000
    assert max(one["cells"][0::3]) < found["bins"]
    assert max(one["cells"][1::3]) == len(one["edges"]) - 2
    assert one["edges"][0] <= 1000
    assert one["edges"][-1] > 1_000_000


# ---------------------------------------------------------------- bounds


def test_the_longest_spans_are_kept_and_some_of_each_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline_module, "_LONGEST", 50)
    monkeypatch.setattr(timeline_module, "_OF_THREAD", 3)
    events = [event(n * 100, duration=n, tid=n % 5) for n in range(1000)]
    events += [event(n, duration=1, tid=77) for n in range(9)]
    found = summed(*events).timeline.to_json(_DAY, Texts())
    lengths = sorted(span[3] for span in found["spans"])
    assert lengths == [1, 1, 1, *range(950, 1000)]
    assert found["all"] == {"spans": 1009, "hits": 0}
    assert len(found["threads"]) == 6


def test_hits_are_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_module, "_HITS", 64)
    hits = summed(*(event(n * 1_000_000) for n in range(1000))).timeline.to_json(_DAY, Texts())[
        "hits"
    ]
    assert 30 <= len(hits) <= 64
    assert len({hits[n + 1][1] - hits[n][1] for n in range(len(hits) - 1)}) == 1


def test_spans_within_spans_are_below_them() -> None:
    events = [event(0, "a", duration=100), event(10, "b", duration=50), event(70, "c", duration=9)]
    spans = summed(*events).timeline.to_json(_DAY, Texts())["spans"]
    assert [(depth, duration) for _, depth, _, duration, *_ in spans] == [(0, 100), (1, 50), (1, 9)]


def test_memory_is_bounded_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_module, "_OPEN", 100)
    summary = Summary()
    for n in range(5000):
        start = event(n << 30, f"p{n}:q__start", tid=n)
        summary.add([start, event(n << 30, f"p{n}:span", tid=n, duration=n << 20)])
    summary.finish()
    assert len(summary.latencies.to_json()["names"]) == 51
    assert len(summary.timeline.to_json(_DAY, Texts())["threads"]) == 300
    assert summary.events == 10_000
