"""Runs of ``usdt run`` within the tests' process: the fixture ``run``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from skips import skip_or_fail

from usdt.base.errors import NotSupported
from usdt.engine.cli.programs.run import run_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., str]

#: The values of the command's options, but for the program.
VALUES = {
    "words": (),
    "pids": (),
    "command": None,
    "form": "text",
    "quiet": True,
    "output": None,
    "unsafe": False,
    "no_warnings": False,
    "listing": False,
    "verbose": 0,
    "buffering": "line",
    "folders": (),
    "headers": (),
    "dry_run": False,
    "info": False,
    "mode": None,
    "helper_errors": False,
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a program; return what it prints, without the two empty lines of every end."""
    output = tmp_path / "output"

    def run(text: str, *words: str, code: int = 0, whole: bool = False, **values: Any) -> str:
        values = {**VALUES, **values, "text": text, "words": words, "output": str(output)}
        try:
            assert run_program(values) == code
        except NotSupported as err:
            skip_or_fail(err)
        text = output.read_text()
        if whole or values["form"] == "json":
            return text
        # Behind a line they are the last two empty ones. print() may have ended without a line.
        before, end, after = text.rpartition("\n\n\n")
        if end:
            return f"{before}\n{after}"
        text, ends = re.subn(r"\n\n(?=@|\Z)", "", text, count=1)
        assert ends
        return text

    return run
