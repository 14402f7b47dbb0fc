"""The loop that takes records until the run ends; signals that stop it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol, Self

from usdt.base.durations import FOREVER
from usdt.base.interrupts import interrupted, signals

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.run.protocols import TracedTargets
    from usdt.engine.runtime.session import BpfSession, Lost

__all__ = ("POLL_SECONDS", "ResultOutput", "StopSignals", "run_loop")

POLL_SECONDS = 0.25  # seconds between two checks of signals, deadlines and the command
_SAME_REQUEST = 0.2  # seconds; nobody types ^C again so soon


class ResultOutput(Protocol):
    """A consumer that takes the records of one run and writes its results."""

    def session(self, tasks: TaskFilter) -> BpfSession:
        """Make the session to attach with."""

    def begin(self, output: OutputFile) -> None:
        """Start writing results to ``output``; all probes are attached."""

    def take(self, batch: list[Any]) -> bool:
        """Take records; return True once the run has enough (``-n``)."""

    def tick(self) -> bool:
        """Do the periodic work, at least every :data:`POLL_SECONDS`.

        Returns:
            True once the run has enough.
        """

    def until_tick(self) -> float:
        """Return the seconds until tick() has work to do."""

    def hits(self) -> int:
        """Return the number of hits so far."""

    def finish(self, lost: list[Lost]) -> str:
        """Write the remaining results once everything is detached; return the closing line."""


class StopSignals:
    """A context manager in which SIGINT, SIGTERM and SIGHUP request the end of a run.

    A signal sets ``requested`` and calls ``wake``. A second SIGINT or SIGTERM raises
    KeyboardInterrupt, but not at once after the first: timeout(1) sends each signal twice, to the
    process and to its group. A second SIGHUP never does, because a terminal that closes may send it
    twice. SIGHUP stays ignored where nohup(1) ignores it.

    Attributes:
        requested: whether the run is to end.
        signalled: whether a signal has arrived.
    """

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self.requested = False
        self.signalled = False
        self._wake = wake
        self._first = -FOREVER  # time.monotonic() of the first signal
        self._previous: list[tuple[int, Any]] = []

    def request(self) -> None:
        """Request the end of the run, as a signal does."""
        self.requested = True

    def __enter__(self) -> Self:
        numbers = [signals.SIGINT, signals.SIGTERM]
        if signals.getsignal(signals.SIGHUP) is not signals.SIG_IGN:
            numbers.append(signals.SIGHUP)
        self._previous = [(number, signals.signal(number, self._handle)) for number in numbers]
        if interrupted():  # Python may have dropped it
            self.requested = self.signalled = True
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous:
            signals.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.requested:
            self._first = now
        elif number != signals.SIGHUP and now > self._first + _SAME_REQUEST:
            raise KeyboardInterrupt
        self.requested = self.signalled = True
        self._wake()


def run_loop(
    targets: TracedTargets,
    results: ResultOutput,
    stop: StopSignals,
    *,
    duration: float | None,
    since: float = 0.0,
    on_poll: Callable[[], object],
    on_idle: Callable[[], object],
) -> str:
    """Take records until a signal, the deadline, the end of all targets, or enough of them.

    Args:
        targets: the traced processes; they are detached at the end.
        results: takes the records.
        stop: reports whether a signal has arrived.
        duration: seconds; None means no deadline.
        since: when the duration begins, as from time.monotonic(), if that is to come.
        on_poll: called after every poll, for example to print notices.
        on_idle: called after a poll without records.

    Returns:
        The closing line.
    """
    deadline = FOREVER if duration is None else max(since, time.monotonic()) + duration
    enough = False
    while not (enough or stop.requested or targets.ended):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        batch = targets.poll(min(POLL_SECONDS, left, max(0.0, results.until_tick())))
        on_poll()
        if batch:
            enough = results.take(batch)
        else:
            on_idle()
        enough = results.tick() or enough
    for batch in targets.drain():  # it detaches first: hits during the drain are not missed events
        enough = enough or results.take(batch)
    on_poll()
    return results.finish(targets.lost())
