"""A thread that empties the ring buffer while its owner is busy.

Formatting, a slow disk, a full pipe, a caller's loop over events: while the owner is busy with any
of them the kernel's buffer would fill within a tenth of a second. So one thread does nothing but
copy records out of it into a backlog, which is bounded by memory (BACKLOG). It needs some
milliseconds of processor a second, and what it waits for is never the owner.

Pace. The kernel wakes the thread when it has caught up and a record arrives. It takes what is there
and then stays away for PAUSE, so that the next take is a batch: a wake-up for each event would cost
the traced program several times the probe itself. The first event of a quiet spell is passed on at
once.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usdt.bpf.ringbuf import RingBuffer

__all__ = ("BACKLOG", "PAUSE", "RingBufferReader")

BACKLOG = 256 << 20  # bytes copied out and not yet asked for; beyond it the ring buffer fills
PAUSE = 10  # milliseconds; a fraction of what the fastest program needs to fill 8 MiB
_USUAL = 8 << 20  # the ring buffer that PAUSE is meant for
_BUSY_HEAD = 1  # milliseconds until a record that is being written is looked at again


class RingBufferReader:
    """Takes records out of a ring buffer into a backlog, in a thread of its own.

    Attributes:
        arrived: an eventfd, readable when there is something in the backlog.
    """

    def __init__(self, ring: RingBuffer) -> None:
        self.arrived = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ring = ring
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._backlog: deque[bytes] = deque()
        self._taken = self._given = 0  # bytes
        self._taking = threading.Lock()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; idempotent."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ringbuf-reader", daemon=True)
            self._thread.start()

    def next(self) -> bytes | None:
        """Return the oldest complete records of the backlog; None if there are none."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        try:
            data = self._backlog.popleft()
        except IndexError:
            return None
        self._given += len(data)
        return data

    def drain_if_filling(self) -> None:
        """Drain the ring buffer if it is filling up; the owner calls this between batches.

        The thread may be waiting for the interpreter's lock, which the owner has.
        """
        if self._ring.pending() > self._ring.size >> 3 and not self._full():
            self._take()

    def drain_once(self) -> None:
        """Take the records that are there now, without the thread's pause."""
        if not self._full():
            self._take()

    def stop_and_drain(self) -> None:
        """Stop the thread and take what is left; call it once all programs are detached."""
        if self._thread is not None:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            self._thread = None
        while self._take():
            pass

    def close(self) -> None:
        """Stop the thread and discard what is left; idempotent."""
        if self._stop == -1:
            return
        self.stop_and_drain()
        for number in (self._stop, self.arrived):
            os.close(number)
        self._stop = self.arrived = -1

    def _take(self) -> int:
        with self._taking:
            data = self._ring.take()
            if data:
                self._taken += len(data)
                self._backlog.append(data)
        if data:
            os.eventfd_write(self.arrived, 1)
        return len(data)

    def _full(self) -> bool:
        return self._taken - self._given >= BACKLOG

    def _run(self) -> None:
        try:
            self._empty_until_stopped()
        except BaseException as err:  # noqa: BLE001 - next() raises it where it can be handled
            self._error = err
            os.eventfd_write(self.arrived, 1)

    def _empty_until_stopped(self) -> None:
        usual = max(1, PAUSE * min(self._ring.size, _USUAL) // _USUAL)
        stop = select.poll()
        stop.register(self._stop, select.POLLIN)
        something = select.poll()
        something.register(self._stop, select.POLLIN)
        something.register(self._ring.fd.fileno(), select.POLLIN)
        while True:
            if self._full():
                taken, pause = 0, usual
            else:
                taken = self._take()
                # One pause filled a quarter, or a take has not emptied it: no time for another.
                filling = (
                    taken > self._ring.size >> 2 or self._ring.pending() > self._ring.size >> 3
                )
                pause = 0 if filling and taken else usual
                if not taken:
                    pause = _BUSY_HEAD if self._ring.pending() else -1
            ready = something.poll() if pause < 0 else stop.poll(pause)
            if any(number == self._stop for number, _ in ready):
                return
