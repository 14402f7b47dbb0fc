"""The processes of programs that metrics name, as they start and end."""

from __future__ import annotations

import contextlib
import os
import time

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError, TargetNotFound
from usdt.base.text import closest, printable
from usdt.bpf.perf.sideband import PerfSideband
from usdt.procfs.process import has_name, pid_exists, process_names, processes

__all__ = ("Programs",)

_SCAN = 2.0  # seconds between two looks through /proc
_REPORTED_SCAN = 60.0  # the same, where the kernel reports processes: CPUs may have come online


class Programs(Closeable):
    """The processes of this machine by their programs' names; a context manager.

    The kernel reports which processes start, execute a program or change their name, so that an
    idle machine costs nothing. Where it does not (no CAP_PERFMON), /proc is searched again and
    again.
    """

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, ...]] = {}
        self._found: dict[str, set[int]] = {}
        self._hints: dict[str, str] = {}
        self._reports: PerfSideband | None = None
        self._next_scan = 0.0

    def close(self) -> None:
        """Stop watching; idempotent."""
        if self._reports is not None:
            self._reports.close()
            self._reports = None

    def named(self, program: str) -> list[int]:
        """Return the processes of a program, as of the last :meth:`look`, in ascending order.

        Raises:
            TargetNotFound: there is none; the message names the most similar one.
        """
        if program not in self._found:
            self._begin()
            self._found[program] = {
                pid for pid, names in self._names.items() if has_name(names, program)
            }
        found = sorted(filter(pid_exists, self._found[program]))
        if not found:
            hint = self._hint(program)
            raise TargetNotFound(f"{printable(program)}: no process of this name{hint}")
        return found

    def look(self) -> None:
        """Notice which processes have started, and which have another name."""
        if not self._found:
            return
        changed = self._reports.take_pids() if self._reports is not None else set()
        due = time.monotonic() >= self._next_scan
        # Of more processes than there are, most have ended again.
        if due or changed is None or len(changed) > len(self._names):
            self._scan()
        else:
            for pid in changed:
                self._learn(pid)

    def _begin(self) -> None:
        if self._found:
            return
        with contextlib.suppress(SyscallError):
            self._reports = PerfSideband(tasks=True, mappings=False)
        self._scan()

    def _scan(self) -> None:
        present = {*processes()} - {os.getpid()}
        for pid in (self._names.keys() - present) | present:
            self._learn(pid)
        seconds = _SCAN if self._reports is None else _REPORTED_SCAN
        self._next_scan = time.monotonic() + seconds

    def _learn(self, pid: int) -> None:
        names = process_names(pid) if pid != os.getpid() else ()
        if names == self._names.get(pid, ()):
            return
        if names:
            self._names[pid] = names
        else:
            del self._names[pid]
        for program, found in self._found.items():
            if has_name(names, program):
                found.add(pid)
            else:
                found.discard(pid)

    def _hint(self, program: str) -> str:
        # Once for each program: comparing names takes long.
        if program not in self._hints:
            known = {one for names in self._names.values() for one in names}
            near = closest(program, sorted(known))
            self._hints[program] = f"; did you mean {printable(near)}?" if near else ""
        return self._hints[program]
