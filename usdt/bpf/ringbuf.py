"""The BPF ring buffer as its reader sees it.

Memory, mapped from the map's descriptor (``kernel/bpf/ringbuf.c``):

    page 0          consumer position, written by us
    page 1          producer position, read only
    pages 2…        the data, mapped twice in a row, so that no record is ever cut in two

Both positions only grow (they are ``unsigned long``: on 32-bit kernels of four bytes, and start
again from 0 after 4 GiB); ``position & (size - 1)`` is the place. A record is an eight-byte
header, whose first 32 bits are its length with two flags on top, and a body padded to eight
bytes. BUSY: its program has reserved it and not yet submitted it; nothing behind it may be read.
DISCARD: the program gave it up; skip it.

Wake-ups. A program submits with flags 0, for which the kernel wakes the reader only when the
reader has caught up with the very record submitted. One wake-up per event would cost several
times the probe itself, so it is the reader's pace that makes batches: after taking something it
stays away for some milliseconds (see ``usdt.engine.runtime.ringbuf_reader``), and whatever arrives
meanwhile costs at most one wake-up. There is no timer to wait for: the first event of a quiet spell
is shown at once. The pause is a fraction of the time that the fastest program needs to fill the
buffer; where a busy machine keeps the reader away for longer, programs find no room, and count
that.

Headers are read in the mapping, and only what they say is committed is copied. Copying first and
looking at the copy tears records: a memcpy reads in no particular order and takes long enough for
a program to fill and submit a record whose body was read before and whose header is read after.

Reading a position or a header is one aligned load by CPython's memoryview. Between that load and
the copy of the data lie thousands of instructions and several function calls; on CPUs that
reorder loads this is what stands in for an acquire barrier, as no barrier can be had here.
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
    "RingBuffer",
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
_POSITION: Literal["I", "Q"] = "Q" if KERNEL_WORD_SIZE == 8 else "I"
_POSITIONS = (1 << 8 * KERNEL_WORD_SIZE) - 1
_TAKE = 4 << 20  # bytes copied at once: their place is free again before the next are copied


def ring_size(wanted: int) -> int:
    """The size the kernel accepts for ``wanted`` bytes: a power of two of at least a page.

    Raises:
        TracingError: more than a map's size, a number of 32 bits, can be.
    """
    if wanted > _LARGEST:
        raise TracingError(f"ring buffer of {wanted} bytes: at most {_LARGEST} (2 GiB) can be had")
    size = os.sysconf("SC_PAGE_SIZE")
    while size < wanted:
        size *= 2
    return size


def record_words(header: int) -> int:
    """Words of 32 bits from a record with this header to the next."""
    return ((header & _LENGTH) + HEADER + 7 >> 3) << 1


def committed_size(data: bytes | memoryview, limit: int = 1 << 40) -> int:
    """How many leading bytes of ``data`` are whole records that are not busy; see tally()."""
    return count_committed(data, limit)[0]


def count_committed(data: bytes | memoryview, limit: int = 1 << 40) -> tuple[int, int]:
    """The leading whole records of ``data`` that are not busy: bytes, and how many are submitted.

    Pure: ``data`` begins at a record. Runs of one length are counted by C code, records that
    take turns by a loop that does little else.

    Args:
        data: what is between the reader and the writers, or some of it.
        limit: end after this many bytes, but not before the first record has.
    """
    words = memoryview(data).cast("I")
    total = len(words)
    stop = min(total, limit >> 2)
    position = records = 0
    while position < stop:
        header = words[position]
        if header & BUSY:
            break
        step = ((header & _LENGTH) + HEADER + 7 >> 3) << 1  # stride(), without a call
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
    """Yield (offset, bytes from record to record, records, header) of records of one length.

    Discarded records are runs of their own, with DISCARD set in the header.
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
    """How many words from ``start`` in steps of ``stride`` equal the first one, up to ``limit``.

    They are compared in doubling strides: a run of one costs little, and one of thousands is
    compared by C code.
    """
    first = words[start]
    total = min(limit, -(-(len(words) - start) // stride))
    run = width = 1
    while run < total:
        width = min(width * 2, total - run)
        begin = start + run * stride
        column = words[begin : begin + width * stride : stride].tolist()
        if column.count(first) != width:
            return run + next(i for i, word in enumerate(column) if word != first)
        run += width
    return run


def _made(size: int, name: str) -> Map:
    try:
        return MapSpec(MapType.RINGBUF, 0, 0, size, name).create()
    except SyscallError as err:
        if err.errno != errno.ENOMEM:
            raise
        # bpf_ringbuf_area_alloc() maps the data twice, and 32-bit kernels have some 100 MiB to map.
        what = f"bpf(BPF_MAP_CREATE) of {size} bytes of ring buffer"
        hint = "the kernel has no room for twice as much; give a smaller buffer"
        raise SyscallError(errno.ENOMEM, what, hint) from err


class RingBuffer(Closeable):
    """A ring buffer map and its mapping; a context manager.

    Args:
        size: bytes; rounded up to a power of two of at least a page.

    Raises:
        TracingError: more than 2 GiB.
        NotSupported: the kernel has no ring buffer.
        SyscallError: it refuses to make or to map this one.
    """

    def __init__(self, size: int, name: str = "events") -> None:
        self.size = ring_size(size)
        self.map: Map = _made(self.size, name)
        page = os.sysconf("SC_PAGE_SIZE")
        with contextlib.ExitStack() as undo:
            undo.callback(self.map.close)
            self._consumer_page = self._map(page, 0, mmap.PROT_READ | mmap.PROT_WRITE)
            undo.callback(self._consumer_page.close)
            self._data_pages = self._map(page + 2 * self.size, page, mmap.PROT_READ)
            undo.pop_all()
        self._consumer = memoryview(self._consumer_page).cast(_POSITION)
        self._producer = memoryview(self._data_pages)[:KERNEL_WORD_SIZE].cast(_POSITION)
        self._data = memoryview(self._data_pages)[page:]

    @property
    def fd(self) -> FD:
        """The map's descriptor: readable (epoll) when there is something to take."""
        return self.map.fd

    def pending(self) -> int:
        """Bytes between the reader and the writers."""
        return int(self._producer[0]) - int(self._consumer[0]) & _POSITIONS

    def take(self) -> bytes:
        """Copy out whole records, some megabytes at most, and free their place; b"": none."""
        position = self._consumer[0]
        length = self._producer[0] - position & _POSITIONS
        if not length:
            return b""
        start = position & (self.size - 1)
        ready = committed_size(self._data[start : start + length], _TAKE)
        data = bytes(self._data[start : start + ready])  # after the headers, never before them
        self._consumer[0] = position + ready & _POSITIONS
        return data

    def _map(self, length: int, offset: int, protection: int) -> mmap.mmap:
        try:
            return mmap.mmap(self.fd.fileno(), length, prot=protection, offset=offset)
        except OSError as err:
            raise SyscallError(err.errno or 0, f"mmap of {length} bytes of ring buffer") from err

    def close(self) -> None:
        """Unmap and close; again is fine."""
        if self.fd.closed:
            return
        for view in (self._consumer, self._producer, self._data):
            view.release()
        self._consumer_page.close()
        self._data_pages.close()
        self.map.close()
