"""Every command of docs/kernel.md runs, and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_readme import consoles, run

pytestmark = pytest.mark.usefixtures("ringbuf", "vmlinux_btf", "kprobes")

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernel.md"
_EXAMPLES = [one for one in consoles(_PAGE.read_text()) if one[0].startswith("kprobe")]


def told(lines: list[str]) -> list[str]:
    """What of an output does not change from run to run: no times, CPUs, processes, addresses."""
    lines = [re.sub(r"^[\d:.]{15} +\d+ +\d+ ", "", line) for line in lines]
    lines = [re.sub(r"0x[0-9a-f]{16}", "ADDRESS", line) for line in lines]
    return sorted(re.sub(r"\d+ ms", "N ms", line).rstrip() for line in lines if line.strip())


@pytest.mark.parametrize(("command", "shown"), _EXAMPLES, ids=[c[:60] for c, _ in _EXAMPLES])
def test_what_is_shown_is_printed(command: str, shown: list[str]) -> None:
    lines, code = run(command)
    assert code == 0, lines
    assert told(lines) == told(shown)


def test_there_are_examples() -> None:
    assert len(_EXAMPLES) >= 4
