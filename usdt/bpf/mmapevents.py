"""What the processes of this machine map executable, as it happens: programs, libraries.

A perf event of no event at all (PERF_COUNT_SW_DUMMY) on every CPU that reports mappings
(``attr.mmap2``, Linux 3.12, commit 13d7a2410fa6): one record for each executable mapping that any
process makes, by execve(2), mmap(2) or mprotect(2). Nothing is sampled; a machine that starts no
programs writes nothing.

Memory of a perf ring buffer (include/uapi/linux/perf_event.h, perf_event_mmap_page):

    page 0     data_head at 1024, written by the kernel; data_tail at 1032, written by us
    pages 1…   records; data_head - data_tail bytes at data_tail & (size - 1)

Unlike BPF's ring buffer, data_head passes a record only when it is whole. What finds no room is
counted in a record of its own.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
from typing import TYPE_CHECKING

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import SyscallError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import perf_attribute, perf_event_open

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "MappedNow",
    "MmapEvents",
    "SideRecords",
    "SideRing",
    "attribute_flags",
    "online_cpus",
    "parse_mmap_records",
)

_TYPE_SOFTWARE = 1
_COUNT_SW_DUMMY = 9
_ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5
_RECORD_LOST, _RECORD_MMAP2 = 2, 10
_HEADER = struct.Struct("=IHH")  # type, misc, size
# Behind the header: pid, tid, addr, len, pgoff, maj, min, ino, ino_generation, prot, flags.
_MMAP2 = struct.Struct("=IIQQQIIQQII")
_HEAD, _TAIL = 1024 // 8, 1032 // 8
_PAGES = 16  # of each CPU's buffer: some hundred records


def attribute_flags(*bits: int) -> int:
    """The bit-field of ``struct perf_event_attr`` with these bits set."""
    # The bit-field of struct perf_event_attr begins at the other end on big-endian machines.
    return sum(1 << (bit if sys.byteorder == "little" else 63 - bit) for bit in bits)


_MMAP, _WATERMARK, _MMAP2_BIT = 8, 14, 23


@frozen
class MappedNow:
    """A file that a process has just mapped executable.

    Attributes:
        pid: the process, as we see it; 0 outside our PID namespace.
        device: (major, minor) of the file.
        inode: of the file.
        generation: tells files apart that had the same inode one after the other; 0 where the
            file system has none.
        path: its name in the process's own namespace.
    """

    pid: int
    device: tuple[int, int]
    inode: int
    generation: int
    path: bytes


def parse_mmap_records(data: bytes) -> Iterator[MappedNow | int]:
    """Yield mappings, and for each gap the number of records that were lost; others are skipped.

    Pure. Ends at a record that does not fit.
    """
    position = 0
    while position + _HEADER.size <= len(data):
        kind, _, size = _HEADER.unpack_from(data, position)
        body, end = position + _HEADER.size, position + size
        if size < _HEADER.size or end > len(data):
            return
        if kind == _RECORD_MMAP2 and end - body >= _MMAP2.size:
            pid, _, _, _, _, major, minor, inode, age, *_ = _MMAP2.unpack_from(data, body)
            path = data[body + _MMAP2.size : end].split(b"\0", 1)[0]
            if inode:  # else the vDSO, or memory
                yield MappedNow(pid, (major, minor), inode, age, path)
        elif kind == _RECORD_LOST and end - body >= 16:
            yield int(struct.unpack_from("=Q", data, body + 8)[0])
        position = end


class SideRing:
    """One CPU's event of no event at all, and the buffer of its side records.

    Args:
        cpu: its number.
        flags: the bit-field of ``struct perf_event_attr``: which records.
        sample: ``attr.sample_type``: what follows each record, with ``sample_id_all``.
        clock: ``attr.clockid``, with ``use_clockid``.
        pages: of the buffer; a power of two.

    Raises:
        SyscallError: EACCES and EPERM without CAP_PERFMON; EMFILE.
    """

    def __init__(
        self, cpu: int, flags: int, *, sample: int = 0, clock: int = 0, pages: int = _PAGES
    ) -> None:
        attribute, _ = perf_attribute(
            "IIQQQQQII36xi16x",
            *(_TYPE_SOFTWARE, _ATTR_SIZE, _COUNT_SW_DUMMY, 0, sample, 0),
            # Woken by every byte: side records count as no events.
            *(flags, 1, 0, clock),
        )
        self.fd = FD(perf_event_open(attribute, -1, cpu))
        page = os.sysconf("SC_PAGE_SIZE")
        self._size = pages * page
        try:
            self._memory = mmap.mmap(self.fd.fileno(), page + self._size)
        except OSError as err:
            self.fd.close()
            raise SyscallError(err.errno or 0, "mmap of a perf event's buffer") from err
        self._control = memoryview(self._memory)[:page].cast("Q")
        self._data = memoryview(self._memory)[page:]

    def take(self) -> bytes:
        """The records written since."""
        # As in usdt/bpf/ringbuf.py, what lies between these two loads stands in for a barrier.
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
        """Stop; again is fine."""
        if self.fd.closed:
            return
        self._control.release()
        self._data.release()
        self._memory.close()
        self.fd.close()


class SideRecords(Closeable):
    """Side records of every CPU from now on; a context manager.

    CPUs that are switched on later are not watched.

    Args:
        flags, sample, clock: as :class:`SideRing` has them.

    Raises:
        SyscallError: EACCES and EPERM without CAP_PERFMON; EMFILE.
    """

    def __init__(self, flags: int, *, sample: int = 0, clock: int = 0) -> None:
        self._rings: list[SideRing] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for cpu in online_cpus():
                self._rings.append(SideRing(cpu, flags, sample=sample, clock=clock))
            undo.pop_all()

    @property
    def descriptors(self) -> list[int]:
        """Readable (epoll) when there is something to take."""
        return [ring.fd.fileno() for ring in self._rings]

    def buffers(self) -> Iterator[bytes]:
        """The records written since, CPU by CPU."""
        for ring in self._rings:
            yield ring.take()

    def close(self) -> None:
        """Stop watching; again is fine."""
        for ring in self._rings:
            ring.close()
        self._rings.clear()


class MmapEvents(SideRecords):
    """The executable mappings that all processes make from now on; see SideRecords."""

    def __init__(self) -> None:
        super().__init__(attribute_flags(_MMAP, _WATERMARK, _MMAP2_BIT))

    def take(self) -> Iterator[MappedNow | int]:
        """What has happened since, CPU by CPU; a number is how many records were lost."""
        for data in self.buffers():
            yield from parse_mmap_records(data)


def online_cpus() -> Iterator[int]:
    """The numbers of the CPUs that are switched on."""
    with open("/sys/devices/system/cpu/online") as file:  # noqa: PTH123 - pathlib costs an import
        for part in file.read().strip().split(","):
            first, _, last = part.partition("-")
            yield from range(int(first), int(last or first) + 1)
