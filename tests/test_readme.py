"""Every example of README.md does what README.md says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import shell_path

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PYTHON = "/usr/bin/python3.11"

needs_python = pytest.mark.skipif(
    not Path(PYTHON).exists(), reason=f"needs {PYTHON}: apt-get install python3.11"
)


def consoles(text: str = README) -> list[tuple[str, list[str]]]:
    """(command, lines of output) of every console block."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            found.append((command, lines))
    return found


def shape(line: str) -> str:
    """A line with what differs from run to run taken out: numbers, and columns they widen."""
    about = r'"(host|boot_id|machine_id|kernel|machine)": ("[^"]*"|null)'  # of a machine
    line = re.sub(about, r'"\1": null', line)
    line = re.sub(r"\b\d+(\.\d+)?(ns|us|ms|s)\b", "N", line)  # durations choose their unit
    line = re.sub(r"0x[0-9a-f]+|\d+(:\d+)*(\.\d+)?", "N", line)
    return re.sub(r" +", " ", line).strip()


def run(command: str) -> tuple[list[str], int]:
    """Run a command of a page: its lines and its exit code. What README.md records is our own."""
    command = command.replace("/tmp/gc.usdt", f"/tmp/gc-{os.getpid()}.usdt")
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": shell_path()},
    )
    return (done.stdout + done.stderr).splitlines(), done.returncode


def test_there_are_examples() -> None:
    assert len(consoles()) >= 6


@needs_python
@pytest.mark.parametrize(("command", "expected"), consoles(), ids=[c for c, _ in consoles()])
def test_console_examples_print_what_is_shown(
    command: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USDT_COLD", "1")  # these start as for users
    live = re.search("usdt (trace|count|stats|spans|record|report)", command)
    live = live and "strt" not in command
    if live and os.geteuid() != 0:
        pytest.skip("needs root")
    lines, code = run(command)
    if any(line.startswith("Error") for line in expected):
        assert code == 1
    else:
        assert code == 0, lines
    assert sorted(map(shape, lines)) == sorted(map(shape, expected))


@needs_python
@pytest.mark.root
def test_the_python_example_runs() -> None:
    source, provider = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "python gc__start 1" in done.stdout
    assert done.stdout.rstrip().endswith("lost: 0")
    subprocess.run([sys.executable, "-W", "error", "-c", provider], timeout=60, check=True)


def test_every_page_of_the_documentation_is_linked() -> None:
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert not [name for name in pages if f"docs/{name}" not in text]
