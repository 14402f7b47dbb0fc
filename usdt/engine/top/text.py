"""Rows as text."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from usdt.base.durations import duration_text
from usdt.base.terminal.columns import cut, padded
from usdt.base.text import printable
from usdt.engine.cli.click_group import plural
from usdt.engine.output.wall_clock import time_of_day
from usdt.engine.top.costs import cost_text
from usdt.engine.top.table import Sort

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usdt.engine.top.table import Row, Table

__all__ = ("heading", "number", "row_text", "sparkline", "status_line")

_BARS = " ▁▂▃▄▅▆▇█"
_NUMBERS = 31  # columns of the numbers behind a probe's name, without the sparkline
_BAR_WIDTH = 8  # of the sparkline at 80 columns
_NARROW = 24  # columns of a name, at least


def number(value: float) -> str:
    """Return a number in at most six columns: ``1234``, ``56.7K``, ``8.9M``."""
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    if value < 100_000:
        return f"{value:.0f}"
    for unit in ("K", "M", "G", "T"):
        value /= 1000
        if value < 1000:
            return f"{value:.{0 if value >= 100 else 1}f}{unit}"
    return f"{value / 1000:.0f}P"


def sparkline(history: Sequence[float], width: int) -> str:
    """Return the last rates as bars, the latest on the right; the highest bar is the largest."""
    shown = history[-width:]
    largest = max(shown, default=0.0)
    steps = len(_BARS) - 1
    bars = (_BARS[math.ceil(rate * steps / largest)] if rate else _BARS[0] for rate in shown)
    return "".join(bars).rjust(width)


def status_line(table: Table, nanoseconds: Mapping[str, int]) -> str:
    """Return the first line: the time, how many probes are hit, what is lost, what it costs.

    Args:
        table: the rows.
        nanoseconds: what a hit of a probe costs, if more than counting it.
    """
    totals = [row.total for row in table.rows()]
    silent = totals.count(0)
    lost = f", {table.lost} lost" if table.lost else ""
    return (
        f"{time_of_day(time.time(), 1.0)}  {plural(len(totals) - silent, 'probe')} hit,"
        f" {silent} silent{lost}; cost {cost_text(table.rates(), nanoseconds)}"
    )


def _widths(width: int) -> tuple[int, int]:
    # Of the names, and of the sparklines.
    bars = _BAR_WIDTH + max(0, min(width - 80, 2 * 24) // 2)
    return max(_NARROW, width - _NUMBERS - bars), bars


def heading(width: int, sort: Sort) -> str:
    """Return the line above the rows; the column by which they are sorted is marked."""
    names, bars = _widths(width)
    titles = {Sort.NAME: "PROBE", Sort.RATE: "RATE/s", Sort.TOTAL: "TOTAL", Sort.P99: "P99"}
    titles[sort] = f"▼{titles[sort]}"
    name, rate, total, p99 = titles.values()
    return cut(f"{name:<{names}} {rate:>7} {'':{bars}} {total:>7} {'P50':>6} {p99:>6}", width)


def row_text(row: Row, width: int) -> str:
    """Return a row as one line of at most ``width`` columns."""
    names, bars = _widths(width)
    times = [_time(row, percent) for percent in (50, 99)]
    name = padded(printable(row.probe), names)
    return cut(
        f"{name} {number(row.rate):>7} {sparkline(row.history, bars)}"
        f" {number(row.total):>7} {times[0]:>6} {times[1]:>6}",
        width,
    )


def _time(row: Row, percent: float) -> str:
    found = None if row.times is None else row.times.percentile(percent)
    return "" if found is None else duration_text(found)
