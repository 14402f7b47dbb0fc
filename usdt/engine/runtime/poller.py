"""poll(): waits until records arrive, a watched descriptor is readable, or wake() is called."""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Iterable

__all__ = ("Pollable",)


class Pollable:
    """A source of batches that can be polled: an epoll set that includes an eventfd for wake().

    Subclasses provide :meth:`_next_batch` and an eventfd that becomes readable when records arrive.
    """

    def _open(self, resources: contextlib.ExitStack) -> None:
        # ``resources`` closes it. Called before any call of wake() or poll().
        self._watched: set[int] = set()
        self._arrivals = -1
        # While it is closed, another thread or a signal handler of this one may call wake().
        self._wake_lock = threading.RLock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        resources.callback(self._close_wake)
        self._poller = select.epoll()
        resources.callback(self._poller.close)
        self._poller.register(self._wake, select.EPOLLIN)

    def _close_wake(self) -> None:
        with self._wake_lock:
            number, self._wake = self._wake, -1
            os.close(number)

    def _arrive_by(self, eventfd: int) -> None:
        self._poller.register(eventfd, select.EPOLLIN)
        self._arrivals = eventfd

    def _next_batch(self) -> list[Any]:
        return []

    def _last_batch(self) -> list[Any]:
        # Returns records that have arrived but have not been delivered; called when the timeout
        # ends.
        return []

    def begin(self) -> None:
        """Note that all probes of a run are attached."""

    def expect(self, pid: int, files: Iterable[str]) -> None:
        """Note that a process will start, and the files that it will map."""

    def watch(self, descriptor: int) -> None:
        """Make poll() return early when ``descriptor`` becomes readable (a pidfd)."""
        if descriptor not in self._watched:
            self._poller.register(descriptor, select.EPOLLIN)
            self._watched.add(descriptor)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor given to watch()."""
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._poller.unregister(descriptor)

    def wake(self) -> None:
        """Make a waiting poll() return; may be called from another thread or a signal handler."""
        with self._wake_lock:
            if self._wake != -1:
                os.eventfd_write(self._wake, 1)

    def poll(self, timeout: float) -> list[Any]:
        """Return the next batch of lines or events; an empty list after ``timeout`` seconds.

        Returns early, with an empty list, after wake() and if a watched descriptor is readable.
        """
        deadline = time.monotonic() + timeout
        while True:
            batch = self._next_batch()
            left = deadline - time.monotonic()
            if not batch and left <= 0:
                return self._last_batch()
            if batch or self._wait(left):
                return batch

    def _wait(self, seconds: float) -> bool:
        # Waits; returns whether poll() must return early.
        attention = False
        for number, _ in self._poller.poll(seconds):
            if number in (self._wake, self._arrivals):
                os.eventfd_read(number)
            attention = attention or number != self._arrivals
        return attention
