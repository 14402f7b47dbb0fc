"""Ring buffers of several groups of CPUs, read as one.

Programs that write to one ring buffer wait for its lock. Two CPUs that do nothing but write take
290 nanoseconds a record; one alone takes 80 (Linux 6.18, in a virtual machine).
So a machine with many CPUs has a buffer for every few of them. Programs find theirs in an array of
maps, by the number of the CPU.

The reader puts the records of all buffers in the order of time. Every record begins with the time
at which it was written: a program reserves the record, then reads the clock. The reader notes the
time and then takes from every buffer what is complete. It has then seen all records that are older,
and keeps the newer ones for the next time. Behind a record that is still being written, others may
wait whose time nobody knows: nothing newer than the last record before it is handed out.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import struct
import time
from bisect import bisect_right
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.frozen import frozen
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec, read_cpu_list
from usdt.bpf.rings.ringbuf import DISCARD, TAKE, RingBuffer, equal_runs, ring_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.base.closeable import FD
    from usdt.bpf.rings.ringbuf import RingMemory

__all__ = (
    "ONE_RING",
    "RingBuffers",
    "RingGroups",
    "RingsInOrder",
    "TakenRecords",
    "TimeOrder",
    "groups_of",
    "ring_groups",
    "size_of_each",
)

_ALONE = 2  # CPUs that share a buffer without waiting for each other: measured
_MOST = 16  # buffers
_PARTS = 4  # each buffer has a quarter at least: what one busy CPU needs does not become less
_INDEX = struct.Struct("=I")


@frozen
class RingGroups:
    """How CPUs share ring buffers: the buffer of a CPU has the index ``CPU >> shift``.

    Attributes:
        count: of the ring buffers.
        shift: see above.
        array_size: bytes of each if they are in an array (:mod:`.array_rings`); 0: the kernel's.
    """

    count: int
    shift: int
    array_size: int = 0

    @property
    def cpus(self) -> int:
        """How many CPUs may share one of them."""
        return 1 << self.shift if self.count > 1 else _ALONE


ONE_RING = RingGroups(1, 0)


@functools.cache
def ring_groups() -> RingGroups:
    """Return how the CPUs of this machine share ring buffers: there are 16 of them at most."""
    return groups_of(max(read_cpu_list("possible")) + 1)


def groups_of(cpus: int) -> RingGroups:
    """Return how so many CPUs share ring buffers."""
    if cpus <= _ALONE:
        return ONE_RING
    shift = max((cpus - 1).bit_length() - _MOST.bit_length() + 1, 0)
    return RingGroups((cpus - 1 >> shift) + 1, shift)


def size_of_each(size: int, count: int) -> int:
    """Return the bytes of each of ``count`` ring buffers: a power of two, a quarter at least.

    Raises:
        TracingError: more than 2 GiB each.
    """
    return ring_size(-(-size // min(count, _PARTS)))


@frozen
class TakenRecords:
    """Records as they were taken from several ring buffers.

    Attributes:
        before: when: CLOCK_MONOTONIC nanoseconds.
        data: of each ring buffer.
        complete: of each ring buffer, whether that is all that was written before.
    """

    before: int
    data: tuple[bytes, ...]
    complete: tuple[bool, ...]

    def __len__(self) -> int:
        return sum(map(len, self.data))

    def __bool__(self) -> bool:
        return True  # without records, it lets those go that are held back


class RingsInOrder:
    """The reader's side of several ring buffers that are read as one.

    Args:
        rings: the ring buffers; their owner closes them.
    """

    def __init__(self, rings: Sequence[RingMemory]) -> None:
        self._rings = rings
        self._open = False  # whether some of what was taken last waits for the next take()
        self._order = TimeOrder(len(rings))

    def pending(self) -> int:
        """Return the number of bytes between reader and writers; 1: none, but take() is due."""
        return sum(ring.pending() for ring in self._rings) or int(self._open)

    def filling(self, share: int) -> bool:
        """Whether more than one part in ``share`` of one of them is waiting."""
        return any(ring.filling(share) for ring in self._rings)

    def take(self, most: int = TAKE) -> TakenRecords | None:
        """Copy complete records and free them, for :meth:`ordered`; None: there are none.

        After records the next call returns something in any case, so that none of them wait.

        Args:
            most: bytes that are taken, or a record of each ring buffer if that is more.
        """
        now = time.monotonic_ns()
        room = max(most // len(self._rings), 1)
        waiting = [ring.pending() for ring in self._rings]
        taken = [
            ring.take(room) if there else b""
            for ring, there in zip(self._rings, waiting, strict=True)
        ]
        complete = [len(data) >= there for data, there in zip(taken, waiting, strict=True)]
        if not any(taken) and not self._open:
            return None
        self._open = any(taken)
        return TakenRecords(now, tuple(taken), tuple(complete))

    def ordered(self, taken: TakenRecords) -> bytes:
        """Return records in the order of time: those that were taken, and those held back before.

        Another thread may call :meth:`take` meanwhile.
        """
        return self._order.next(taken)


class RingBuffers(RingsInOrder, Closeable):
    """Several ring buffers of the kernel that are read as one; a context manager.

    Args:
        size: bytes of all of them if there are up to four; of more, each has a quarter.
        count: of the ring buffers.
        name: of the array of maps.

    Attributes:
        size: bytes of each.
        map: the array of maps in which programs find the ring buffer of their CPU.

    Raises:
        TracingError: more than 2 GiB each.
        NotSupported: the kernel has no ring buffer.
        SyscallError: the kernel cannot create or map them.
    """

    def __init__(self, size: int, count: int, name: str = "events") -> None:
        self.size = size_of_each(size, count)
        with contextlib.ExitStack() as undo:
            rings = [undo.enter_context(RingBuffer(self.size, name)) for _ in range(count)]
            spec = MapSpec(MapType.ARRAY_OF_MAPS, _INDEX.size, _INDEX.size, count, name)
            self.map = undo.enter_context(spec.create(rings[0].map))
            for index, ring in enumerate(rings):
                self.map.set(_INDEX.pack(index), _INDEX.pack(ring.fd.fileno()))
            self._resources = undo.pop_all()
        self.descriptors: tuple[FD, ...] = tuple(ring.fd for ring in rings)
        super().__init__(rings)

    def close(self) -> None:
        """Unmap and close; idempotent."""
        self._resources.close()


class TimeOrder:
    """Puts the records of several ring buffers in the order of time.

    Args:
        count: of the ring buffers.
        most: bytes that are held back. If there are more, they no longer wait for a record that is
            being written.
    """

    def __init__(self, count: int, most: int = 64 << 20) -> None:
        self._sources = [_Source() for _ in range(count)]
        self._most = most

    def next(self, taken: TakenRecords) -> bytes:
        """Add records; return those before which no others can come."""
        limit = taken.before
        for one, data, complete in zip(self._sources, taken.data, taken.complete, strict=True):
            one.add(data)
            if not complete:
                limit = min(limit, one.newest)
        if sum(len(one.data) for one in self._sources) > self._most:
            limit = taken.before
        given = [part for one in self._sources if (part := one.until(limit))]
        if len(given) == 1:
            return given[0][1]
        times = list(itertools.chain.from_iterable(one for one, _ in given))
        records = list(itertools.chain.from_iterable(_records(data) for _, data in given))
        # Of records of one time, those of one buffer keep their order.
        order = sorted(range(len(times)), key=times.__getitem__)
        return b"".join([records[at] for at in order])


class _Source:
    # Records of one ring buffer that are not handed out yet.
    def __init__(self) -> None:
        self.data = b""
        self.newest = 0  # the time of the last record that was taken
        self._times: list[int] = []  # of the records in ``data``

    def add(self, taken: bytes) -> None:
        if not taken:
            return
        times = _times(taken)
        if times[0] < self.newest or times != sorted(times):
            # A program that interrupts another writes its record while that one is written.
            times = list(itertools.accumulate(times, max, initial=self.newest))[1:]
        self.newest = times[-1]
        self._times += times
        self.data += taken

    def until(self, limit: int) -> tuple[list[int], bytes] | None:
        # Removes the records up to a time: when each was written, and their bytes.
        count = bisect_right(self._times, limit)
        if not count:
            return None
        times, data = self._times, self.data
        self._times = times[count:]
        del times[count:]
        end = _end(data, count) if self._times else len(data)
        self.data = data[end:]
        return times, data[:end]


def _times(data: bytes) -> list[int]:
    words = memoryview(data).cast("Q")
    times: list[int] = []
    for start, size, count, header in equal_runs(data):
        if header & DISCARD:  # it has no time
            times += itertools.repeat(0, count)
        else:
            end = start + size * count
            times += words[start // 8 + 1 : end // 8 : size // 8].tolist()
    return times


def _end(data: bytes, records: int) -> int:
    # Where so many records end.
    for start, size, count, _ in equal_runs(data):
        if records <= count:
            return start + size * records
        records -= count
    return len(data)


def _records(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for start, size, count, _ in equal_runs(data):
        for (record,) in struct.iter_unpack(f"{size}s", view[start : start + size * count]):
            yield record
