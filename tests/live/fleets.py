"""``usdt fleet`` as a user runs it, for the tests of this folder: the machines are shells here."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from fixtures import build
from tracing_tools import USDT

from usdt.base.frozen import frozen

__all__ = ("HITS", "Answer", "asked", "hits_program")

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


def asked(*words: str, via: str = "sh -c", environment: dict[str, str] | None = None) -> Answer:
    """Run the command to its end; with ``--json``, its objects are read."""
    pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install ClusterShell")
    done = subprocess.run(
        [USDT, "fleet", "--via", via, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env=environment,
    )
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    lines = done.stdout.splitlines()
    objects = [json.loads(line) for line in lines] if as_json else []
    assert "Traceback" not in done.stderr
    return Answer(done.returncode, objects, done.stdout, done.stderr.splitlines())


def hits_program() -> str:
    """A command that fires threads:hit :data:`HITS` times, for ``-c``."""
    return f"{build('default', 'threads')} -t 2 -n {HITS // 2}"
