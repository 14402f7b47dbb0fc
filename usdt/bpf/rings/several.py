"""Several ring buffers that are read as one, where many CPUs write (:mod:`.groups`)."""

from __future__ import annotations

import contextlib
import struct
import time
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec
from usdt.bpf.rings.groups import size_of_each
from usdt.bpf.rings.ringbuf import TAKE, RingBuffer
from usdt.bpf.rings.time_order import TakenRecords, TimeOrder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.base.closeable import FD
    from usdt.bpf.rings.ringbuf import RingMemory

__all__ = ("RingBuffers", "RingsInOrder")

_INDEX = struct.Struct("=I")


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
