"""Which process a thread belongs to, when its record comes to be read.

Records name the thread that made them, by its ID in the initial PID namespace, and nothing else. It
may be gone by then, and its ID somebody else's. So the births of tasks are recorded beside the
hits, by the kernel's own event ``task:task_newtask``: a child is in its parent's process if it was
cloned with CLONE_THREAD, and is one of its own if not.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("NEW_TASK", "ThreadGroups", "thread_name", "threads_of")

NEW_TASK = "task/task_newtask"
CLONE_THREAD = 0x10000  # <linux/sched.h>
_KNOWN = 1 << 18  # threads remembered; machines with more are asked again


class ThreadGroups:
    """Threads and their processes."""

    def __init__(self) -> None:
        self._processes: dict[int, int] = {}

    def observe(self, pids: Iterable[int] | None = None) -> None:
        """Remember the threads that some processes have now; None: all processes."""
        if pids is None:
            pids = _numbers("/proc")
        for pid in pids:
            for tid in threads_of(pid):
                self._processes[tid] = pid

    def born(self, parent: int, child: int, flags: int) -> bool:
        """A task was made; whether one of its ID was known, who is gone then."""
        if len(self._processes) >= _KNOWN:
            self._processes.clear()
        again = child in self._processes
        self._processes[child] = self.process(parent) if flags & CLONE_THREAD else child
        return again

    def process(self, tid: int) -> int:
        """The process of a thread; the thread itself if nobody knows."""
        found = self._processes.get(tid)
        if found is None:
            found = self._processes[tid] = _asked(tid)
        return found


def threads_of(pid: int) -> list[int]:
    """The threads of a process; none if it is gone."""
    with contextlib.suppress(OSError):
        return _numbers(f"/proc/{pid}/task")
    return []


def _numbers(folder: str) -> list[int]:
    return [int(path.name) for path in Path(folder).iterdir() if path.name.isdigit()]


def _asked(tid: int) -> int:
    with contextlib.suppress(OSError), Path(f"/proc/{tid}/status").open("rb") as file:
        for line in file:
            if line.startswith(b"Tgid:"):
                return int(line.split()[1])
    return tid


def thread_name(tid: int) -> bytes:
    """What a thread is called now; nothing if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{tid}/comm").read_bytes().rstrip(b"\n")
    return b""
