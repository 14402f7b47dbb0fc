"""Histograms over time: one row per interval, one column per bucket, shaded by count.

The columns cover the buckets hit so far; a row that needs more columns is preceded by a new header
line. Shades are powers of four, so that a single hit is visible beside thousands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.terminal.look import PLAIN
from usdt.engine.aggregate.output.text import label, number, spanned
from usdt.engine.output.wall_clock import time_of_day

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.base.terminal.look import Look
    from usdt.engine.aggregate.spec import Buckets


__all__ = ("Heatmap", "legend", "shade")

_PLAIN = " .:-=+*#%@"
# xterm's 256 colours, from dark to bright; no hits are a blank in the background colour
_COLOURS = (None, 17, 18, 19, 55, 91, 127, 163, 203, 215, 229)
_COLUMN = 2  # characters of a column


class Heatmap:
    """A formatter of the rows of a heatmap.

    Args:
        buckets: the buckets, one column each.
        unit: unit of the buckets, "ns" or an expression.
        look: whether there are colours.
        clock: converts the end of an interval, as from time.time(), to text.
    """

    def __init__(
        self,
        buckets: Buckets,
        unit: str,
        *,
        look: Look = PLAIN,
        clock: Callable[[float], str] = time_of_day,
    ) -> None:
        self._clock = clock
        self._margin = len(clock(0))
        self.buckets = buckets
        self.unit = unit
        self._look = look
        self._span = (0, -1)

    def row(self, seconds: float, counts: Sequence[int], *, mark: str = "") -> list[str]:
        """Return the lines of one interval.

        Args:
            seconds: the end of the interval, as from time.time().
            counts: hits of each bucket.
            mark: ends the line.
        """
        lines = []
        first, last = spanned(counts)
        if last >= first:
            low, high = self._span
            span = (first, last) if high < low else (min(low, first), max(high, last))
            if span != self._span:
                self._span = span
                lines += self._head()
        low, high = self._span
        cells = "".join(self._cell(counts[index]) for index in range(low, high + 1))
        lines.append(f"{self._clock(seconds)} |{cells}| {sum(counts)}{mark}\n")
        return lines

    def _cell(self, count: int) -> str:
        if not self._look.coloured:
            return _PLAIN[min(shade(count), len(_PLAIN) - 1)] * _COLUMN
        colour = _COLOURS[min(shade(count), len(_COLOURS) - 1)]
        return " " * _COLUMN if colour is None else f"\x1b[48;5;{colour}m{'':{_COLUMN}}\x1b[0m"

    def _head(self) -> list[str]:
        # Labels every column that has space with its lowest value.
        low, high = self._span
        width = _COLUMN * (high - low + 1)
        line = ""
        for index in range(low, high + 1):
            column = _COLUMN * (index - low)
            text = _edge(self.buckets, index)
            if (index == low or len(line) + 2 <= column) and column + len(text) <= max(width, 8):
                line = f"{line:<{column}}{text}"
        return [f"{'':{self._margin}} |{line:<{width}}| {self.unit}; count\n"]

    def legend(self) -> list[str]:
        """Return the lines that explain the shades and the columns."""
        low, high = self._span
        if high < low:
            return []
        cells = self._shades()
        ends = f"{label(self.buckets, low)} to {label(self.buckets, high)}"
        return [f"{'':{self._margin}}  columns {ends} {self.unit}; hits: {cells}\n"]

    def _shades(self) -> str:
        number_of = len(_COLOURS if self._look.coloured else _PLAIN)
        steps = map(legend, range(1, number_of))
        return " ".join(f"{self._cell(least)}{text}" for least, text in steps)


def _edge(buckets: Buckets, index: int) -> str:
    low, high = buckets.edges(index)
    return f"<{number(high or 0)}" if low is None else number(low)


def shade(count: int) -> int:
    """Return the shade of a count: 0 for no hits, 1 for 1 to 3, one more for each power of four."""
    return (count.bit_length() + 1) // 2


def legend(step: int) -> tuple[int, str]:
    """Return the lowest count of a shade from 1 on, and its label, such as "16+"."""
    least = 1 << 2 * (step - 1)
    return least, f"{number(least)}+"
