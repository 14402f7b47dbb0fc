"""Grace periods of the kernel's RCU, hurried while thousands of probes go.

The switch is the whole machine's, /sys/kernel/rcu_expedited (Documentation/RCU), and stays as it
was left. So it is a process of its own that turns it back, when our end of a pipe closes: that
happens even if we are killed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("RCU_EXPEDITED", "expedited_rcu")

RCU_EXPEDITED = "/sys/kernel/rcu_expedited"
# The signals that end a group of processes are not for it.
_TURN_BACK = f"trap '' HUP INT QUIT TERM; read -r line; echo 0 > {RCU_EXPEDITED}"
_PATIENCE = 30.0  # seconds until it is left to itself


@contextlib.contextmanager
def expedited_rcu() -> Iterator[None]:
    """Have the kernel hurry with grace periods, which costs its CPUs an interruption each.

    Perf events are taken out one after the other, each after a grace period or two: with
    thousands of them that is minutes. Where the switch is on, or not ours, nothing is done.
    """
    if _value() != "0" or not os.access(RCU_EXPEDITED, os.W_OK):
        yield
        return
    import subprocess  # noqa: PLC0415 - rare, and slow

    try:
        guard = subprocess.Popen(
            ("sh", "-c", _TURN_BACK),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # no shell, no more processes: slowly, then
        yield
        return
    try:
        with contextlib.suppress(OSError), open(RCU_EXPEDITED, "w") as file:  # noqa: PTH123
            file.write("1")
        yield
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.communicate(timeout=_PATIENCE)


def _value() -> str:
    try:
        with open(RCU_EXPEDITED) as file:  # noqa: PTH123 - pathlib costs an import
            return file.read().strip()
    except OSError:
        return ""
