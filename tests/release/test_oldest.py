"""The commands run with the oldest click and pyelftools that they say they need.

Those of Debian bookworm are the oldest that pyproject.toml allows.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import debian
import pytest
from house import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def path() -> str:
    """What PYTHONPATH names: this checkout, and both packages of Debian."""
    packages = [debian.files(name) for name in ("python3-click", "python3-pyelftools")]
    folders = [package / "usr/lib/python3/dist-packages" for package in packages]
    return ":".join(map(str, (ROOT, *folders)))


def run(path: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-m", *words],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_they_are_the_oldest_that_are_allowed(path: str) -> None:
    code = "import click, elftools; print(click.__version__, elftools.__version__)"
    shown = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    assert [word.partition(">=")[2] for word in wanted] == [
        ".".join(version.split(".")[:2]) for version in shown
    ]


def test_man_pages_of_all_commands_are_made(path: str, tmp_path: Path) -> None:
    command = [sys.executable, "-S", ROOT / "tools/man_pages.py", tmp_path]
    done = subprocess.run(
        command, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "code", "shown"),
    [
        (["usdt", "decode", "8@%rdi"], 0, "rdi"),
        (["usdt", "list", "libc", "uprobe:getenv"], 0, "getenv"),
        (["usdt", "trace", "--buffer", "1X", "a:b"], 2, "'1X' is not a size"),
        (["usdt", "attach", "--cookie", "x", "--prog", "p", "a:b"], 2, "'x' is not a number"),
        (["usdt", "trace", "-d", "1y", "a:b"], 2, "1y"),
        (["usdt", "lst"], 2, "list"),
        (["kprobe", "--help"], 0, "Usage: kprobe"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_run(path: str, words: list[str], code: int, shown: str) -> None:
    done = run(path, *words)
    assert done.returncode == code, done.stderr
    assert shown in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
