"""Python stacks beside py-spy: the same functions, files and lines of programs that wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import skips
from tracing_tools import run_usdt

pytestmark = skips.requires_root

_PROGRAM = """
import functools, threading, time

class Waiting:
    def deep(self, number):
        if number:
            return (lambda: self.deep(number - 1))()
        while True:
            time.sleep(0.02)

def generated():
    yield from (Waiting().deep(one) for one in [3])

def sorting(value):
    return next(generated())

print("ready", flush=True)
threading.Thread(target=Waiting().deep, args=(2,), daemon=True).start()
functools.reduce(lambda _, one: sorted([1], key=sorting), [1, 2, 3])
"""


def _pythons() -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/bin").glob("python3.1[1-3]"), *pyenv.glob("*/bin/python3.1[1-3]")]
    return sorted(map(str, found)) or [sys.executable]


@pytest.mark.parametrize("python", _pythons())
def test_every_thread_has_the_frames_that_pyspy_finds(python: str, tmp_path: Path) -> None:
    spy = skips.need_program("py-spy", "python3-pip, then pip install py-spy")
    program = tmp_path / "waiting.py"
    program.write_text(_PROGRAM)
    with subprocess.Popen([python, program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # there is an interpreter
            words = ("-p", process.pid, "-n", 20, "--pystack", "syscall:clock_nanosleep")
            done = run_usdt("trace", "--json", *words)
            dump = subprocess.run(
                [spy, "dump", "--json", "--pid", str(process.pid)],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
        finally:
            process.kill()
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ours = {event["tid"]: _named(event["args"]["pystack"], "symbol", "file") for event in events}
    theirs = {
        thread["os_thread_id"]: _named(thread["frames"], "name", "filename")
        for thread in json.loads(dump.stdout)
    }
    assert len(ours) == 2
    assert ours == theirs


def _named(frames: list[dict[str, object]], name: str, file: str) -> list[tuple[object, ...]]:
    # py-spy has names without the class or function around them.
    return [(str(one[name]).rpartition(".")[2], one[file], one["line"]) for one in frames]
