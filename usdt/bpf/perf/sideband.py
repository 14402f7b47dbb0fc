"""Side-band records of perf events: executable mappings, execve(2), fork(2), names, new cgroups.

A perf event that counts nothing (PERF_COUNT_SW_DUMMY) on every CPU reports executable mappings
(``attr.mmap2``, Linux 3.12, commit 13d7a2410fa6): one record for each that any process makes, by
execve(2), mmap(2) or mprotect(2). With what copies or empties an address space, fork(2) and
execve(2), the records give the mappings of a process that ended before anybody could read its
/proc/PID/maps. Nothing is sampled: a machine that starts no programs writes no records.

Each record ends with its time (PERF_SAMPLE_TIME), taken from CLOCK_MONOTONIC as the time of a
probe's hit is.

Memory of a perf ring buffer (include/uapi/linux/perf_event.h, perf_event_mmap_page):

    page 0     data_head at 1024, written by the kernel; data_tail at 1032, written by us
    pages 1…   records; data_head - data_tail bytes at data_tail & (size - 1)

Unlike BPF's ring buffer, data_head passes a record only when it is complete. When the buffer is
full, the kernel counts the records that it drops, in a record of its own.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import time
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import SyscallError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import perf_attribute, perf_event_open
from usdt.bpf._uapi import PERF_ATTR_SIZE
from usdt.bpf.maps import read_cpu_list

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "CgroupRecord",
    "ExecRecord",
    "ForkRecord",
    "LostRecord",
    "MmapRecord",
    "NameRecord",
    "PerfSideband",
    "parse_records",
)

_TYPE_SOFTWARE = 1
_COUNT_SW_DUMMY = 9
_SAMPLE_TIME = 1 << 2
_CLOCK_MONOTONIC = 1
_LOST, _COMM, _FORK, _MMAP2, _CGROUP = 2, 3, 7, 10, 19  # PERF_RECORD_…
_MISC_COMM_EXEC = 1 << 13
_HEADER = struct.Struct("=IHH")  # type, misc, size
_PIDS = struct.Struct("=II")
# pid, tid, addr, len, pgoff, maj, min, ino, ino_generation, prot, flags
_MAPPING = struct.Struct("=IIQQQIIQQII")
_LOSS = struct.Struct("=QQ")  # id, lost
_TIME = struct.Struct("=Q")
# Bits of struct perf_event_attr.
_ALWAYS = (14, 18, 25)  # watermark, sample_id_all, use_clockid
_MAPPINGS = (8, 23)  # mmap, mmap2
_TASKS = (9, 13, 24)  # comm, task, comm_exec
# comm_exec, cgroup. comm_exec alone has no records, but is a bit by which is_sb_event() in
# kernel/events/core.c tells who wants any, which cgroup is not.
_CGROUPS = (24, 32)
_HEAD, _TAIL = 1024 // 8, 1032 // 8
_READINGS = 10  # at most, while programs start without a pause
_PAGES = 16  # of each CPU's buffer: some hundred records


@frozen
class MmapRecord:
    """A process has mapped a file, or memory without one, executable.

    Attributes:
        time: CLOCK_MONOTONIC, nanoseconds.
        pid: the process, as we see it; 0 outside our PID namespace.
        start, end: addresses of the mapping.
        offset: of the mapping in the file, bytes.
        device: (major, minor) of the file.
        inode: of the file; 0: no file.
        generation: tells files apart that had the same inode one after the other; 0 where the
            file system has none.
        path: the file's name in the process's own namespace.
    """

    time: int
    pid: int
    start: int
    end: int
    offset: int
    device: tuple[int, int]
    inode: int
    generation: int
    path: bytes


@frozen
class ExecRecord:
    """A process executes another program: its mappings are gone."""

    time: int
    pid: int


@frozen
class ForkRecord:
    """A new process, with the mappings of its parent."""

    time: int
    pid: int
    parent: int


@frozen
class NameRecord:
    """A process has changed its name (``comm``) without execve(2)."""

    time: int
    pid: int


@frozen
class CgroupRecord:
    """A new cgroup of version 2, before any process is in it.

    Attributes:
        time: CLOCK_MONOTONIC, nanoseconds.
        id: the number by which programs know it.
        path: from the root of the hierarchy.
    """

    time: int
    id: int
    path: bytes


@frozen
class LostRecord:
    """The kernel dropped ``count`` records here, because the buffer was full."""

    time: int
    count: int


Record = MmapRecord | ExecRecord | ForkRecord | NameRecord | CgroupRecord | LostRecord


def parse_records(data: bytes) -> Iterator[Record]:
    """Yield the records of a buffer; skip those of other types, and stop at a damaged one."""
    position = 0
    while position + _HEADER.size <= len(data):
        kind, misc, size = _HEADER.unpack_from(data, position)
        body, end = position + _HEADER.size, position + size
        if size < _HEADER.size + _PIDS.size + _TIME.size or end > len(data):
            return
        (time,) = _TIME.unpack_from(data, end - _TIME.size)
        first, second = _PIDS.unpack_from(data, body)
        if kind == _MMAP2 and end - body >= _MAPPING.size + _TIME.size:
            yield _mapping(time, data[body : end - _TIME.size])
        elif kind == _COMM and misc & _MISC_COMM_EXEC:
            yield ExecRecord(time, first)
        elif kind == _COMM and first == second:  # else a thread has named itself
            yield NameRecord(time, first)
        elif kind == _FORK and first != second:  # else a thread
            yield ForkRecord(time, first, second)
        elif kind == _CGROUP:
            path = data[body + _TIME.size : end - _TIME.size].split(b"\0", 1)[0]
            yield CgroupRecord(time, _TIME.unpack_from(data, body)[0], path)
        elif kind == _LOST and end - body >= _LOSS.size + _TIME.size:
            yield LostRecord(time, _LOSS.unpack_from(data, body)[1])
        position = end


def _mapping(time: int, body: bytes) -> MmapRecord:
    fields = _MAPPING.unpack_from(body)
    pid, _, start, length, offset, major, minor, inode, generation, *_ = fields
    path = body[_MAPPING.size :].split(b"\0", 1)[0]
    device = major, minor
    return MmapRecord(time, pid, start, start + length, offset, device, inode, generation, path)


class PerfSideband(Closeable):
    """Side-band records of all CPUs from now on; a context manager.

    CPUs that come online later are not watched.

    Args:
        tasks: report execve(2), fork(2) and changes of names.
        mappings: report executable mappings.
        cgroups: report new cgroups, and nothing else (Linux 5.7, commit 96aaab686505).

    Raises:
        SyscallError: EACCES and EPERM without CAP_PERFMON; EMFILE; EINVAL: an older kernel.
    """

    def __init__(
        self, *, tasks: bool = False, mappings: bool = True, cgroups: bool = False
    ) -> None:
        self._rings: list[_Ring] = []
        wanted = (*(_MAPPINGS if mappings else ()), *(_TASKS if tasks else ()))
        flags = _attribute_flags(*_ALWAYS, *(_CGROUPS if cgroups else wanted))
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for cpu in read_cpu_list("online"):
                self._rings.append(_Ring(cpu, flags))
            undo.pop_all()

    @property
    def descriptors(self) -> list[int]:
        """Descriptors, readable (epoll) when there are records."""
        return [ring.fd.fileno() for ring in self._rings]

    def take(self) -> list[Record]:
        """Return the records since the last call, in order of time.

        A process may begin on a CPU whose buffer has been read, and run on one whose buffer is
        read next. So the buffers are read again until none has a record newer than that reading.
        """
        records: list[Record] = []
        for _ in range(_READINGS):
            began = time.monotonic_ns()
            pieces = [piece for ring in self._rings if (piece := ring.take())]
            if not pieces:
                break
            found = [*chain.from_iterable(map(parse_records, pieces))]
            records += found
            if all(record.time < began for record in found):
                break
        return sorted(records, key=attrgetter("time")) if records else records

    def take_pids(self) -> set[int] | None:
        """Return the processes that the records since the last call name; None: some were lost."""
        pids: set[int] = set()
        lost = False
        for record in chain.from_iterable(parse_records(ring.take()) for ring in self._rings):
            if isinstance(record, LostRecord):
                lost = True
            elif not isinstance(record, CgroupRecord):
                pids.add(record.pid)
        return None if lost else pids

    def close(self) -> None:
        """Stop watching; idempotent."""
        for ring in self._rings:
            ring.close()
        self._rings.clear()


class _Ring:
    # The event of one CPU, and its buffer.

    def __init__(self, cpu: int, flags: int) -> None:
        attribute, _ = perf_attribute(
            "IIQQQQQII36xi16x",
            *(_TYPE_SOFTWARE, PERF_ATTR_SIZE, _COUNT_SW_DUMMY, 0, _SAMPLE_TIME, 0),
            # The watermark is one byte: side-band records do not count as wake-up events.
            *(flags, 1, 0, _CLOCK_MONOTONIC),
        )
        self.fd = FD(perf_event_open(attribute, -1, cpu))
        page = os.sysconf("SC_PAGE_SIZE")
        self._size = _PAGES * page
        try:
            self._memory = mmap.mmap(self.fd.fileno(), page + self._size)
        except OSError as err:
            self.fd.close()
            raise SyscallError(err.errno or 0, "mmap of a perf event's buffer") from err
        self._control = memoryview(self._memory)[:page].cast("Q")
        self._data = memoryview(self._memory)[page:]

    def take(self) -> bytes:
        # As in usdt/bpf/rings/ringbuf.py, the code between these two loads stands in for a barrier.
        head, tail = self._control[_HEAD], self._control[_TAIL]
        if head == tail:
            return b""
        start, length = tail % self._size, head - tail
        data = bytes(self._data[start : start + length])
        if len(data) < length:
            data += bytes(self._data[: length - len(data)])
        self._control[_TAIL] = head
        return data

    def close(self) -> None:
        if self.fd.closed:
            return
        self._control.release()
        self._data.release()
        self._memory.close()
        self.fd.close()


def _attribute_flags(*bits: int) -> int:
    # The bit-field of struct perf_event_attr begins at the other end on big-endian machines.
    return sum(1 << (bit if sys.byteorder == "little" else 63 - bit) for bit in bits)
