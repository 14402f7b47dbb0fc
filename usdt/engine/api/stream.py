"""``Stream``: what attached probes deliver, in the order in which it was recorded."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.engine.run.protocols import TracedTargets
    from usdt.engine.runtime.session import Lost

__all__ = ("Stream",)

T = TypeVar("T")

_MAX_BATCH = 10_000  # maximum number of events that poll() collects before it returns
_MAX_COLLECT = 0.1  # maximum seconds that poll() collects: a slow machine may never catch up


class Stream(Generic[T]):
    """The results of a session, for one reader at a time; a context manager.

    Args:
        targets: the traced processes and their probes.
        release: detaches and frees everything.
        observe: records the mappings of processes, if stacks are shown.
    """

    def __init__(
        self,
        targets: TracedTargets,
        release: Callable[[], None],
        observe: Callable[[], None] = lambda: None,
    ) -> None:
        self._targets = targets
        self._release = release  # detaches and frees
        self._observe = observe  # records the mappings of processes, if stacks are shown
        self._queue: deque[T] = deque()
        self._stopped = False
        self._closed = False
        self._remaining: Iterator[list[T]] | None = None  # batches that remain after the end
        self._exhausted = False  # no event remains
        self._lock = threading.RLock()  # held while kernel objects are in use
        self._waiting = False  # whether the thread that holds the lock waits for records
        self._final: list[Lost] = []

    @property
    def lost(self) -> int:
        """The number of hits lost because the ring buffer was full."""
        return sum(item.lost for item in self.losses)

    @property
    def losses(self) -> list[Lost]:
        """The losses of each probe that lost hits."""
        with self._lock:
            return self._final if self._closed else self._targets.lost()

    @property
    def ended(self) -> bool:
        """Whether no event follows.

        True after close(), or once all traced processes have ended and every event was taken.
        """
        return self._exhausted or self._stopped

    @property
    def notices(self) -> list[str]:
        """Messages: libraries found later, probes not attached, children not followed.

        Children that were not followed are reported once all events have been taken.
        """
        return list(self._targets.notices)

    def poll(self, timeout: float = 0.0) -> list[T]:
        """Return all available events; wait up to ``timeout`` seconds for the first.

        The list is empty if no event arrived in time, or if all traced processes have ended. At
        high rates, the list ends after 10,000 events or 0.1 seconds; poll again for the rest.
        """
        self._fill(timeout)
        known = 0
        enough = time.monotonic() + _MAX_COLLECT
        while known < len(self._queue) < _MAX_BATCH and time.monotonic() < enough:
            known = len(self._queue)
            self._take(0.0)
        found = list(self._queue)
        self._queue.clear()
        return found

    def _fill(self, timeout: float) -> bool:
        # Wait until events are queued. Returns whether there are any, or may be later.
        deadline = time.monotonic() + timeout
        while not (self._queue or self._stopped or self._exhausted):
            self._take(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        if self._stopped:
            self.close()  # a signal handler cannot close while this thread waits
        return bool(self._queue) or not (self._stopped or self._exhausted)

    def _take(self, timeout: float) -> None:
        # Queue one batch, if it arrives in time.
        with self._lock:
            self._waiting = True
            try:
                self._queue.extend(self._batch(timeout))
            finally:
                self._waiting = False

    def _batch(self, timeout: float) -> list[T]:
        if self._remaining is None and not self._closed:
            self._observe()
            found = self._targets.poll(timeout)
            if self._targets.ended:
                self._remaining = self._targets.drain()
            return found
        batch = None if self._closed or self._remaining is None else next(self._remaining, None)
        self._exhausted = batch is None
        return batch or []

    def extend(self, attach: Callable[[], None]) -> None:
        """Call ``attach``, which attaches further probes, while nothing else uses the session.

        Raises:
            TracingError: all traced processes have ended; or as from ``attach``.
        """
        with self._lock:
            if self._closed or self._remaining is not None:
                raise TracingError("all processes of the session have ended")
            attach()

    def finish(self) -> list[T]:
        """Detach and return the remaining events. No event follows."""
        with self._lock:
            left = list(self._queue)
            self._queue.clear()
            if self._remaining is None and not self._closed:
                self._remaining = self._targets.drain()
            while not self._exhausted:
                left += self._batch(0.0)
        return left

    def close(self) -> None:
        """Detach and free everything.

        Idempotent; may be called from any thread or signal handler. A poll() or an iteration in
        another thread ends.
        """
        self._stopped = True
        self._targets.wake()
        with self._lock:
            # A signal handler may run while its own thread waits in a poll. That thread then wakes
            # and closes the events itself.
            if not self._closed and not self._waiting:
                self._closed = True
                self._final = self._targets.lost()
                self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
