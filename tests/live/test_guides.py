"""The tutorial and the how-tos: each page's commands, in its order, find what the page shows."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING

import pytest
from house import ROOT

if not (ROOT / "README.md").exists():
    pytest.skip("needs README.md, which virtual machines lack", allow_module_level=True)

import service_processes
from services import Dialogue
from skips import need_program
from test_readme import consoles, needs_python, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf"), needs_python]

_PAGES = (
    "tutorial",
    "slow-sql",
    "gc-pauses",
    "who-calls",
    "leaks",
    "locks",
    "own-probes",
    "flame-graphs",
)
_OURS = re.compile(r"^\| `.*` \| `((?:usdt|kprobe) [^`]*)` \|$", re.MULTILINE)
_COMPARED = _OURS.findall((ROOT / "docs" / "coming-from.md").read_text())


def _page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def _words(lines: list[str]) -> set[str]:
    # Names: not numbers, units, and spans that the beginning or the end of a trace cut.
    told = [line for line in lines if not re.match(r"\d+ (spans?|starts?|ends?) ", line)]
    return {word for line in told for word in re.findall(r"(?<![\w/+])[A-Za-z_]{4,}\b", line)}


@contextlib.contextmanager
def _surroundings(text: str, folder: Path) -> Iterator[dict[str, int]]:
    if "cc -" in text:
        need_program("cc", "gcc")
    for name, block in re.findall(r"```\w+\n((?:\S+ (\S+):.*\n)(?:.*\n)*?)```", text):
        (folder / block).write_text(name)
    with contextlib.ExitStack() as stack:
        if "-a postgresql" in text:
            stack.enter_context(service_processes.contended())
        pids = stack.enter_context(service_processes.java(folder)) if "$JAVA" in text else {}
        if "$KITCHEN" in text:
            kitchen = stack.enter_context(Dialogue(sys.executable, folder / "kitchen.py"))
            kitchen.hear("open")
            pids = {"KITCHEN": kitchen.pid}
        yield pids


@pytest.mark.parametrize("page", _PAGES)
def test_a_page_finds_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _page(page)
    monkeypatch.chdir(tmp_path)
    with _surroundings(text, tmp_path) as pids:
        for name, pid in pids.items():
            monkeypatch.setenv(name, str(pid))
        examples = consoles(text)
        assert examples
        for command, shown in examples:
            lines, code = run(command)
            assert code == 0, (command, lines)
            assert _words(shown) <= _words(lines), (command, lines)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A process to trace."""
    with service_processes.python(tmp_path_factory.mktemp("traced")) as pids:
        yield pids["PYTHON"]


@pytest.mark.parametrize("command", sorted({*_COMPARED}))
def test_what_replaces_another_tools_command_runs(command: str, traced: int) -> None:
    ends = " -d 0.1" if " list " not in command else ""
    lines, code = run(command.replace("PID", str(traced)) + ends)
    assert code == 0, lines
    assert not [line for line in lines if line.startswith(("Error", "not attached"))], lines


def test_every_tool_has_its_commands() -> None:
    assert len(_COMPARED) >= 20
    assert _page("coming-from").count("\n## ") == 4
