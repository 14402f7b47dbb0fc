"""The name of each thread at the time of a record, for records that name only a thread.

When a record is read, its thread may have ended, or may execute another program. So the tracer also
records the births of tasks (:data:`usdt.procfs.thread_groups.NEW_TASK`), whose names are those of
their parents, and the changes of names, by the kernel's event ``task:task_rename``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.procfs.process import processes
from usdt.procfs.thread_groups import thread_name, threads_of

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("RENAMED", "ThreadNames")

RENAMED = "task/task_rename"
_MAX_THREADS = 1 << 18  # remembered; on machines with more, /proc is read again


class ThreadNames:
    """A table of threads and their names, which follows an ordered stream of records."""

    def __init__(self) -> None:
        self._names: dict[int, bytes] = {}

    def observe(self, pids: Iterable[int] | None = None) -> None:
        """Add the names that the threads of processes have now; None: those of all processes."""
        for pid in processes() if pids is None else pids:
            for tid in threads_of(pid):
                self._names[tid] = thread_name(tid)

    def named(self, tid: int, name: str) -> None:
        """Set the name of a thread, at its birth or later."""
        if len(self._names) >= _MAX_THREADS:
            self._names.clear()
        self._names[tid] = name.encode("utf-8", "surrogateescape")

    def name(self, tid: int) -> bytes:
        """Return the name of a thread; b"" if it has ended and its name was never seen."""
        found = self._names.get(tid)
        if found is None:
            found = self._names[tid] = thread_name(tid)
        return found
