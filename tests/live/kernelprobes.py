"""``kprobe`` run as a user runs it on tracepoints and system calls, for tests of this folder."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from fork_server import run
from patience import patient
from streams import answers
from tracing_tools import KPROBE, Tool

if TYPE_CHECKING:
    import subprocess

__all__ = ("events_of", "kprobe", "program", "results", "tracing_kernel")

_TIMEOUT = patient(60)


def kprobe(
    *words: object, code: int = 0, command: str = KPROBE
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; its exit code is checked, and that no traceback was seen."""
    done = run([command, *map(str, words)], timeout=_TIMEOUT)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr, done.stderr
    done.stdout = answers(words, done.stdout)
    return done


def program(source: str) -> str:
    """The words of a command that runs some Python, and imports nothing by itself."""
    return f"{sys.executable} -I -S -c {shlex.quote(source)}"


def events_of(source: str, *probes: object, command: str = KPROBE) -> list[dict[str, Any]]:
    """The hits of a program."""
    words = ("trace", "--json", "-c", program(source), *probes)
    records = [json.loads(line) for line in kprobe(*words, command=command).stdout.splitlines()]
    assert not [record for record in records if "lost" in record]
    return records


def results(*words: object) -> list[dict[str, Any]]:
    """What an aggregating command found."""
    lines = kprobe(*words, "--json").stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]  # beside the command's own


def tracing_kernel(*words: object) -> Tool:
    """Start ``kprobe COMMAND``, and wait until it traces."""
    tool = Tool(*words, command=KPROBE)
    try:
        return tool.wait_tracing()
    except BaseException:
        tool.kill()
        raise
