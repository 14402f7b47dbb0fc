"""Ring buffers in an array map, to which programs write without a helper and without a lock.

A record of the kernel's ring buffer costs two helper calls and a lock, some 40 nanoseconds. In an
array that is mapped into this process (Linux 5.5, commit fc9702273e2e), a program reserves a record
by one compare-and-exchange (Linux 5.12, commit 5ffa25502b5a), and submits it by a store. Hits that
interrupt each other, and CPUs that share a ring buffer, only repeat the exchange.

The array has one entry, whose address is a constant of the program (Linux 5.2, commit
d8eca5bbb2be):

    positions   of each ring buffer, 256 bytes: HEAD, written by programs; TAIL, written by us
    data        of each ring buffer

Positions grow and never wrap around; the offset in the data is ``position & (size - 1)``. A record
has the header of the kernel's ring buffer (:mod:`.ringbuf`), with two differences. A header whose
length is 0 is that of a record that is being written: the reader clears what it has read before it
moves TAIL. The second word has the low half of the record's position. A record does not go beyond
the end of the data: a program discards what is left there, and begins at the start.

An array cannot wake its reader. A program that submits a record at TAIL, where the reader waits,
rings a bell: it writes to a small ring buffer of the kernel, whose descriptor becomes readable. So
the rule for wake-ups is that of the kernel's ring buffer.

Programs rely on stores that stay in order, and the reader on loads of eight bytes at once. 64-bit
processes of x86-64 have both; others have the kernel's ring buffers.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Any

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec
from usdt.bpf.rings.ringbuf import TAKE, RingBuffer, RingMemory, committed_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.base.closeable import FD
    from usdt.bpf.maps import Map
    from usdt.bpf.rings.groups import RingGroups
    from usdt.bpf.rings.several import RingsInOrder
    from usdt.bpf.rings.time_order import TakenRecords

__all__ = ("HEAD", "POSITIONS", "TAIL", "ArrayRing", "ArrayRings", "can_use_array")

HEAD, TAIL = 0, 128  # offsets in the positions; not in the same pair of lines of a cache
POSITIONS = 256  # bytes of the positions of a ring buffer
_MMAPABLE = 1 << 10  # BPF_F_MMAPABLE
#: The verifier lets programs add up to 512 MiB to an address (BPF_MAX_VAR_OFF).
_MOST = 1 << 28
_SHARING = 4  # CPUs
_BELL = 4096  # bytes
_ZEROS = memoryview(bytes(TAKE))


def can_use_array(groups: RingGroups, size: int) -> bool:
    """Whether ring buffers of ``size`` bytes each can be in an array, by kernel and machine.

    Not if many CPUs share one: their exchanges would fail one another's.
    """
    return (
        PROCESS_MACHINE == "x86_64"
        and groups.cpus <= _SHARING
        and groups.count * size <= _MOST
        and features.have_fetching_atomics()
    )


class ArrayRings(Closeable):
    """Ring buffers in an array, read as one; a context manager.

    Args:
        size: bytes of each, a power of two of at least a page.
        count: of the ring buffers; together they have up to 256 MiB.
        name: of the array.

    Attributes:
        map: the array.
        bell: the kernel's ring buffer to which programs write when the reader waits.

    Raises:
        SyscallError: the kernel cannot create or map them.
    """

    def __init__(self, size: int, count: int, name: str = "events") -> None:
        self.size = size
        length = count * (POSITIONS + size)
        with contextlib.ExitStack() as undo:
            self.bell = undo.enter_context(RingBuffer(_BELL, "bell"))
            self.map: Map = MapSpec(MapType.ARRAY, 4, length, 1, name, _MMAPABLE).create()
            undo.callback(self.map.close)
            self._memory = self._mapped(length)
            undo.pop_all()
        self._view = memoryview(self._memory)
        self._rings = [
            ArrayRing(self._view, POSITIONS * index, POSITIONS * count + size * index, size)
            for index in range(count)
        ]
        self._reader = self._rings[0] if count == 1 else _in_order(self._rings)

    @property
    def descriptors(self) -> tuple[FD, ...]:
        """The bell's descriptor, readable (epoll) when records have come while none waited."""
        return (self.bell.fd,)

    def pending(self) -> int:
        """Return the number of bytes between reader and writers."""
        return self._reader.pending()

    def filling(self, share: int) -> bool:
        """Whether more than one part in ``share`` of one of them is waiting."""
        return self._reader.filling(share)

    def take(self, most: int = TAKE) -> bytes | TakenRecords | None:
        """Copy complete records and free them, for :meth:`ordered`; nothing: there are none."""
        self.bell.take()
        return self._reader.take(most)

    def ordered(self, taken: Any) -> bytes:
        """Return what take() has returned, in the order of time."""
        return self._reader.ordered(taken)

    def _mapped(self, length: int) -> mmap.mmap:
        try:
            return mmap.mmap(self.map.fd.fileno(), length)
        except OSError as err:
            raise SyscallError(err.errno or 0, f"mmap of {length} bytes of array") from err

    def close(self) -> None:
        """Unmap and close; idempotent."""
        if self.map.fd.closed:
            return
        for ring in self._rings:
            ring.release()
        self._view.release()
        self._memory.close()
        self.map.close()
        self.bell.close()


def _in_order(rings: Sequence[RingMemory]) -> RingsInOrder:
    # Imported here: a machine with few CPUs has one ring buffer, and starts sooner without.
    from usdt.bpf.rings.several import RingsInOrder  # noqa: PLC0415

    return RingsInOrder(rings)


class ArrayRing(RingMemory):
    """The reader's side of one of them, in memory that has all: see :class:`ArrayRings`."""

    def __init__(self, memory: memoryview, positions: int, data: int, size: int) -> None:
        head, tail = positions + HEAD, positions + TAIL
        super().__init__(
            size,
            memory[tail : tail + 8].cast("Q"),
            memory[head : head + 8].cast("Q"),
            memory[data : data + size],
        )

    def _copy(self, start: int, length: int, limit: int) -> bytes:
        there = self._data[start : start + length]
        data = bytes(there[: committed_size(there, limit)])
        zeros = _ZEROS if len(data) <= TAKE else bytes(len(data))  # one large record
        self._data[start : start + len(data)] = zeros[: len(data)]
        return data

    def release(self) -> None:
        """Release what it has of the memory."""
        self._release()
