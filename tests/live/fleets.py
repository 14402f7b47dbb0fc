"""``usdt fleet`` as a user runs it, for the tests of this folder: the machines are shells here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build
from fork_server import run
from json_schema import check_lines
from processes import command_lines
from tracing_tools import USDT

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = (
    "EVERY",
    "HITS",
    "SHELL",
    "Answer",
    "asked",
    "far_processes",
    "hits_program",
    "own_python",
    "run_once",
    "tracing_processes",
)

SHELL = "sh -c {command} {node}"  # a machine that is this one
EVERY = 0.05  # seconds between two looks at far processes: each reads /proc of every process
HITS = 200  # hits of threads:hit on each machine


@frozen
class Answer:
    """What the command wrote."""

    status: int
    objects: list[dict[str, Any]]
    text: str
    messages: list[str]

    @property
    def fleet(self) -> dict[str, Any]:
        """The closing object."""
        found: dict[str, Any] = self.objects[-1]["fleet"]
        return found


def asked(*words: str, via: str = SHELL, environment: dict[str, str] | None = None) -> Answer:
    """Run the command to its end; with ``--json``, its objects are read."""
    pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install ClusterShell")
    command = [USDT, "fleet", "--via", via, *words]
    if environment is None:
        done = run(command, timeout=100)
    else:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=100, env=environment
        )
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    lines = done.stdout.splitlines()
    found = [json.loads(line) for line in lines] if as_json else []
    objects = [one for one in found if "usdt" not in one]  # without headers
    assert "Traceback" not in done.stderr
    check_lines(["--json"] if as_json else [], lines)
    return Answer(done.returncode, objects, done.stdout, done.stderr.splitlines())


def hits_program() -> str:
    """A command that fires threads:hit :data:`HITS` times, for ``-c``."""
    return f"{build('default', 'threads')} -t 2 -n {HITS // 2}"


def own_python() -> str:
    """PATH of machines that have the Python of these tests: no program that looks for one."""
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def run_once(folder: Path, *commands: Sequence[str]) -> Path:
    """Run commands on a machine of their own; the toolkit that it has unpacked in this folder.

    Python has compiled there what they import, which takes a second. Links to these files, in the
    folder where another machine would unpack the toolkit, spare it that; it receives its copy.
    """
    environment = {**os.environ, "PATH": own_python(), "XDG_CACHE_HOME": str(folder)}
    for words in commands:
        found = asked("--nodes", "first", "--", *words, environment=environment)
        assert found.status == 0, found.messages
    (copy,) = (folder / "usdt-fleet").glob("usdt-*.pyz")
    return copy.with_suffix("")


def far_processes(mark: str) -> list[int]:
    """Processes of far ends: whose command line has the mark."""
    return [
        pid
        for pid, words in command_lines()
        if mark.encode() in words and b"\0fleet\0" not in words
    ]


def tracing_processes(mark: str) -> int:
    """How many of the processes have a BPF program."""
    return sum(any("bpf-prog" in link for link in _links(pid)) for pid in far_processes(mark))


def _links(pid: int) -> list[str]:
    """The open files of a process, which may open and close some meanwhile."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.append(str(path.readlink()))
    return found
