"""^C during the start, where Python may drop the exception."""

from __future__ import annotations

import subprocess
import sys

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
    assert "Exception ignored" in done.stderr
    assert done.stdout == "True True\n"
