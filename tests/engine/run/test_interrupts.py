"""^C during the start, where Python may drop the exception, and ^C that comes again."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import time

import pytest

from usdt.engine.run import loop

# The garbage collector's finalizers and the callbacks of the import system are such places.
PROGRAM = """
import signal
from usdt.base.interrupts import interrupted, note_interrupts
from usdt.engine.run.loop import StopSignals
note_interrupts()
class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
assert not interrupted()
with StopSignals() as signals:
    assert not signals.requested
Dropped()
with StopSignals() as signals:
    print(interrupted(), signals.requested)
"""


def test_an_interrupt_that_python_drops_ends_the_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout == "True True\n"


def test_other_exceptions_that_python_drops_are_shown() -> None:
    program = PROGRAM.replace("signal.raise_signal(signal.SIGINT)", "raise ValueError('odd')")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "ValueError: odd" in done.stderr
    assert done.stdout == "False False\n"


@pytest.mark.parametrize("command", ["usdt", "kprobe"])
def test_little_is_imported_before_interrupts_are_noted(command: str) -> None:
    # Python itself reports ^C there. Console scripts import re, which takes enum and functools.
    code = (
        "import re, sys; from importlib import import_module; before = set(sys.modules);"
        f"from {command}.cli import main; print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(ast.literal_eval(done.stdout))
    own = {"usdt", "usdt.base", "usdt.base.lazy_exports", "usdt.base.version"}
    assert loaded - {"gc", "__future__"} == own | {command, f"{command}.cli"}


def test_an_interrupt_while_the_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "interrupted", lambda: signal.raise_signal(signal.SIGINT))
    with loop.StopSignals() as stop:
        assert stop.requested


def test_a_second_interrupt_ends_at_once_unless_timeout_sent_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with loop.StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        later = time.monotonic() + 0.3
        monkeypatch.setattr(time, "monotonic", lambda: later)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
