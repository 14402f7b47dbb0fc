"""Names of instances and groups that identify the process that made them."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ("PREFIX", "is_orphan", "is_ours", "own_name")

PREFIX = "usdt"
_NAME = re.compile(rf"{PREFIX}_(\d{{1,10}})_(\d{{1,20}})(?:_\d+)?", re.ASCII)


def own_name(number: int = 0) -> str:
    """Return a name that belongs to this process: ``usdt_PID_STARTTIME[_NUMBER]``."""
    pid = os.getpid()
    suffix = f"_{number}" if number else ""
    return f"{PREFIX}_{pid}_{_started(pid)}{suffix}"


def is_ours(name: str) -> bool:
    """Return whether this toolkit made a group or instance."""
    return _NAME.fullmatch(name) is not None


def is_orphan(name: str) -> bool:
    """Return whether this toolkit made it, in a process that has ended.

    A process ID may be in use again, so the start time is compared, too.
    """
    match = _NAME.fullmatch(name)
    return match is not None and _started(int(match[1])) != int(match[2])


def _started(pid: int) -> int:
    # Clock ticks from boot to the process's start, field 22 of /proc/PID/stat; -1: it has ended.
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return -1
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[19]) if fields[0] not in ("Z", "X") else -1
