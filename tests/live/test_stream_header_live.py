"""The header of what the commands write as JSON, and of recordings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tracing_tools import USDT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.root

_PROBE = "uprobe:libc:getppid"
_COMMAND = f"{sys.executable} -I -S -c 'import os; os.getppid(); os.getppid()'"


def _written(*words: object) -> list[dict[str, Any]]:
    # The whole stream; tests of results see it without its header.
    argv = [USDT, *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "probes", "by"),
    [
        pytest.param(["trace"], [_PROBE], None, id="trace"),
        pytest.param(["spans"], [_PROBE], None, id="spans"),
        pytest.param(["count", "--by", "comm, pid"], [_PROBE], ["comm", "pid"], id="count"),
        pytest.param(["hist"], [f"{_PROBE}(return)"], [], id="hist"),
        pytest.param(["stats"], [f"{_PROBE}(return)"], [], id="stats"),
        pytest.param(["heatmap"], [f"{_PROBE}(return)"], [], id="heatmap"),
        pytest.param(["latency"], [_PROBE, f"{_PROBE}(return)"], [], id="latency"),
    ],
)
def test_every_stream_begins_with_its_header(
    words: list[str], probes: list[str], by: list[str] | None
) -> None:
    given = probes[:1] if words == ["latency"] else probes
    header, *rest = _written(*words, "--json", "-c", _COMMAND, *given)
    assert (header["usdt"], header["command"]) == (1, words[0])
    assert header["host"] == os.uname().nodename
    assert header["probes"] == probes
    assert header.get("by") == by
    assert rest
    assert not [one for one in rest if "usdt" in one]


def test_a_stream_in_a_file_begins_with_its_header(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert not _written("count", "--json", "-o", out, "-c", _COMMAND, _PROBE)
    header, result = map(json.loads, out.read_text().splitlines())
    assert header["command"] == "count"
    assert result["count"] >= 2


def test_text_has_no_header() -> None:
    argv = [USDT, "count", "-c", _COMMAND, _PROBE]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert '"usdt"' not in done.stdout


def test_a_report_has_the_header_of_its_recording(tmp_path: Path) -> None:
    place = tmp_path / "recording"
    argv = [USDT, "record", "-o", place, "-c", _COMMAND, _PROBE]
    subprocess.run(argv, capture_output=True, check=True)
    header, *rest = _written("report", place, "--json")
    again, *_ = _written("report", place, "--json")
    assert header == again, "not that of this moment"
    assert (header["command"], header["probes"]) == ("record", [_PROBE])
    assert header["clock"]["monotonic"] < min(one["time"] for one in rest)


def test_aligned_intervals_end_at_multiples_since_1970() -> None:
    words = ("count", "--json", "--align", "-i", "200ms", "-d", "0.5", "-c", "sleep 5")
    _, *rest = _written(*words, "uprobe:libc:*nanosleep")
    ends = [one["end"] for one in rest if "end" in one]
    assert ends
    assert not [end for end in ends if end % 200_000_000]


def test_intervals_that_a_run_has_cut_are_marked() -> None:
    words = ("--align", "-i", "3600", "-d", "0.2", "-c", "sleep 0.01", "uprobe:libc:malloc(arg0)")
    _, *rest = _written("hist", "--json", *words)
    assert [one["partial"] for one in rest if "count" in one] == [True]
    done = subprocess.run([USDT, "heatmap", *words], capture_output=True, text=True, check=True)
    assert any(line.endswith("  (partial)") for line in done.stdout.splitlines())


def test_align_needs_intervals() -> None:
    argv = [USDT, "count", "--align", "-a", _PROBE]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--align is the beginning of intervals: add --interval" in done.stderr
