"""Events of attached probes, for Python callers."""

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

_PORTION = 10_000  # events that poll() collects at most before it returns
_COLLECT = 0.1  # seconds that poll() goes on collecting: a slow machine's stream may not pause
_LOOK = 0.5  # seconds between two looks whether an iteration should end


class Events:
    """The events of attached probes; a context manager, an iterator and an async iterator.

    Made by ``usdt.attach()``, ``kprobe.attach()`` and ``Session.attach()``. Iteration ends when
    everything that was traced has ended, or after close() in another thread. Events are in the
    order in which they were recorded.

    Raises:
        ProbeNotFound: while events are taken: no library with a wanted probe came in time.

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
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._targets = targets
        self._release = release  # detaches and frees
        self._on_event = on_event
        self._look = look  # at what processes have mapped, if stacks are shown
        self._ready: deque[Event] = deque()
        self._stopped = False
        self._closed = False
        self._rest: Iterator[list[Event]] | None = None  # what is left when all has ended
        self._over = False  # nothing is left
        self._busy = threading.RLock()  # held while the kernel's objects are in use
        self._waiting = False  # by a thread that holds it
        self._final: list[Lost] = []

    @property
    def lost(self) -> int:
        """Hits that found no room in the ring buffer; raise ``buffer`` if there are any."""
        return sum(item.lost for item in self.losses)

    @property
    def losses(self) -> list[Lost]:
        """The same for each probe that lost something."""
        with self._busy:
            return self._final if self._closed else self._targets.lost()

    @property
    def ended(self) -> bool:
        """Whether everything that was traced has ended, and every event has been taken."""
        return self._over or self._stopped

    @property
    def notices(self) -> list[str]:
        """What came up meanwhile, in words: libraries found later, children that were not followed.

        What could not be followed is known once all events have been taken.
        """
        return list(self._targets.notices)

    def poll(self, timeout: float = 0.0) -> list[Event]:
        """Every event that is there; waits up to ``timeout`` seconds for the first.

        An empty list means that none came in time, or that all has ended. Of a flood it is
        a portion: some ten thousand, or what came within a tenth of a second.
        """
        self._fill(timeout)
        known = 0
        enough = time.monotonic() + _COLLECT
        while known < len(self._ready) < _PORTION and time.monotonic() < enough:
            known = len(self._ready)
            self._take(0.0)
        found = list(self._ready)
        self._ready.clear()
        return found

    def _fill(self, timeout: float) -> bool:
        # Wait until events are ready; whether there are any, or may be later.
        deadline = time.monotonic() + timeout
        while not (self._ready or self._stopped or self._over):
            self._take(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        if self._stopped:
            self.close()  # what a signal handler could not do while we waited
        return bool(self._ready) or not (self._stopped or self._over)

    def _take(self, timeout: float) -> None:
        # One batch, if it comes in time, into what is ready.
        with self._busy:
            self._waiting = True
            try:
                self._ready.extend(self._batch(timeout))
            finally:
                self._waiting = False

    def _batch(self, timeout: float) -> list[Event]:
        if self._rest is None and not self._closed:
            self._look()
            found = self._targets.poll(timeout)
            if self._targets.ended:
                self._rest = self._targets.drain()
            return found
        batch = None if self._closed or self._rest is None else next(self._rest, None)
        self._over = batch is None
        return batch or []

    def run(self, timeout: float | None = None) -> int:
        """Call ``on_event`` for each event until all has ended, close(), or ``timeout`` seconds.

        Returns:
            how many events there were.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        number = 0
        while not self._stopped:
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left < 0:
                break
            events = self.poll(left)
            number += len(events)
            if self._on_event is not None:
                for event in events:
                    self._on_event(event)
            if not events and self._over:
                break
        return number

    def finish(self) -> list[Event]:
        """Detach; every event that is left. Nothing comes after that."""
        with self._busy:
            left = list(self._ready)
            self._ready.clear()
            if self._rest is None and not self._closed:
                self._rest = self._targets.drain()
            while not self._over:
                left += self._batch(0.0)
        return left

    def close(self) -> None:
        """Detach and free everything; from any thread or signal handler, again is fine.

        A poll() or an iteration in another thread ends.
        """
        self._stopped = True
        self._targets.wake()
        with self._busy:
            # A signal handler comes here while its own thread waits: woken, that closes itself.
            if not self._closed and not self._waiting:
                self._closed = True
                self._final = self._targets.lost()
                self._release()

    def __iter__(self) -> Iterator[Event]:
        while not self._stopped and self._fill(_LOOK):
            while self._ready and not self._stopped:
                yield self._ready.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        import asyncio  # noqa: PLC0415 - slow to import

        loop = asyncio.get_running_loop()
        while not self._stopped and await loop.run_in_executor(None, self._fill, _LOOK):
            while self._ready and not self._stopped:
                yield self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
