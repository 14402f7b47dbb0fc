"""A stream that is merged: its name, the machine that it is from, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.merge.numbers import BadResultError, integer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("SCHEMA", "Clock", "Source")

SCHEMA = 1  # the version of streams, as in docs/json.md
_SHOWN = 5  # problems of a stream that are shown
_LONGEST_NAME = 253  # characters of a host
_FUTURE = 1 << 63  # nanoseconds
_JUMP = 1_000_000_000  # nanoseconds: NTP adjusts a clock by less, in a minute


@frozen
class Clock:
    """One moment on two clocks, and how exactly it is known, in nanoseconds."""

    monotonic: int
    realtime: int
    error: int = 0

    @classmethod
    def of(cls, found: Any) -> Clock:
        """Return the clock of a JSON object.

        Raises:
            BadResultError: it is not valid.
        """
        if not isinstance(found, dict):
            raise BadResultError("clock: an object expected")
        names = ("monotonic", "realtime", "error")
        numbers = [integer(found.get(name, 0)) for name in names]
        if not all(0 <= number < _FUTURE for number in numbers):
            raise BadResultError("clock: out of range")
        return cls(*numbers)

    @property
    def offset(self) -> int:
        """From CLOCK_MONOTONIC to CLOCK_REALTIME."""
        return self.realtime - self.monotonic


class Source:
    """One stream.

    Args:
        name: the file, or what else it is called in messages.
        problem: takes the line about each problem.
        host: the machine, until a header names it.

    Attributes:
        line: the number of the line that is being read.
        host: the machine, as its header says.
        header: the header; None before one was read.
        clock: the latest clock; None before one was read.
        skipped: whether the stream is of a version that cannot be read.
        problems: how many there were.
        shapes: the kinds of its results, besides the first.
    """

    def __init__(self, name: str, problem: Callable[[str], object], host: str = "") -> None:
        self.name = name
        self.line = 0
        self.host = host or name
        self.header: dict[str, Any] | None = None
        self.clock: Clock | None = None
        self.skipped = False
        self.problems = 0
        self.shapes: set[int] = set()
        self._problem = problem
        self._said: set[str] = set()

    @property
    def offset(self) -> int:
        """Nanoseconds from the times of this stream to CLOCK_REALTIME."""
        return 0 if self.clock is None else self.clock.offset

    def problem(self, reason: object) -> None:
        """Note that the current line cannot be used, or is doubtful."""
        self.problems += 1
        if self.problems <= _SHOWN:
            self._problem(f"{self.name}:{self.line}: {reason}")

    def once(self, reason: str) -> None:
        """Note a problem that other lines of the stream share."""
        if reason not in self._said:
            self._said.add(reason)
            self.problem(reason)

    def close(self) -> None:
        """Say how many problems were not shown."""
        more = self.problems - _SHOWN
        if more > 0:
            self._problem(f"{self.name}: {more} more such lines")

    def take_header(self, found: dict[str, Any]) -> bool:
        """Take a header; return whether the stream can be read.

        Raises:
            BadResultError: it is not valid.
        """
        if found["usdt"] != SCHEMA or isinstance(found["usdt"], bool):
            self.skipped = True
            self.problem(
                f"a stream of version {str(found['usdt'])[:20]}; this program reads version "
                f"{SCHEMA}; its lines are skipped"
            )
            return False
        self.skipped = False
        host = found.get("host")
        if not isinstance(host, str) or len(host) > _LONGEST_NAME:
            raise BadResultError("host: a name expected")
        for name in ("probes", "by"):
            words = found.get(name) or []
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise BadResultError(f"{name}: a list of texts expected")
        self.clock = Clock.of(found.get("clock"))
        self.host = host or self.name
        self.header = found
        return True

    def take_clock(self, found: Any) -> None:
        """Take a later clock, and note if the machine's clock was set.

        Raises:
            BadResultError: it is not valid.
        """
        clock = Clock.of(found)
        if self.clock is not None:
            jump = abs(clock.offset - self.clock.offset)
            if jump > _JUMP:
                self.problem(f"the clock of {self.host} was set by {jump / 1e9:.1f} s")
        self.clock = clock
