"""The process of each thread, for records that name only a thread.

A record of the event tracer names the thread that made it, by its ID in the initial PID namespace.
When the record is read, the thread may have ended, and its ID may belong to another. So the tracer
also records the births of tasks, by the kernel's event ``task:task_newtask``: a child cloned with
CLONE_THREAD is in its parent's process, any other is a process of its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.procfs.access import read_bytes
from usdt.procfs.process import processes, thread_group

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("NEW_TASK", "ThreadGroups", "thread_name", "threads_of")

NEW_TASK = "task/task_newtask"
CLONE_THREAD = 0x10000  # <linux/sched.h>
_MAX_THREADS = 1 << 18  # remembered; on machines with more, /proc is read again


class ThreadGroups:
    """A table of threads and their processes."""

    def __init__(self) -> None:
        self._processes: dict[int, int] = {}

    def observe(self, pids: Iterable[int] | None = None) -> None:
        """Add the threads that these processes have now; None: those of all processes."""
        for pid in processes() if pids is None else pids:
            for tid in threads_of(pid):
                self._processes[tid] = pid

    def born(self, parent: int, child: int, flags: int) -> bool:
        """Add a new task; return whether its ID was that of an earlier one, which has ended.

        Args:
            parent: thread ID of the task that made it.
            child: its own thread ID.
            flags: of clone(2).
        """
        if len(self._processes) >= _MAX_THREADS:
            self._processes.clear()
        reused = child in self._processes
        self._processes[child] = self.process(parent) if flags & CLONE_THREAD else child
        return reused

    def process(self, tid: int) -> int:
        """Return the process of a thread; the thread's own ID if its process is unknown."""
        found = self._processes.get(tid)
        if found is None:
            try:
                found = thread_group(tid).pid
            except TargetError:
                found = tid
            self._processes[tid] = found
        return found


def threads_of(pid: int) -> list[int]:
    """Return the threads of a process; none if it has ended."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    return []


def thread_name(tid: int) -> bytes:
    """Return a thread's ``comm``; b"" if it has ended."""
    with contextlib.suppress(OSError):
        return read_bytes(f"/proc/{tid}/comm").rstrip(b"\n")
    return b""
