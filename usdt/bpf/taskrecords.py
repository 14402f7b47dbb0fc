"""What happens to the memory of processes, in order: mappings, execve(2), fork(2).

Like :mod:`usdt.bpf.mmapevents`, but with addresses and times, and with what copies or empties an
address space: whoever notes all of it knows the mappings of a process that ended before anybody
could read its /proc/PID/maps.

Records of include/uapi/linux/perf_event.h; each is followed by its time (PERF_SAMPLE_TIME), taken
from CLOCK_MONOTONIC as the time of a probe's hit is.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.bpf.mmapevents import SideRecords, attribute_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Executed", "Forked", "Gap", "Mapped", "TaskRecords", "parse_task_records")

_LOST, _COMM, _FORK, _MMAP2 = 2, 3, 7, 10  # PERF_RECORD_…
_MISC_COMM_EXEC = 1 << 13
_SAMPLE_TIME = 1 << 2
_CLOCK_MONOTONIC = 1
_HEADER = struct.Struct("=IHH")  # type, misc, size
_PIDS = struct.Struct("=II")
# pid, tid, addr, len, pgoff, maj, min, ino, ino_generation, prot, flags
_MAPPING = struct.Struct("=IIQQQIIQQII")
_TIME = struct.Struct("=Q")
# mmap, comm, task, watermark, sample_id_all, mmap2, comm_exec, use_clockid
_FLAGS = (8, 9, 13, 14, 18, 23, 24, 25)


@frozen
class Mapped:
    """A process has mapped a file, or memory without one (inode 0), executable."""

    time: int
    pid: int
    start: int
    end: int
    offset: int
    device: tuple[int, int]
    inode: int
    path: bytes


@frozen
class Executed:
    """A process has become another program: its mappings are gone."""

    time: int
    pid: int


@frozen
class Forked:
    """A process came to be, with the mappings of its parent."""

    time: int
    pid: int
    parent: int


@frozen
class Gap:
    """So many records were lost here."""

    time: int
    count: int


Record = Mapped | Executed | Forked | Gap


def parse_task_records(data: bytes) -> Iterator[Record]:
    """Yield what a buffer holds; other records are skipped. Pure; ends where one does not fit."""
    position = 0
    while position + _HEADER.size <= len(data):
        kind, misc, size = _HEADER.unpack_from(data, position)
        body, end = position + _HEADER.size, position + size
        if size < _HEADER.size + _PIDS.size + _TIME.size or end > len(data):
            return
        (time,) = _TIME.unpack_from(data, end - _TIME.size)
        first, second = _PIDS.unpack_from(data, body)
        if kind == _MMAP2 and end - body >= _MAPPING.size + _TIME.size:
            pid, _, start, length, offset, major, minor, inode, *_ = _MAPPING.unpack_from(
                data, body
            )
            path = data[body + _MAPPING.size : end - _TIME.size].split(b"\0", 1)[0]
            yield Mapped(time, pid, start, start + length, offset, (major, minor), inode, path)
        elif kind == _COMM and misc & _MISC_COMM_EXEC:
            yield Executed(time, first)
        elif kind == _FORK and first != second:  # else a thread
            yield Forked(time, first, second)
        elif kind == _LOST and end - body >= 16 + _TIME.size:
            yield Gap(time, _TIME.unpack_from(data, body + 8)[0])
        position = end


class TaskRecords(SideRecords):
    """The records of all processes from now on; see SideRecords."""

    def __init__(self) -> None:
        super().__init__(attribute_flags(*_FLAGS), sample=_SAMPLE_TIME, clock=_CLOCK_MONOTONIC)

    def take(self) -> list[Record]:
        """What has happened since the last call, in order."""
        found = [record for data in self.buffers() for record in parse_task_records(data)]
        return sorted(found, key=lambda record: record.time)
