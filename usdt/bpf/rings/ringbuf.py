"""The reader's side of the BPF ring buffer.

Memory, mapped from the map's descriptor (``kernel/bpf/ringbuf.c``):

    page 0          consumer position, written by us
    page 1          producer position, read only
    pages 2…        the data, then the data again, so that every record is contiguous

The second copy of the data is not mapped here: all of it would count as memory of this process, and
mapping takes time. The reader puts the record together that goes beyond the end of the data.

Both positions only grow (they are ``unsigned long``: four bytes on 32-bit kernels, where they wrap
around to 0 after 4 GiB); the offset in the data is ``position & (size - 1)``. A record is an
eight-byte header, whose first 32 bits are its length and two flags, and a body padded to eight
bytes. BUSY: its program has reserved it and not yet submitted it; nothing after it may be read.
DISCARD: the program discarded it; skip it.

Wake-ups. A program submits with flags 0: the kernel then wakes the reader only if the reader has
read everything before this record. One wake-up per event would cost several times the probe
itself, so the reader makes batches: after it has taken records, it sleeps for some milliseconds
(see ``usdt.engine.runtime.ringbuf_reader``), and all records that arrive meanwhile cost at most one
wake-up. There is no timer to wait for: the first event of a quiet period is shown at once. The
pause is a fraction of the time that the fastest program needs to fill the buffer. If a busy machine
keeps the reader away for longer, the buffer is full, and the programs count the lost records.

The reader looks at headers in the mapping, and copies only committed records. To copy first and
look at the headers of the copy would tear records: a memcpy reads in no particular order and takes
long enough for a program to fill and submit a record between the read of its body and that of its
header.

Reading a position or a header is one aligned load by CPython's memoryview. Between that load and
the copy of the data are thousands of instructions and several function calls. On CPUs that
reorder loads, they stand in for an acquire barrier, which Python does not have.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from typing import TYPE_CHECKING, Literal

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError, TracingError
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import Map, MapSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.base.closeable import FD

__all__ = (
    "BUSY",
    "DISCARD",
    "HEADER",
    "TAKE",
    "RingBuffer",
    "RingMemory",
    "committed_size",
    "count_committed",
    "equal_runs",
    "record_words",
    "ring_size",
    "run_length",
)

BUSY = 1 << 31
DISCARD = 1 << 30
HEADER = 8  # bytes before each record's body
_LENGTH = DISCARD - 1
_LARGEST = 1 << 31
_FEW = 16  # words among which a loop finds the one that differs
_POSITION: Literal["I", "Q"] = "Q" if KERNEL_WORD_SIZE == 8 else "I"
_POSITIONS = (1 << 8 * KERNEL_WORD_SIZE) - 1
TAKE = 4 << 20  # bytes copied at once and freed before the next are copied


def ring_size(wanted: int) -> int:
    """Round ``wanted`` bytes up to what the kernel accepts: a power of two of at least a page.

    Raises:
        TracingError: more than 2 GiB, the largest power of two that a map's size can be.
    """
    if wanted > _LARGEST:
        raise TracingError(f"ring buffer of {wanted} bytes: the maximum is {_LARGEST} (2 GiB)")
    size = os.sysconf("SC_PAGE_SIZE")
    while size < wanted:
        size *= 2
    return size


def record_words(header: int) -> int:
    """Return the number of 32-bit words from a record with this header to the next."""
    return ((header & _LENGTH) + HEADER + 7 >> 3) << 1


def committed_size(data: bytes | memoryview, limit: int = 1 << 40) -> int:
    """Return the size in bytes of the leading committed records; see count_committed()."""
    return count_committed(data, limit)[0]


def count_committed(data: bytes | memoryview, limit: int = 1 << 40) -> tuple[int, int]:
    """Count the leading complete records of ``data`` that are not busy.

    C code counts runs of records of one length; a short loop counts records of alternating lengths.

    Args:
        data: the bytes between reader and writers, or a part of them; they begin with a record.
        limit: stop after this many bytes, but not before the end of the first record.

    Returns:
        (bytes, submitted records among them).
    """
    words = memoryview(data).cast("I")
    total = len(words)
    stop = min(total, limit >> 2)
    position = records = 0
    while position < stop:
        header = words[position]
        if header & BUSY or not header:
            break
        step = ((header & _LENGTH) + HEADER + 7 >> 3) << 1  # record_words(), without a call
        count = 1
        if position + step < stop and words[position + step] == header:
            count = max(1, run_length(words, position, step, (stop - position) // step))
        end = position + step * count
        if end > stop and (position or end > total):
            break
        position = end
        if not header & DISCARD:
            records += count
    return position << 2, records


def equal_runs(data: bytes | memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield runs of records of one length: (offset, bytes per record, records, header).

    Discarded records are in runs of their own, with DISCARD set in the header.
    """
    words = memoryview(data).cast("I")
    position = 0
    while position < len(words):
        header = words[position]
        step = record_words(header)
        count = run_length(words, position, step)
        yield position << 2, step << 2, count, header
        position += step * count


