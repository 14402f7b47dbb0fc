"""What takes long to read shows how far it is: lines of streams, and blocks of recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recordings import CASES, make, many

from usdt.base.terminal import progress
from usdt.engine.merge.merge import Merge
from usdt.engine.merge.streams import Stream
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.recording.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What was reported."""
    found: list[tuple[str, int, int]] = []
    monkeypatch.setattr(progress, "report", lambda *words: found.append(words))
    return found


def test_lines_of_a_stream(tmp_path: Path, reports: list[tuple[str, int, int]]) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}\n" * 5000)
    with Stream(str(path)) as stream:
        assert sum(1 for _ in stream.lines(Merge().source("a"))) == 5000
    assert {(what, size) for what, _, size in reports} == {(f"reading {path}", 15_000)}
    done = [number for _, number, _ in reports]
    assert done == sorted(done)
    assert len(done) == 5
    assert done[0] > 0 or done[-1] > 0


def test_blocks_of_a_recording(tmp_path: Path, reports: list[tuple[str, int, int]]) -> None:
    path = tmp_path / "it.usdt"
    path.write_bytes(make(CASES, [b"".join(many([n])) for n in (1, 3, 4, 1)]))
    with Reader.open(str(path)) as reader:
        assert sum(len(batch) for batch in reader.replay(JsonFormatter())) == 4
    size = path.stat().st_size
    assert reports[-1] == (f"reading {path}", size, size)
    assert len(reports) > 4
