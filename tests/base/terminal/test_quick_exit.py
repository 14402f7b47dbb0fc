"""The quick end of a command does what Python's does, but for taking modules apart."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import IO

import pytest

PROGRAM = """
import atexit, sys, threading, time
from usdt.base.terminal.quick_exit import run_and_leave

class Kept:
    def __del__(self):
        print("modules are taken apart")

kept = Kept()

def late():
    time.sleep(0.05)
    print("thread")

def main():
    atexit.register(print, "registered")
    threading.Thread(target=late).start()
    print("main")
    {end}

run_and_leave(main)
"""
DONE = "main\nthread\nregistered\n"


def ended_by(
    end: str, stdout: IO[str] | int = subprocess.PIPE, before: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", before + PROGRAM.replace("{end}", end)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        # Streams are to be flushed at the end.
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("end", "code"),
    [("sys.exit()", 0), ("sys.exit(0)", 0), ("sys.exit(3)", 3), ("sys.exit(-1)", 255)],
)
def test_modules_are_left_as_they_are(end: str, code: int) -> None:
    done = ended_by(end)
    assert (done.returncode, done.stdout, done.stderr) == (code, DONE, "")


@pytest.mark.parametrize(
    ("end", "said"), [("sys.exit('a text')", "a text\n"), ("1 / 0", "ZeroDivisionError")]
)
def test_what_python_says_at_its_end_is_left_to_python(end: str, said: str) -> None:
    done = ended_by(end)
    assert said in done.stderr
    assert (done.returncode, done.stdout) == (1, f"{DONE}modules are taken apart\n")


def test_what_was_registered_before_the_command_is_called() -> None:
    before = "import atexit; atexit.register(print, 'registered before')\n"
    done = ended_by("sys.exit(3)", before=before)
    expected = f"{DONE}registered before\nmodules are taken apart\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, expected, "")


def test_output_that_cannot_be_written_is_reported_by_python() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended_by("sys.exit(0)", full)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("command", ["usdt", "kprobe"])
@pytest.mark.parametrize(("word", "code"), [("--version", 0), ("--no-such-option", 2)])
def test_commands_leave_so(command: str, word: str, code: int) -> None:
    kept = PROGRAM[PROGRAM.index("class Kept") : PROGRAM.index("def late")]
    start = f"import sys\nfrom {command}.cli import script\nsys.argv = ['x', '{word}']\nscript()\n"
    done = subprocess.run(
        [sys.executable, "-c", kept + start],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code
    assert done.stdout + done.stderr
    assert "modules are taken apart" not in done.stdout
    scripts = distribution("usdt-toolkit").entry_points
    assert scripts[command].value == f"{command}.cli:script"
