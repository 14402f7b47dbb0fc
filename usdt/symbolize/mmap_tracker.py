"""The executable mappings of all processes, recorded as the kernel creates them.

A program that runs for milliseconds has ended when its first record arrives, and its /proc/PID/maps
no longer exists. But the kernel reports each executable mapping, execve(2) and fork(2)
(:mod:`usdt.bpf.perf.sideband`). Files are opened as soon as they are reported, before they
disappear.

The reports of each CPU are in the order of time, those of two CPUs are not: a fork may arrive after
the mappings of the process that it began. So all reports are ordered by the times that they carry.
"""

from __future__ import annotations

import bisect
import os
from typing import TYPE_CHECKING

from usdt.base.errors import SyscallError
from usdt.bpf.perf.sideband import (
    CgroupRecord,
    ExecRecord,
    ForkRecord,
    LostRecord,
    NameRecord,
    PerfSideband,
)
from usdt.procfs.mapped_files import MappedFile
from usdt.procfs.maps import Mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from usdt.bpf.perf.sideband import MmapRecord, Record
    from usdt.symbolize.file_symbols import FileSymbols
    from usdt.symbolize.process_maps import MappedSymbols

__all__ = ("MmapTracker",)

_MAX_PROCESSES = 1 << 15
_MAX_MAPPINGS = 1 << 12  # per process
_MAX_ANCESTORS = 16  # ancestors whose mappings a forked process may share


class _Reported:
    # What the kernel has reported of one process: the times of its fork and of its last execve(2),
    # 0 if unknown, and its mappings with their times, the latest last. The parent is that whose
    # mappings it shares: None after execve(2).
    __slots__ = ("began", "executed", "mappings", "parent", "times")

    def __init__(self) -> None:
        self.began = 0
        self.executed = 0
        self.parent: int | None = None
        self.times: list[int] = []
        self.mappings: list[MappedSymbols] = []

    def add(self, time: int, mapped: MappedSymbols) -> None:
        at = bisect.bisect_right(self.times, time)
        self.times.insert(at, time)
        self.mappings.insert(at, mapped)
        surplus = len(self.times) - _MAX_MAPPINGS
        if surplus > 0:
            del self.times[:surplus], self.mappings[:surplus]

    def begin(self, time: int, parent: int) -> None:
        # An earlier process with this ID had the mappings before.
        old = bisect.bisect_left(self.times, time)
        del self.times[:old], self.mappings[:old]
        self.began = time
        self.parent = parent if self.executed < time else None

    def execute(self, time: int) -> None:
        self.executed = max(self.executed, time)
        self.parent = None

    def has_file_since(self, time: int) -> bool:
        later = self.mappings[bisect.bisect_right(self.times, time) :]
        return any(mapping.inode for mapping, _ in later)


