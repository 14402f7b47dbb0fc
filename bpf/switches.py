"""Switches of the kernel that are the whole machine's, turned for a while.

They stay as they were left. So it is a process of its own that turns one back, when our end of a
pipe closes: that happens even if we are killed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("EXPEDITED", "hurried", "turned")

EXPEDITED = "/sys/kernel/rcu_expedited"
# The signals that end a group of processes are not for it.
_TURN_BACK = "trap '' HUP INT QUIT TERM; read -r line; echo {value} > {path}"
_PATIENCE = 30.0  # seconds until it is left to itself


@contextlib.contextmanager
def turned(path: str, value: str, *, usual: str) -> Iterator[None]:
    """Have a switch at one value where it is at the usual one; elsewhere nothing is done.

    Args:
        path: a file of the kernel's, of a line.
        value: what is written into it.
        usual: what it must have before, and has again.
    """
    if _read(path) != usual or not os.access(path, os.W_OK):
        yield
        return
    import subprocess  # noqa: PLC0415 - rare, and slow

    try:
        guard = subprocess.Popen(
            ("sh", "-c", _TURN_BACK.format(value=usual, path=path)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # no shell, no more processes: without, then
        yield
        return
    try:
        with contextlib.suppress(OSError), open(path, "w") as file:  # noqa: PTH123
            file.write(value)
        yield
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.communicate(timeout=_PATIENCE)


def hurried() -> contextlib.AbstractContextManager[None]:
    """Have the kernel hurry with grace periods, which costs its CPUs an interruption each.

    Perf events are taken out one after the other, each after a grace period or two: with
    thousands of them that is minutes.
    """
    return turned(EXPEDITED, "1", usual="0")


def _read(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123 - pathlib costs an import
            return file.read().strip()
    except OSError:
        return ""
