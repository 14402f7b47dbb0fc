"""Expedited RCU grace periods, for the time in which thousands of probes are removed.

/sys/kernel/rcu_expedited (Documentation/RCU) applies to the whole machine and keeps its value. So
a separate process resets it when our end of a pipe closes, which happens even if we are killed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("RCU_EXPEDITED", "expedited_rcu")

RCU_EXPEDITED = "/sys/kernel/rcu_expedited"
# It ignores the signals that end a process group.
_RESET = f"trap '' HUP INT QUIT TERM; read -r line; echo 0 > {RCU_EXPEDITED}"
_TIMEOUT = 30.0  # seconds to wait for the process


@contextlib.contextmanager
def expedited_rcu() -> Iterator[None]:
    """Expedite grace periods within a ``with`` block, at the cost of an IPI to each CPU for each.

    The kernel removes perf events one after the other, each after one or two grace periods:
    thousands of them take minutes. If the setting is on already, or not writable, do nothing.
    """
    if _value() != "0" or not os.access(RCU_EXPEDITED, os.W_OK):
        yield
        return
    import subprocess  # noqa: PLC0415 - rare, and slow

    try:
        guard = subprocess.Popen(
            ("sh", "-c", _RESET),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # no shell, or too many processes: go on without
        yield
        return
    try:
        with contextlib.suppress(OSError), open(RCU_EXPEDITED, "w") as file:  # noqa: PTH123
            file.write("1")
        yield
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.communicate(timeout=_TIMEOUT)


def _value() -> str:
    try:
        with open(RCU_EXPEDITED) as file:  # noqa: PTH123 - pathlib costs an import
            return file.read().strip()
    except OSError:
        return ""
