"""The executable mappings of all processes, recorded as the kernel creates them.

A program that runs for milliseconds has ended when its first record arrives, and its /proc/PID/maps
no longer exists. But the kernel reports each executable mapping, execve(2) and fork(2)
(:mod:`usdt.bpf.perf.sideband`). Files are opened as soon as they are reported, before they
disappear.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

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
    from collections.abc import Callable

    from usdt.bpf.perf.sideband import MmapRecord
    from usdt.symbolize.file_symbols import FileSymbols
    from usdt.symbolize.process_maps import MappedSymbols

__all__ = ("MmapTracker",)

_MAX_PROCESSES = 1 << 15
_MAX_MAPPINGS = 1 << 12  # per process
_MAX_ANCESTORS = 16  # ancestors whose mappings a forked process may share


class MmapTracker:
    """The executable mappings of processes since the tracker was created.

    Args:
        opener: returns the symbols of a mapped file; its second argument is the process.

    Attributes:
        notices: messages for the user about missing mappings.
        mapped: processes that have mapped files since the last call of :meth:`update`.
        forked: (process, parent) of the processes that have begun since then.
        changed: the processes whose mappings have changed; the caller removes them.
    """

    def __init__(self, opener: Callable[[MappedFile, int], FileSymbols | None]) -> None:
        self.notices: list[str] = []
        self.mapped: set[int] = set()
        self.forked: list[tuple[int, int]] = []
        self.changed: set[int] = set()
        self._opener = opener
        self._mappings: dict[int, list[MappedSymbols]] = {}
        self._parents: dict[int, int] = {}
        self._lost = False
        self._records: PerfSideband | None = None
        try:
            self._records = PerfSideband(tasks=True)
        except SyscallError as err:
            self.notices.append(f"frames of short-lived processes will have no names: {err}")

    def close(self) -> None:
        """Stop tracking; idempotent."""
        if self._records is not None:
            self._records.close()
            self._records = None

    def update(self) -> set[int]:
        """Read the kernel's records; return the processes that have executed a new program."""
        executed = set()
        self.mapped.clear()
        self.forked.clear()
        for record in self._records.take() if self._records is not None else ():
            if isinstance(record, CgroupRecord | NameRecord):
                continue  # they say nothing about mappings
            if not isinstance(record, LostRecord) and len(self.changed) < _MAX_PROCESSES:
                self.changed.add(record.pid)
            if isinstance(record, ExecRecord):
                executed.add(record.pid)
                self.mapped.discard(record.pid)
                self._parents.pop(record.pid, None)
            elif isinstance(record, ForkRecord):
                self._limit(self._parents)
                self._parents[record.pid] = record.parent
                self.forked.append((record.pid, record.parent))
                self._mappings.pop(record.pid, None)  # those of an earlier process with this ID
            elif isinstance(record, LostRecord):
                self._report_loss()
            else:
                self._add(record)
        return executed

    @property
    def descriptors(self) -> list[int]:
        """Descriptors, readable when the kernel has records."""
        return [] if self._records is None else self._records.descriptors

    def find(self, pid: int, address: int) -> MappedSymbols | None:
        """Return the latest mapping at an address of a process, and the symbols of its file."""
        for mapping, file in reversed(self._mappings.get(pid, ())):
            if mapping.start <= address < mapping.end:
                return mapping, file
        return None

    def mappings(self, pid: int) -> list[MappedSymbols]:
        """Return the mappings of a process, without its ancestors', in the order of creation."""
        return list(self._mappings.get(pid, ()))

    def knows(self, pid: int) -> bool:
        """Return True if the kernel has reported anything about a process."""
        return pid in self._mappings or pid in self._parents

    def ancestors(self, pid: int) -> list[int]:
        """Return the processes whose mappings a process may share since fork(2), parent first."""
        found: list[int] = []
        parent = self._parents.get(pid)
        while parent is not None and parent not in found and len(found) < _MAX_ANCESTORS:
            found.append(parent)
            parent = self._parents.get(parent)
        return found

    def _add(self, record: MmapRecord) -> None:
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
        if record.pid not in self._mappings:
            self._limit(self._mappings)
        known = self._mappings.setdefault(record.pid, [])
        del known[: len(known) - _MAX_MAPPINGS + 1]
        known.append((mapping, self._file(mapping, record.pid) if record.inode else None))

    def _file(self, mapping: Mapping, pid: int) -> FileSymbols | None:
        open_path = f"/proc/{pid}/root{mapping.path}"
        found = MappedFile(mapping.path, open_path, mapping.device, mapping.inode, deleted=False)
        return self._opener(found, pid)

    def _limit(self, table: dict[int, Any]) -> None:
        if len(table) >= _MAX_PROCESSES:
            del table[next(iter(table))]

    def _report_loss(self) -> None:
        if not self._lost:
            self._lost = True
            self.notices.append(
                "too many programs start: frames of some short-lived ones will have no names"
            )
