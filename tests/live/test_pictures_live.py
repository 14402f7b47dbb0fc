"""Pictures of live commands, of recordings and of JSON streams."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from skips import requires_root

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = requires_root

_PROBE = "uprobe:libc:malloc"


def _usdt(*words: object, code: int = 0) -> str:
    command = [sys.executable, "-m", "usdt", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of counts by stack."""
    path = tmp_path_factory.mktemp("stream") / "ls.json"
    _usdt("count", "-c", "ls /", "--json", "-o", path, "--by", "comm,ustack", _PROBE)
    return path


def test_counts_by_stack_become_all_pictures(tmp_path: Path) -> None:
    page, scope, profile = (tmp_path / name for name in ("a.html", "a.json", "a.pb.gz"))
    words = ("--flame", page, "--speedscope", scope, "--pprof", profile)
    _usdt("count", "-c", "ls /", *words, _PROBE)
    assert '"malloc"' in page.read_text()
    names = [frame["name"] for frame in json.loads(scope.read_text())["shared"]["frames"]]
    assert {"ls", "malloc"} <= {*names}
    assert b"malloc" in gzip.decompress(profile.read_bytes())


def test_spans_weigh_their_duration(tmp_path: Path) -> None:
    scope = tmp_path / "a.json"
    _usdt("spans", "-c", "ls /", "--ustack", "--speedscope", scope, _PROBE)
    hits, duration = json.loads(scope.read_text())["profiles"]
    assert (hits["name"], duration["name"]) == ("hits", "duration")
    assert duration["unit"] == "nanoseconds"
    assert duration["endValue"] > hits["endValue"] > 0


def test_a_recording_is_drawn(tmp_path: Path) -> None:
    recording, drawn = tmp_path / "ls.usdt", tmp_path / "ls.svg"
    _usdt("record", "-c", "ls /", "--ustack", "-n", 20, "-o", recording, _PROBE)
    _usdt("flame", recording, "-o", drawn)
    text = drawn.read_text()
    assert "hits: 20 (100.00%)" in text
    other = tmp_path / "other.svg"
    _usdt("report", recording, "--flame", other, "uprobe:*:malloc")
    assert other.read_text() == text


def test_merged_streams_are_drawn_and_compared(stream: Path, tmp_path: Path) -> None:
    one, twice, change = (tmp_path / name for name in ("1.svg", "2.svg", "change.svg"))
    _usdt("flame", stream, "-o", one)
    _usdt("merge", stream, stream, "--flame", twice)
    assert one.read_text().count("<g data-x") == twice.read_text().count("<g data-x") > 3
    _usdt("flame", stream, stream, "-o", change)
    assert "+0.00% of all" in change.read_text()


def test_what_cannot_be_drawn_is_one_line(stream: Path, tmp_path: Path) -> None:
    before = stream.read_bytes()
    copy = tmp_path / "copy.svg"
    copy.write_bytes(before)
    assert "would overwrite" in _usdt("flame", copy, "-o", copy, code=1)
    assert copy.read_bytes() == before
    empty = tmp_path / "empty.svg"
    bare = tmp_path / "bare.json"
    bare.write_text('{"time": 1, "pid": 1, "probe": "a:b", "comm": "x", "args": {}}\n')
    assert "no stacks" in _usdt("flame", bare, "-o", empty, code=1)
    assert not empty.exists()
    assert "must end in .svg or .html" in _usdt("flame", bare, "-o", tmp_path / "x.png", code=2)
    assert "exclude" in _usdt("count", "-p", 1, "--flame", "x.svg", "--json", "a:b", code=2)
