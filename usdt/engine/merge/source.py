"""A stream that is merged: its name, the machine that it is from, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.text import plural
from usdt.engine.output.streams.header import SCHEMA_VERSION, Clock, StreamHeader

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Source",)

_SHOWN = 5  # problems of a stream that are shown
_JUMP = 1_000_000_000  # nanoseconds: NTP adjusts a clock by less, in a minute


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
        kernel, command: of a recording: the kernel, and the command line; else "".
        skipped: whether the stream is of a version that cannot be read.
        problems: how many there were.
        shapes: the kinds of its results, besides the first.
    """

    def __init__(self, name: str, problem: Callable[[str], object], host: str = "") -> None:
        self.name = name
        self.line = 0
        self.host = host or name
        self.header: StreamHeader | None = None
        self.clock: Clock | None = None
        self.kernel = self.command = ""
        self.skipped = False
        self.problems = 0
        self.shapes: set[int] = set()
        self._problem = problem
        self._said: set[str] = set()

    @property
    def offset(self) -> int:
        """Nanoseconds from the times of this stream to CLOCK_REALTIME."""
        return 0 if self.clock is None else _offset(self.clock)

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
            self._problem(f"{self.name}: {plural(more, 'more such line')}")

    def take_header(self, found: dict[str, Any]) -> StreamHeader | None:
        """Take a header; return it, or None if the stream is of a version that cannot be read.

        Raises:
            HeaderError: it is not valid.
        """
        self.skipped = found["usdt"] != SCHEMA_VERSION
        if self.skipped:
            self.problem(
                f"a stream of version {str(found['usdt'])[:20]}; this program reads version "
                f"{SCHEMA_VERSION}; its lines are skipped"
            )
            return None
        header = self.header = StreamHeader.from_json(found)
        self.clock = header.clock
        self.host = header.host or self.name
        return header

    def take_clock(self, found: Any) -> None:
        """Take a later clock, and note if the machine's clock was set.

        Raises:
            HeaderError: it is not valid.
        """
        clock = Clock.from_json(found)
        if self.clock is not None:
            jump = abs(_offset(clock) - _offset(self.clock))
            if jump > _JUMP:
                self.problem(f"the clock of {self.host} was set by {jump / 1e9:.1f} s")
        self.clock = clock


def _offset(clock: Clock) -> int:
    return clock.realtime - clock.monotonic
