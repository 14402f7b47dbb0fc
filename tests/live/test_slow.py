"""Every command of docs/slow.md runs, and finds what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import service_processes
from recipe_runs import events_of, surroundings, told
from skips import need_program
from test_readme import consoles, run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf")

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "slow.md").read_text()
_RECIPES = dict(consoles(_PAGE))
_OF_SERVER = [command for command in _RECIPES if "postgresql:" in command]
_OTHERS = [command for command in _RECIPES if command not in _OF_SERVER]


@pytest.fixture(scope="module")
def shop() -> Iterator[None]:
    """A server whose clients wait for one another."""
    with service_processes.contended():
        yield


def _finds_what_is_shown(command: str) -> None:
    lines, code = run(command)
    assert code == 0, lines
    assert told(_RECIPES[command]) <= told(lines), lines
    assert events_of(lines) > 0 or "--open" in command


def _on_ext4(folder: Path) -> bool:
    # Of the mounts that a folder is in, the longest path is the one it is on.
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    around = [(len(path), kind) for _, path, kind, *_ in mounts if folder.is_relative_to(path)]
    return max(around)[1] == "ext4"


@pytest.mark.parametrize("command", _OF_SERVER)
def test_recipes_of_a_server_find_what_is_shown(command: str, shop: None) -> None:
    del shop
    _finds_what_is_shown(command)


@pytest.mark.parametrize("command", _OTHERS, ids=[command[:60] for command in _OTHERS])
def test_recipes_find_what_is_shown(command: str, request: pytest.FixtureRequest) -> None:
    if "'vfs_fsync_range(" in command:
        request.getfixturevalue("kprobes")
    if service_processes.PYTHON in command:
        need_program(service_processes.PYTHON, "python3.11")
    with surroundings(command):
        if "ext4_sync_file" in command and not _on_ext4(Path("/tmp")):
            pytest.skip("needs the file system ext4 at /tmp")
        _finds_what_is_shown(command)


def test_each_program_has_its_recipes() -> None:
    parts = {
        title: len(re.findall(r"^### ", text, re.MULTILINE))
        for title, text in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", _PAGE, re.MULTILINE)
    }
    assert parts == {
        "PostgreSQL": 4,
        "Python": 3,
        "Programs and libc": 2,
        "The kernel": 3,
        "Beside bcc's tools": 0,
    }
    assert all(told(shown) for shown in _RECIPES.values())
