"""The commands of docs/python.md find what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from skips import need_program, requires_root
from tracing_tools import run_usdt

pytestmark = requires_root

_PAGE = (Path(__file__).resolve().parents[2] / "docs/python.md").read_text()
_PROGRAM = _PAGE.partition("```python\n")[2].partition("```")[0]
_RUNS = re.findall(r"^    \$ usdt (.*)\n((?:    .*\n)+)", _PAGE, re.MULTILINE)


@pytest.mark.parametrize(("command", "shown"), _RUNS, ids=[run[0][-40:] for run in _RUNS])
def test_a_command_finds_what_the_page_shows(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_program("/usr/bin/python3.11", "python3.11")
    (tmp_path / "shop.py").write_text(_PROGRAM)
    monkeypatch.chdir(tmp_path)
    done = run_usdt(*shlex.split(command))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.replace(str(tmp_path), "/srv").splitlines()
    _, result, frame, *_ = shown.splitlines()
    assert lines[2].strip() == frame.strip()
    probe = result.split()[-1]
    assert lines[1].split()[-1] == probe
    if "write" in command:
        assert lines[1].split() == ["3000", probe]


def test_the_page_has_three_runs() -> None:
    assert len(_RUNS) == 3