def run_length(words: memoryview, start: int, stride: int, limit: int = 1 << 40) -> int:
    """Count the words from ``start`` in steps of ``stride`` that equal the first, up to ``limit``.

    The words are compared with those before them, in slices of growing length: a run of one costs
    little, and C code compares a run of thousands. Slices that differ are compared again in shorter
    ones. Programs may write the words meanwhile: a word that equals the first, which is committed,
    stays so, and is compared before those behind it.
    """
    first = words[start]
    total = min(limit, -(-(len(words) - start) // stride))
    if total < 2 or words[start + stride] != first:
        return 1
    run = width = 2
    widest = total
    while run < total:
        width = min(width * 4, widest, total - run)
        begin = start + run * stride
        column = words[begin : begin + width * stride : stride]
        if words[begin - stride : begin + (width - 1) * stride : stride] != column:
            if width > _FEW:
                widest = width // 4
                continue
            # A program may have submitted the one that differed meanwhile: then all are equal.
            equal = next((i for i, word in enumerate(column.tolist()) if word != first), width)
            if equal < width:
                return run + equal
        run += width
    return run


def _create(size: int, name: str) -> Map:
    try:
        return MapSpec(MapType.RINGBUF, 0, 0, size, name).create()
    except SyscallError as err:
        if err.errno != errno.ENOMEM:
            raise
        # bpf_ringbuf_area_alloc() maps the data twice, and 32-bit kernels have some 100 MiB to map.
        what = f"bpf(BPF_MAP_CREATE) of {size} bytes of ring buffer"
        hint = "the kernel cannot map twice that size; use a smaller buffer"
        raise SyscallError(errno.ENOMEM, what, hint) from err


class RingMemory:
    """The reader's side of a ring buffer that is mapped.

    Args:
        size: bytes of the data, a power of two.
        consumer, producer: the positions, of one word each.
        data: the data.
    """

    def __init__(
        self, size: int, consumer: memoryview, producer: memoryview, data: memoryview
    ) -> None:
        self.size = size
        self._consumer = consumer
        self._producer = producer
        self._data = data

    def pending(self) -> int:
        """Return the number of bytes between reader and writers."""
        return int(self._producer[0]) - int(self._consumer[0]) & _POSITIONS

    def filling(self, share: int) -> bool:
        """Whether more than one part in ``share`` of it is waiting."""
        return self.pending() > self.size // share

    def take(self, most: int = TAKE) -> bytes:
        """Copy complete records and free them in the buffer; b"": there are none.

        Args:
            most: bytes, but at least one record is taken, and never more than some megabytes.
        """
        position = self._consumer[0]
        length = self._producer[0] - position & _POSITIONS
        if not length:
            return b""
        start, limit = position & (self.size - 1), min(most, TAKE)
        data = self._copy(start, length, limit)
        beyond = start + len(data) - self.size
        if beyond >= 0 and len(data) < min(length, limit):
            data += self._copy(beyond, length - len(data), limit - len(data))
        self._consumer[0] = position + len(data) & _POSITIONS
        return data

    def ordered(self, taken: bytes) -> bytes:
        """Return records as they are: in the order of time."""
        return taken

    def _copy(self, start: int, length: int, limit: int) -> bytes:
        # The complete records from ``start`` to the end of the data, with the one that goes beyond.
        there = self._data[start : start + length]
        ready = committed_size(there, limit)
        data = bytes(there[:ready])  # after the headers, see above
        if len(there) < length and ready < len(there):
            header = there[ready : ready + 4].cast("I")[0]
            size = 4 * record_words(header)
            beyond = ready + size - len(there)
            if not header & BUSY and beyond > 0 and (not ready or ready + size <= limit):
                data += bytes(there[ready:]) + self._data[:beyond]
        return data

    def _release(self) -> None:
        for view in (self._consumer, self._producer, self._data):
            view.release()


class RingBuffer(RingMemory, Closeable):
    """A ring buffer map and its mapping; a context manager.

    Args:
        size: bytes; rounded up to a power of two of at least a page.

    Raises:
        TracingError: more than 2 GiB.
        NotSupported: the kernel has no ring buffer.
        SyscallError: the kernel cannot create or map it.
    """

    def __init__(self, size: int, name: str = "events") -> None:
        size = ring_size(size)
        self.map: Map = _create(size, name)
        page = os.sysconf("SC_PAGE_SIZE")
        with contextlib.ExitStack() as undo:
            undo.callback(self.map.close)
            self._consumer_page = self._map(page, 0, mmap.PROT_READ | mmap.PROT_WRITE)
            undo.callback(self._consumer_page.close)
            self._data_pages = self._map(page + size, page, mmap.PROT_READ)
            undo.pop_all()
        producer = memoryview(self._data_pages)
        super().__init__(
            size,
            memoryview(self._consumer_page).cast(_POSITION),
            producer[:KERNEL_WORD_SIZE].cast(_POSITION),
            producer[page:],
        )

    @property
    def descriptors(self) -> tuple[FD, ...]:
        """The map's descriptor, readable (epoll) when there are records."""
        return (self.fd,)

    @property
    def fd(self) -> FD:
        """The map's descriptor."""
        return self.map.fd

    def _map(self, length: int, offset: int, protection: int) -> mmap.mmap:
        try:
            return mmap.mmap(self.fd.fileno(), length, prot=protection, offset=offset)
        except OSError as err:
            raise SyscallError(err.errno or 0, f"mmap of {length} bytes of ring buffer") from err

    def close(self) -> None:
        """Unmap and close; idempotent."""
        if self.fd.closed:
            return
        self._release()
        self._consumer_page.close()
        self._data_pages.close()
        self.map.close()
