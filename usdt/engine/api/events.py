"""``Events``: the events of attached probes, for Python callers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from usdt.engine.api.stream import Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from usdt.engine.run.protocols import TracedTargets

__all__ = ("Events",)

T = TypeVar("T")

_CHECK = 0.5  # seconds between two checks whether an iteration should end


class Events(Stream[T]):
    """The events of attached probes; a context manager, an iterator and an async iterator.

    Returned by ``usdt.attach()``, ``kprobe.attach()`` and ``Session.attach()``. ``usdt.spans()``
    and ``kprobe.spans()`` return one of spans. Iteration ends when all traced processes have ended,
    or after close() in another thread. Events are in the order in which they were recorded.

    Raises:
        ProbeNotFound: while events are taken: no library with a requested probe was loaded in time.

    Examples:
        >>> with usdt.attach("python:gc__start(arg0)", pid=1234) as events:
        ...     for event in events:
        ...         print(event.time, event.args["arg0"])
    """

    def __init__(
        self,
        targets: TracedTargets,
        release: Callable[[], None],
        on_event: Callable[[T], object] | None = None,
        observe: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(targets, release, observe)
        self._on_event = on_event

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

    def __iter__(self) -> Iterator[T]:
        while not self._stopped and self._fill(_CHECK):
            while self._queue and not self._stopped:
                yield self._queue.popleft()

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio  # noqa: PLC0415 - slow to import

        loop = asyncio.get_running_loop()
        while not self._stopped and await loop.run_in_executor(None, self._fill, _CHECK):
            while self._queue and not self._stopped:
                yield self._queue.popleft()
