"""What every process maps, noted as it happens: for processes that end before anybody looks.

A program of some milliseconds is over when its first record arrives; /proc/PID/maps is gone. The
kernel tells each executable mapping, execve(2) and fork(2) (:mod:`usdt.bpf.taskrecords`); files are
opened when they are told, while they can still be found.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from usdt.base.errors import SyscallError
from usdt.bpf.taskrecords import Executed, Forked, Gap, TaskRecords
from usdt.procfs.process import MappedFile, Mapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.taskrecords import Mapped
    from usdt.symbolize.files import FileSymbols

__all__ = ("MapsLog",)

_MAX_PROCESSES = 1 << 15
_MAX_MAPPINGS = 1 << 12  # of one process
_ANCESTORS = 16  # whose mappings a process that only forked may have

_Noted = tuple[Mapping, "FileSymbols | None"]


class MapsLog:
    """The executable mappings of processes since it was made.

    Args:
        opener: gives the symbols of a file; the second argument is the process.

    Attributes:
        notices: lines for people: why nothing is noted, or not all.
    """

    def __init__(self, opener: Callable[[MappedFile, int], FileSymbols | None]) -> None:
        self.notices: list[str] = []
        self._opener = opener
        self._noted: dict[int, list[_Noted]] = {}
        self._parents: dict[int, int] = {}
        self._lost = False
        self._records: TaskRecords | None = None
        try:
            self._records = TaskRecords()
        except SyscallError as err:
            self.notices.append(f"frames of processes that end at once will have no names: {err}")

    def close(self) -> None:
        """Stop noting; again is fine."""
        if self._records is not None:
            self._records.close()
            self._records = None

    def look(self) -> set[int]:
        """Note what has happened; the processes that have become other programs."""
        executed = set()
        for record in self._records.take() if self._records is not None else ():
            if isinstance(record, Executed):
                executed.add(record.pid)
                self._parents.pop(record.pid, None)
            elif isinstance(record, Forked):
                self._limit(self._parents)
                self._parents[record.pid] = record.parent
                self._noted.pop(record.pid, None)  # of an earlier process with its number
            elif isinstance(record, Gap):
                self._tell_loss()
            else:
                self._note(record)
        return executed

    def find(self, pid: int, address: int) -> _Noted | None:
        """The latest mapping at an address of a process, and the symbols of its file."""
        for mapping, file in reversed(self._noted.get(pid, ())):
            if mapping.start <= address < mapping.end:
                return mapping, file
        return None

    def noted(self, pid: int) -> list[_Noted]:
        """Everything noted of a process itself, in order."""
        return list(self._noted.get(pid, ()))

    def knows(self, pid: int) -> bool:
        """Whether anything was noted of a process."""
        return pid in self._noted or pid in self._parents

    def ancestors(self, pid: int) -> list[int]:
        """The processes whose mappings it may have by fork(2), its parent first."""
        found: list[int] = []
        parent = self._parents.get(pid)
        while parent is not None and parent not in found and len(found) < _ANCESTORS:
            found.append(parent)
            parent = self._parents.get(parent)
        return found

    def _note(self, record: Mapped) -> None:
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
        if record.pid not in self._noted:
            self._limit(self._noted)
        noted = self._noted.setdefault(record.pid, [])
        del noted[: len(noted) - _MAX_MAPPINGS + 1]
        noted.append((mapping, self._file(mapping, record.pid) if record.inode else None))

    def _file(self, mapping: Mapping, pid: int) -> FileSymbols | None:
        way = f"/proc/{pid}/root{mapping.path}"
        found = MappedFile(mapping.path, way, mapping.device, mapping.inode, deleted=False)
        return self._opener(found, pid)

    def _limit(self, table: dict[int, Any]) -> None:
        if len(table) >= _MAX_PROCESSES:
            del table[next(iter(table))]

    def _tell_loss(self) -> None:
        if not self._lost:
            self._lost = True
            self.notices.append(
                "so many programs were started that some frames of short ones will have no names"
            )
