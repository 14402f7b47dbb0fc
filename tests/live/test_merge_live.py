"""Parts of a run, aggregated alone and merged, are the run; what machines print can be merged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tracing_tools import run_usdt

from usdt.engine.aggregate.distribution import Distribution
from usdt.engine.aggregate.output.json import result_line
from usdt.engine.aggregate.results import Part, Result
from usdt.engine.aggregate.spec import Aggregation, Log2
from usdt.engine.aggregate.values import Value
from usdt.engine.output.streams.header import StreamHeader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_PROGRAM = (
    "import gc\nfor n in range(40):\n    x = [[i] for i in range(n)]\n    gc.collect(n % 3)\n"
)
_PROBE = "python:gc__start"


def python(folder: Path) -> str:
    program = folder / "collect.py"
    program.write_text(_PROGRAM)
    return f"/usr/bin/python3.11 {program}"


def aggregated(events: Sequence[dict[str, Any]], path: Path) -> Path:
    """Write the stream of a machine that has seen these events: a histogram of arg0 by pid."""
    aggregation = Aggregation(stats=True, buckets=Log2(), resolution=5)
    lines = [StreamHeader.here("hist", [_PROBE], ["comm"]).line()]
    for pid in {event["pid"] for event in events}:
        values = [event["args"]["arg0"] for event in events if event["pid"] == pid]
        counts = [0] * 66
        spread: dict[int, int] = {}
        of = aggregation.distribution
        assert of is not None
        for value in values:
            counts[Log2().bucket(value)] += 1
            spread[of.bucket(value)] = spread.get(of.bucket(value), 0) + 1
        found = Value(
            *(len(values), sum(values), min(values), max(values)),
            *(tuple(counts), Distribution(of, spread)),
        )
        part = Part("comm", "python3.11", '"python3.11"')
        lines.append(
            result_line(Result(_PROBE, _PROBE, (part,), found), aggregation, {"value": "arg0"})
        )
    path.write_text("".join(lines))
    return path


def merged(*paths: Path, words: Sequence[str] = ("--json",)) -> list[str]:
    done = run_usdt("merge", *paths, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def results(lines: Sequence[str]) -> list[dict[str, Any]]:
    return [found for found in map(json.loads, lines) if "count" in found]


def test_a_recording_in_parts_is_the_recording(tmp_path: Path) -> None:
    recording = tmp_path / "it.usdt"
    done = run_usdt("record", "-o", recording, "-c", python(tmp_path), f"{_PROBE}(arg0)")
    assert done.returncode == 0, done.stderr
    events = [one for one in map(json.loads, merged(recording)) if "pid" in one]
    assert len(events) >= 40
    assert [one["time"] for one in events] == sorted(one["time"] for one in events)
    whole = merged(aggregated(events, tmp_path / "whole"))
    third = len(events) // 3
    parts = [
        aggregated(events[begin:end], tmp_path / str(begin))
        for begin, end in ((0, third), (third, 2 * third), (2 * third, None))
    ]
    assert results(merged(*parts)) == results(whole)
    assert merged(*parts, words=()) == merged(tmp_path / "whole", words=())


@pytest.mark.parametrize(
    "words",
    [
        ("count", _PROBE, "--by", "arg0", "--top", "1"),
        ("hist", f"{_PROBE}(arg0)"),
        ("stats", f"{_PROBE}(arg0)", "--by", "comm"),
        ("latency", _PROBE, "python:gc__done", "--by", "comm"),
        ("count", _PROBE, "--by", "comm", "--ustack"),
    ],
)
def test_what_a_live_command_prints_is_twice_itself(tmp_path: Path, words: Sequence[str]) -> None:
    path = tmp_path / "it.json"
    done = run_usdt(words[0], "--json", "-o", path, "-c", python(tmp_path), *words[1:])
    assert done.returncode == 0, done.stderr
    live = results(path.read_text().splitlines())
    assert live
    assert results(merged(path)) == live
    twice = results(merged(path, path))
    assert [one["count"] for one in twice] == [2 * one["count"] for one in live]
    for one, both in zip(live, twice, strict=True):
        for name in ("min", "avg", "max"):  # the rank of a percentile is another, twice the hits
            assert both.get(name) == one.get(name)
    left_out = [one for one in map(json.loads, path.read_text().splitlines()) if "left_out" in one]
    assert len(left_out) == ("--top" in words)
