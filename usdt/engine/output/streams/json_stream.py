"""A JSON stream: a header, then objects; the clock again from time to time."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from usdt.engine.output.output_file import Lines, OutputFile
from usdt.engine.output.streams.header import Clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.output.streams.header import StreamHeader

__all__ = ("JsonStream", "clock_line")

_CLOCK_SECONDS = 60.0  # seconds after which the clock is repeated, before the next object


def clock_line(clock: Clock) -> str:
    """Return the line that repeats the clock in a stream."""
    return json.dumps({"clock": clock.to_json()}) + "\n"


class JsonStream(OutputFile):
    """An output file of JSON lines that begins with a header.

    A stream that lasts repeats the clock about once a minute, because the distance of
    CLOCK_MONOTONIC and CLOCK_REALTIME changes. Nothing is written while there are no results.

    Args:
        path: the file; None is standard output.
        private: create the file for its owner only.
        pause: seconds between two clocks.
    """

    def __init__(
        self, path: str | None, *, private: bool = False, pause: float = _CLOCK_SECONDS
    ) -> None:
        super().__init__(path, private=private)
        self._pause = pause
        self._due = 0.0

    def write_header(self, header: StreamHeader) -> None:
        """Write the header, before any other line."""
        self._due = time.monotonic() + self._pause
        super().write([header.line()])

    def write(self, lines: Sequence[str] | Lines) -> None:
        """Write lines, preceded by the clock if it is due."""
        now = time.monotonic()
        if lines and now >= self._due:
            self._due = now + self._pause
            line = clock_line(Clock.now())
            lines = lines.below(line) if isinstance(lines, Lines) else [line, *lines]
        super().write(lines)