class MmapTracker:
    """The executable mappings of processes since the tracker was created.

    Args:
        opener: returns the symbols of a mapped file; its second argument is the process.

    Attributes:
        notices: messages for the user about missing mappings.
        mapped: processes that have mapped files since the last call of :meth:`update`.
        forked: (process, parent) of the processes that have begun since then.
        reported: the processes whose mappings have changed since then.
        changed: the same since the caller removed them.
        reliable: whether every change is reported.
    """

    def __init__(self, opener: Callable[[MappedFile, int], FileSymbols | None]) -> None:
        self.notices: list[str] = []
        self.mapped: set[int] = set()
        self.forked: list[tuple[int, int]] = []
        self.reported: set[int] = set()
        self.changed: set[int] = set()
        self.reliable = True
        self._opener = opener
        self._processes: dict[int, _Reported] = {}
        self._records: PerfSideband | None = None
        try:
            self._records = PerfSideband(tasks=True)
        except SyscallError as err:
            self.reliable = False
            self.notices.append(f"frames of short-lived processes will have no names: {err}")

    def close(self) -> None:
        """Stop tracking; idempotent."""
        if self._records is not None:
            self._records.close()
            self._records = None
            self.reliable = False

    def update(self) -> set[int]:
        """Read the kernel's records; return the processes that have executed a new program."""
        self.mapped.clear()
        self.forked.clear()
        self.reported.clear()
        return self.note(self._records.take() if self._records is not None else ())

    def note(self, records: Iterable[Record]) -> set[int]:
        """Take in records, in any order; return the processes that have executed a new program."""
        executed: set[int] = set()
        for record in records:
            if isinstance(record, CgroupRecord | NameRecord):
                continue  # they say nothing about mappings
            if isinstance(record, LostRecord):
                self._report_loss()
                continue
            self.reported.add(record.pid)
            if len(self.changed) < _MAX_PROCESSES:
                self.changed.add(record.pid)
            known = self._processes.get(record.pid)
            if known is not None and record.time < known.began:
                continue  # of an earlier process with this ID
            known = self._process(record.pid, renew=isinstance(record, ForkRecord))
            if isinstance(record, ExecRecord):
                executed.add(record.pid)
                known.execute(record.time)
                self.mapped.discard(record.pid)
                if known.has_file_since(record.time):
                    self.mapped.add(record.pid)
            elif isinstance(record, ForkRecord):
                known.begin(record.time, record.parent)
                if known.parent is not None:
                    self.forked.append((record.pid, record.parent))
            else:
                self._add(known, record)
        return executed

    @property
    def descriptors(self) -> list[int]:
        """Descriptors, readable when the kernel has records."""
        return [] if self._records is None else self._records.descriptors

    def find(self, pid: int, address: int) -> MappedSymbols | None:
        """Return the latest mapping at an address of a process, and the symbols of its file."""
        known = self._processes.get(pid)
        for mapping, file in () if known is None else reversed(known.mappings):
            if mapping.start <= address < mapping.end:
                return mapping, file
        return None

    def mappings(self, pid: int) -> list[MappedSymbols]:
        """Return the mappings of a process, without its ancestors', in the order of creation."""
        known = self._processes.get(pid)
        return [] if known is None else list(known.mappings)

    def knows(self, pid: int) -> bool:
        """Return True if the kernel has reported mappings of a process, or whose it shares."""
        known = self._processes.get(pid)
        return known is not None and (known.parent is not None or bool(known.mappings))

    def ancestors(self, pid: int) -> list[int]:
        """Return the processes whose mappings a process may share since fork(2), parent first."""
        found: list[int] = []
        parent = self._parent(pid)
        while parent is not None and parent not in found and len(found) < _MAX_ANCESTORS:
            found.append(parent)
            parent = self._parent(parent)
        return found

    def _parent(self, pid: int) -> int | None:
        known = self._processes.get(pid)
        return None if known is None else known.parent

    def _process(self, pid: int, *, renew: bool) -> _Reported:
        # ``renew``: move it to the end, so that the oldest processes are dropped first.
        known = self._processes.pop(pid, None) if renew else self._processes.get(pid)
        if known is None or renew:
            known = known or _Reported()
            if len(self._processes) >= _MAX_PROCESSES:
                del self._processes[next(iter(self._processes))]
            self._processes[pid] = known
        return known

    def _add(self, known: _Reported, record: MmapRecord) -> None:
        path = os.fsdecode(record.path)
        mapping = Mapping(
            record.start,
            record.end,
            "r-xp",
            record.offset,
            record.device,
            record.inode,
            path,
            deleted=False,
        )
        if record.inode:
            self.mapped.add(record.pid)
        known.add(record.time, (mapping, self._file(mapping, record.pid) if record.inode else None))

    def _file(self, mapping: Mapping, pid: int) -> FileSymbols | None:
        open_path = f"/proc/{pid}/root{mapping.path}"
        found = MappedFile(mapping.path, open_path, mapping.device, mapping.inode, deleted=False)
        return self._opener(found, pid)

    def _report_loss(self) -> None:
        if self.reliable:
            self.reliable = False
            self.notices.append(
                "too many programs start: frames of some short-lived ones will have no names"
            )
