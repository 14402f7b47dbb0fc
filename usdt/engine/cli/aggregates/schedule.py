"""The moments at which aggregates are read."""

from __future__ import annotations

import math
import time

__all__ = ("Schedule",)

_SECOND = 1_000_000_000
_NEGLIGIBLE = 1_000_000  # nanoseconds by which an interval may be shorter


class Schedule:
    """A moment after each pause: from now on, or at multiples of the pause since 1970.

    Moments keep their distance; those that were missed are skipped. With multiples, it follows
    CLOCK_REALTIME, also if that is set to another time.

    Args:
        pause: seconds between two moments; infinity has none.
        aligned: whether moments are multiples of the pause since 1970.
        at: the beginning, in nanoseconds since 1970, if that is to come; no moment is before it.
    """

    def __init__(self, pause: float, *, aligned: bool = False, at: int | None = None) -> None:
        self._clock = time.time_ns if aligned else time.monotonic_ns
        self._step = 0 if pause == math.inf else round(pause * _SECOND)
        wait = 0 if at is None else max(0, at - time.time_ns())
        self._begin = at if aligned and wait and at else self._clock() + wait
        self._origin = 0 if aligned else self._begin
        self._next = self._after(self._begin)
        # The beginning of the interval that ends next.
        self._since = self._begin
        #: Whether the interval that has ended is shorter than others.
        self.partial = False
        #: Nanoseconds: the moment that came last, or the next one if the run ends before it.
        self.end = self._next

    def _after(self, now: int) -> int:
        # Returns the first moment after now.
        if not self._step:
            return now
        return now + self._step - (now - self._origin) % self._step

    def left(self) -> float:
        """Return the seconds until the next moment."""
        return (self._next - self._clock()) / _SECOND if self._step else math.inf

    def take(self) -> bool:
        """Return whether the next moment has come; if so, wait for the one after it."""
        now = self._clock()
        if not self._step or now < self._begin or now < self._next <= now + self._step:
            return False
        if self._next > now:  # the clock was set back
            self._next = self.end = self._after(now)
            self._since = now
            return False
        following = self._after(now)
        self.end, self._next = following - self._step, following
        self.partial = self.end - self._since < self._step
        self._since = self.end
        return True

    def stop(self) -> None:
        """Let ``end`` be the moment at which the interval would have ended."""
        self.end = self._next
        now = min(self._clock(), self.end)
        self.partial = now - self._since < self._step - _NEGLIGIBLE
