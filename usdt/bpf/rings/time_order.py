"""The records of several ring buffers in the order of time.

Every record begins with the time at which it was written: a program reserves the record, then reads
the clock. The reader notes the time and then takes from every buffer what is complete. It has then
seen all records that are older, and keeps the newer ones for the next time. Behind a record that is
still being written, others may wait whose time nobody knows: nothing newer than the last record
before it is handed out.

With the extra numpy, times are sorted and records are copied by its C code, once there were many.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, TypeAlias

from usdt.base.frozen import frozen
from usdt.bpf.rings.numpy_import import numpy_after
from usdt.bpf.rings.ringbuf import BUSY, DISCARD, HEADER, equal_runs, record_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("TakenRecords", "TimeOrder")

_BLOCK = 256  # records that one call unpacks
_Times: TypeAlias = Any  # list[int], or numpy.ndarray: numpy need not be installed


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


class TimeOrder:
    """Puts the records of several ring buffers in the order of time.

    Args:
        count: of the ring buffers.
        most: bytes that are held back. If there are more, they no longer wait for a record that is
            being written.
    """

    def __init__(self, count: int, most: int = 64 << 20) -> None:
        self._sources: list[_Source] = [_Source() for _ in range(count)]
        self._most = most
        self._numpy: Any = None

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
        if self._numpy is not None:
            return _sorted_by_arrays(self._numpy, given)
        times = list(itertools.chain.from_iterable(one for one, _ in given))
        self._numpy = numpy_after(len(times))
        if self._numpy is not None:
            self._sources = [_ArraySource(self._numpy, one) for one in self._sources]
        # Of records of one time, those of one buffer keep their order.
        return _joined(given, sorted(range(len(times)), key=times.__getitem__))


class _Source:
    # Records of one ring buffer that are not handed out yet.
    def __init__(self) -> None:
        self.data = b""
        self.newest = 0  # the time of the last record that was taken
        self.times: _Times = []  # of the records in ``data``

    def add(self, taken: bytes) -> None:
        if not taken:
            return
        times = _times(taken)
        if times[0] < self.newest or times != sorted(times):
            # A program that interrupts another writes its record while that one is written.
            times = list(itertools.accumulate(times, max, initial=self.newest))[1:]
        self.newest = times[-1]
        self.times += times
        self.data += taken

    def until(self, limit: int) -> tuple[_Times, bytes] | None:
        # Removes the records up to a time: when each was written, and their bytes.
        count = self._older(limit)
        if not count:
            return None
        times, data = self.times, self.data
        self.times = times[count:]
        end = _end(data, count) if len(self.times) else len(data)
        self.data = data[end:]
        return times[:count], data[:end]

    def _older(self, limit: int) -> int:
        return bisect_right(self.times, limit)


class _ArraySource(_Source):
    # The same, whose times are an array of numpy.
    def __init__(self, numpy: Any, source: _Source) -> None:
        self._numpy = numpy
        self.data = source.data
        self.newest = source.newest
        self.times = numpy.array(source.times, numpy.uint64)

    def add(self, taken: bytes) -> None:
        if not taken:
            return
        np = self._numpy
        size = _size_of_all(np, (taken,))
        if size:
            times = np.ndarray((len(taken) // size,), np.uint64, taken, HEADER, (size,))
        else:
            times = np.array(_times(taken), np.uint64)
        if times[0] < self.newest or (times[1:] < times[:-1]).any():
            times = np.maximum.accumulate(np.maximum(times, np.uint64(self.newest)))
        self.newest = int(times[-1])
        self.times = np.concatenate((self.times, times))
        self.data += taken

    def _older(self, limit: int) -> int:
        return int(self.times.searchsorted(self._numpy.uint64(limit), "right"))


def _sorted_by_arrays(numpy: Any, given: Sequence[tuple[_Times, bytes]]) -> bytes:
    # The records of several sources by their times.
    if not given:
        return b""
    order = numpy.concatenate([times for times, _ in given]).argsort(kind="stable")
    size = _size_of_all(numpy, [data for _, data in given])
    if not size:
        return _joined(given, order.tolist())
    records = numpy.frombuffer(b"".join(data for _, data in given), f"V{size}")
    taken: bytes = records.take(order).tobytes()
    return taken


def _size_of_all(numpy: Any, data: Sequence[bytes]) -> int:
    # The bytes of each record if all are alike and none was discarded; 0 if not.
    header = memoryview(data[0])[:4].cast("I")[0]
    size = record_words(header) << 2
    if header & (BUSY | DISCARD) or any(len(one) % size for one in data):
        return 0
    columns = (numpy.ndarray((len(one) // size,), "=u4", one, 0, (size,)) for one in data)
    return size if all(bool((column == header).all()) for column in columns) else 0


def _joined(given: Sequence[tuple[_Times, bytes]], order: Sequence[int]) -> bytes:
    # The records in an order.
    records: list[bytes] = []
    for _, data in given:
        records += _records(data)
    return b"".join([records[at] for at in order])


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
        blocks, end = start + count // _BLOCK * _BLOCK * size, start + count * size
        if blocks > start:
            for row in struct.iter_unpack(f"{size}s" * _BLOCK, view[start:blocks]):
                yield from row
        for (record,) in struct.iter_unpack(f"{size}s", view[blocks:end]):
            yield record
