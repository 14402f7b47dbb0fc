"""Times of day, and dates in ISO 8601."""

from __future__ import annotations

import time

__all__ = ("TENTH", "WallClock", "iso_time", "time_of_day")

TENTH = 100_000_000  # nanoseconds of a tenth of a second
_SECOND = 1_000_000_000


class WallClock:
    """A converter of CLOCK_MONOTONIC, in nanoseconds, to local times.

    Args:
        offset: nanoseconds from CLOCK_MONOTONIC to CLOCK_REALTIME on the traced machine; None uses
            the current offset of this machine.
    """

    def __init__(self, offset: int | None = None) -> None:
        self._offset = time.time_ns() - time.monotonic_ns() if offset is None else offset
        self._day_second = (-1, "")
        self._iso_second = (-1, "", "")

    def time_of_day(self, nanoseconds: int) -> str:
        """Return the time of day with microseconds."""
        second, rest = divmod(nanoseconds + self._offset, _SECOND)
        if second != self._day_second[0]:
            self._day_second = second, time.strftime("%H:%M:%S", time.localtime(second))
        return f"{self._day_second[1]}.{rest // 1000:06}"

    def tenth(self, nanoseconds: int, *, iso: bool) -> tuple[int, str, str]:
        """Return what the times of a tenth of a second have in common.

        Args:
            nanoseconds: one of the times.
            iso: whether they are shown by :meth:`iso`; else, by :meth:`time_of_day`.

        Returns:
            When it begins, on CLOCK_MONOTONIC, and the text before and after the digits behind the
            tenth.
        """
        begin = nanoseconds - (nanoseconds + self._offset) % TENTH
        shown = self.iso(begin) if iso else self.time_of_day(begin)
        place = shown.index(".") + 2
        return begin, shown[:place], shown[place + 8 :]

    def iso(self, nanoseconds: int) -> str:
        """Return date, time with nanoseconds and time zone: 2026-11-24T02:53:54.123456789+01:00."""
        second, rest = divmod(nanoseconds + self._offset, _SECOND)
        if second != self._iso_second[0]:
            local = time.localtime(second)
            zone = time.strftime("%z", local)
            date = time.strftime("%Y-%m-%dT%H:%M:%S", local)
            self._iso_second = second, date, f"{zone[:3]}:{zone[3:5]}"
        return f"{self._iso_second[1]}.{rest:09}{self._iso_second[2]}"


def iso_time(seconds: float) -> str:
    """Return a time since 1970 as :meth:`WallClock.iso` does."""
    return WallClock(0).iso(round(seconds * _SECOND))


def time_of_day(seconds: float, interval: float | None = None) -> str:
    """Return the local time of day; with milliseconds if an interval is not in whole seconds."""
    milliseconds = round(seconds * 1000)
    text = time.strftime("%H:%M:%S", time.localtime(milliseconds // 1000))
    return text if interval is None or interval % 1 == 0 else f"{text}.{milliseconds % 1000:03}"
