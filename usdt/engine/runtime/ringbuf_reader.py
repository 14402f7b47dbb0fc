"""A thread that empties the ring buffer while its owner is busy.

Formatting, a slow disk, a full pipe or a caller's loop over events can keep the owner busy. The
kernel's buffer would then fill within a tenth of a second. Therefore one thread only copies records
from the ring buffer to a backlog of limited size. It needs some milliseconds of CPU time per
second, and never waits for the owner. When the backlog is full, the ring buffer fills, and the
programs count the hits that do not fit.

Pace: the kernel wakes the thread when a record arrives after the buffer was empty. The thread takes
the available records and then sleeps for PAUSE, so that the next take is a batch: a wake-up per
event would cost the traced program several times the probe itself. The first event after a pause in
the stream is delivered at once.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from usdt.bpf.privileges import drop_capabilities

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.base.closeable import FD

__all__ = ("PAUSE", "RingBufferReader")

PAUSE = 10  # milliseconds; a fraction of the time in which the fastest program fills 8 MiB
_USUAL = 8 << 20  # bytes of the ring buffer that PAUSE is meant for
_BUSY_HEAD = 1  # milliseconds until a record that is still being written is checked again


class RecordSource(Protocol):
    """A ring buffer, or several that are read as one: :mod:`usdt.bpf.rings`."""

    size: int

    @property
    def descriptors(self) -> Iterable[FD]:
        """Those that are readable when there are records."""

    def pending(self) -> int:
        """Return the number of bytes between reader and writers."""

    def filling(self, share: int) -> bool:
        """Whether more than one part in ``share`` is waiting."""

    def take(self, most: int = ..., /) -> Any:
        """Copy complete records and free them."""

    def ordered(self, taken: Any, /) -> bytes:
        """Return what take() has returned, in the order of time."""


class RingBufferReader:
    """A reader that copies records from a ring buffer to a backlog, in its own thread.

    Args:
        ring: the ring buffer, or several.
        backlog: bytes of the backlog; it has space for one record at least.

    Attributes:
        arrived: an eventfd, readable when the backlog is not empty.
    """

    def __init__(self, ring: RecordSource, backlog: int) -> None:
        self.arrived = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ring = ring
        self._most = backlog
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._backlog: deque[Any] = deque()  # what take() has returned
        self._taken = self._given = 0  # bytes
        self._taking = threading.Lock()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. Idempotent."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ringbuf-reader", daemon=True)
            self._thread.start()

    def next(self) -> bytes | None:
        """Return the oldest batch of complete records of the backlog; None if it is empty."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        try:
            data = self._backlog.popleft()
        except IndexError:
            return None
        self._given += len(data)
        return self._ring.ordered(data)

    def drain_if_filling(self) -> None:
        """Drain the ring buffer if it is filling up; the owner calls this between batches.

        The thread may be waiting for the interpreter's lock, which the owner holds.
        """
        if self._ring.filling(8) and not self._full():
            self._take()

    def drain_once(self) -> None:
        """Take the records that are available now, without the thread's pause."""
        if not self._full():
            self._take()

    def stop_and_drain(self) -> None:
        """Stop the thread and take the remaining records; all programs must be detached."""
        if self._thread is not None:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            self._thread = None
        while self._take(everything=True):
            pass

    def close(self) -> None:
        """Stop the thread and discard the remaining records. Idempotent."""
        if self._stop == -1:
            return
        self.stop_and_drain()
        for number in (self._stop, self.arrived):
            os.close(number)
        self._stop = self.arrived = -1

    @property
    def held(self) -> int:
        """The number of bytes in the backlog."""
        return self._taken - self._given

    def _take(self, *, everything: bool = False) -> int:
        with self._taking:
            data = self._ring.take() if everything else self._ring.take(self._most - self.held)
            if not data:
                return 0
            self._taken += len(data)
            self._backlog.append(data)
        os.eventfd_write(self.arrived, 1)
        return len(data)

    def _full(self) -> bool:
        return self.held > 0 and self.held >= self._most

    def _run(self) -> None:
        try:
            drop_capabilities()  # it only reads memory; they are each thread's own
            self._empty_until_stopped()
        except BaseException as err:  # noqa: BLE001 - next() raises it in the owner's thread
            self._error = err
            os.eventfd_write(self.arrived, 1)

    def _empty_until_stopped(self) -> None:
        usual = max(1, PAUSE * min(self._ring.size, _USUAL) // _USUAL)
        stop = select.poll()
        stop.register(self._stop, select.POLLIN)
        something = select.poll()
        something.register(self._stop, select.POLLIN)
        for one in self._ring.descriptors:
            something.register(one.fileno(), select.POLLIN)
        while True:
            if self._full():
                taken, pause = 0, usual
            else:
                taken = self._take()
                # One pause filled a quarter, or a take has not emptied it: there is no time for
                # another pause.
                filling = taken > self._ring.size >> 2 or self._ring.filling(8)
                pause = 0 if filling and taken else usual
                if not taken:
                    pause = _BUSY_HEAD if self._ring.pending() else -1
            ready = something.poll() if pause < 0 else stop.poll(pause)
            if any(number == self._stop for number, _ in ready):
                return
