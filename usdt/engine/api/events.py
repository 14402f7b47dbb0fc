"""``Events``: the events of attached probes, for Python callers."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from usdt.engine.output.formatters import Event
    from usdt.engine.run.protocols import TracedTargets
    from usdt.engine.runtime.session import Lost

__all__ = ("Events",)

_MAX_BATCH = 10_000  # maximum number of events that poll() collects before it returns
_MAX_COLLECT = 0.1  # maximum seconds that poll() collects: a slow machine may never catch up
_CHECK = 0.5  # seconds between two checks whether an iteration should end


class Events:
    """The events of attached probes; a context manager, an iterator and an async iterator.

    Returned by ``usdt.attach()``, ``kprobe.attach()`` and ``Session.attach()``. Iteration ends when
    all traced processes have ended, or after close() in another thread. Events are in the order in
    which they were recorded.

    Raises:
        ProbeNotFound: while events are taken: no library with a requested probe was loaded in time.

    Example:
        >>> with usdt.attach("python:gc__start(arg0)", pid=1234) as events:
        ...     for event in events:
        ...         print(event.time, event.args["arg0"])
    """

    def __init__(
        self,
        targets: TracedTargets,
        release: Callable[[], None],
        on_event: Callable[[Event], object] | None = None,
        observe: Callable[[], None] = lambda: None,
    ) -> None:
        self._targets = targets
        self._release = release  # detaches and frees
        self._on_event = on_event
        self._observe = observe  # records the mappings of processes, if stacks are shown
        self._queue: deque[Event] = deque()
        self._stopped = False
        self._closed = False
        self._remaining: Iterator[list[Event]] | None = None  # batches that remain after the end
        self._exhausted = False  # no event remains
        self._lock = threading.RLock()  # held while kernel objects are in use
        self._waiting = False  # whether the thread that holds the lock waits for records
        self._final: list[Lost] = []

    @property
    def lost(self) -> int:
        """The number of hits lost because the ring buffer was full; if not 0, raise ``buffer``."""
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

    def poll(self, timeout: float = 0.0) -> list[Event]:
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

    def _batch(self, timeout: float) -> list[Event]:
        if self._remaining is None and not self._closed:
            self._observe()
            found = self._targets.poll(timeout)
            if self._targets.ended:
                self._remaining = self._targets.drain()
            return found
        batch = None if self._closed or self._remaining is None else next(self._remaining, None)
        self._exhausted = batch is None
        return batch or []

    def run(self, timeout: float | None = None) -> int:
        """Call ``on_event`` for each event, until all processes end, close(), or the timeout.

        Args:
            timeout: seconds; None means no limit.

        Returns:
            The number of events.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        number = 0
        while not self._stopped:
            left = _CHECK if deadline is None else min(_CHECK, deadline - time.monotonic())
            if left < 0:
                break
            events = self.poll(left)
            number += len(events)
            if self._on_event is not None:
                for event in events:
                    self._on_event(event)
            if not events and self._exhausted:
                break
        return number

    def finish(self) -> list[Event]:
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

    def __iter__(self) -> Iterator[Event]:
        while not self._stopped and self._fill(_CHECK):
            while self._queue and not self._stopped:
                yield self._queue.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        import asyncio  # noqa: PLC0415 - slow to import

        loop = asyncio.get_running_loop()
        while not self._stopped and await loop.run_in_executor(None, self._fill, _CHECK):
            while self._queue and not self._stopped:
                yield self._queue.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
