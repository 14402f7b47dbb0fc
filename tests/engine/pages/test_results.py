"""What a report page tells of results: tables, histograms, rates and heatmaps over time."""

from __future__ import annotations

import json
from typing import Any

from usdt.engine.merge.merge import Merge
from usdt.engine.pages.results import results_json
from usdt.engine.pages.texts import Texts

_SECOND = 1_000_000_000
_DAY = 1_764_000_000 * _SECOND


def shown(*results: dict[str, Any]) -> list[dict[str, Any]]:
    clock = {"monotonic": 1, "realtime": _DAY + 1, "error": 1}
    header = {"usdt": 1, "host": "web1", "command": "count", "probes": ["p:q"], "clock": clock}
    merge = Merge()
    source = merge.source("web1.json")
    for line in (header, *results):
        merge.add(json.dumps(line), source)
    assert not source.problems
    found, more = results_json(merge.groups(), Texts())
    assert not more
    return found


def test_counts_by_key_the_largest_first() -> None:
    counts = [
        {"probe": "p:q", "key": {"comm": name}, "count": number}
        for name, number in (("a", 3), ("b", 5), ("\u202ec", 1))
    ]
    (found,) = shown(*counts)
    assert (found["keys"], [column["name"] for column in found["columns"]]) == (["comm"], ["count"])
    assert [(row["keys"], row["numbers"]) for row in found["rows"]] == [
        (["b"], [5]),
        (["a"], [3]),
        (["\\u202ec"], [1]),
    ]


def test_of_many_results_the_largest_are_shown() -> None:
    (found,) = shown(*({"probe": "p:q", "key": {"pid": n}, "count": n} for n in range(1, 1001)))
    assert (len(found["rows"]), found["all"]) == (200, 1000)
    assert found["rows"][0]["numbers"] == [1000]


def test_a_stack_is_its_frames() -> None:
    frames = [{"address": 1, "symbol": f"f{n}", "offset": n, "module": "app"} for n in range(60)]
    (found,) = shown({"probe": "p:q", "key": {"ustack": frames}, "count": 2})
    lines = found["rows"][0]["keys"][0].split("\n")
    assert (lines[0], lines[-1], len(lines)) == ("f0+0x0 [app]", "… 20 more", 41)


def test_histograms() -> None:
    buckets = [{"low": 4, "high": 8, "count": 2}, {"low": 8, "high": 16, "count": 1}]
    numbers = {"count": 3, "min": 5, "avg": 7.0, "max": 9, "sum": 21, "buckets": buckets}
    (found,) = shown({"probe": "p:q", "value": "arg0", **numbers})
    assert found["what"] == "arg0"
    assert found["histograms"] == [
        {"title": "p:q", "labels": ["[4, 8)", "[8, 16)"], "counts": [2, 1]}
    ]


def test_intervals_are_rates_and_their_sum() -> None:
    intervals = [
        {"time": n * _SECOND, "interval": 1.0, "probe": "p:q", "count": n + 1} for n in range(1, 4)
    ]
    (found,) = shown(*intervals)
    assert [row["numbers"] for row in found["rows"]] == [[9]]
    assert found["rates"]["width"] == 1000
    assert found["rates"]["names"] == ["p:q"]
    assert found["rates"]["rows"] == [[2, 3, 4]]
    assert found["rates"]["start"] == _DAY / 1e6


def test_a_heatmap_has_a_cell_for_each_bucket_of_an_interval() -> None:
    rows = [
        {
            "time": n * _SECOND,
            "interval": 1.0,
            "probe": "p:q",
            "value": "arg0",
            "count": n,
            "buckets": [{"low": 1 << n, "high": 2 << n, "count": n}],
        }
        for n in range(1, 4)
    ]
    (found,) = shown(*rows)
    assert found["heatmap"]["labels"] == ["[2, 4)", "[4, 8)", "[8, 16)"]
    assert found["heatmap"]["cells"] == [0, 0, 1, 1, 1, 2, 2, 2, 3]
