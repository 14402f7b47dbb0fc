"""A heatmap as SVG: one self-contained file without scripts, fonts or external resources."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.aggregate.output.heatmap import legend, shade
from usdt.engine.aggregate.output.text import duration, label, number, spanned
from usdt.engine.output.wall_clock import time_of_day

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.engine.aggregate.spec import Buckets


__all__ = ("Drawing", "svg")

# Pixels.
_WIDTH, _HEIGHT = 960, 320  # of the plot, which is higher if it has many buckets
_LOWEST, _HIGHEST = 14, 40  # height of a bucket
_TOP, _BOTTOM, _RIGHT = 48, 64, 24
_CHARACTER = 6.5  # the width of most characters, at most
# From pale to dark in even steps of lightness, so that counts differ in greyscale and for the
# colour-blind.
_COLOURS = (
    "#fcfdbf",
    "#fed395",
    "#fea973",
    "#fa7d5e",
    "#e95462",
    "#c83e73",
    "#a3307e",
    "#7e2482",
    "#59157e",
    "#331067",
    "#120d31",
)


@frozen
class Drawing:
    """The data of a picture.

    Attributes:
        title: the probes, as given.
        what: the values in the buckets.
        buckets: rows of the picture, the lowest at the bottom.
        rows: for each interval, its end (time.time()) and its counts.
        unit: nanoseconds in one unit of the buckets; None if the values are not times.
        clock: converts the end of an interval to text.
    """

    title: str
    what: str
    buckets: Buckets
    rows: tuple[tuple[float, tuple[int, ...]], ...]
    unit: int | None = None
    clock: Callable[[float], str] = time_of_day


@frozen
class _Plot:
    # The buckets that are shown, with their labels, and where the plot is, in pixels.
    first: int
    labels: tuple[str, ...]
    left: float
    cell_width: float
    cell_height: float

    @property
    def bottom(self) -> float:
        return _TOP + len(self.labels) * self.cell_height


def svg(drawing: Drawing) -> str:
    """Return the text of the file."""
    return "\n".join(_elements(drawing)) + "\n"


def _elements(drawing: Drawing) -> Iterator[str]:
    sums = [sum(column) for column in zip(*(row for _, row in drawing.rows), strict=True)]
    plot = _plot(drawing, *spanned(sums))
    width, height = plot.left + _WIDTH + _RIGHT, plot.bottom + _BOTTOM
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="11">'
    )
    yield f"<title>{_escaped(drawing.title)}</title>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    head = f"{drawing.title}  ({drawing.what}, {sum(sums)} in all)"
    yield _text(plot.left, 20, head, size=13)
    for index, text in enumerate(plot.labels):
        y = plot.bottom - (index + 0.5) * plot.cell_height + 4
        yield _text(plot.left - 6, y, text, anchor="end")
    for column in range(len(drawing.rows)):
        yield from _column(drawing, column, plot)
    yield (
        f'<rect x="{plot.left:.0f}" y="{_TOP}" width="{_WIDTH}" '
        f'height="{plot.bottom - _TOP:.1f}" fill="none" stroke="#888888"/>'
    )
    yield from _times(drawing, plot)
    yield from _legend(max(sums, default=0), plot)
    yield "</svg>"


def _plot(drawing: Drawing, first: int, last: int) -> _Plot:
    labels = tuple(_label(drawing, index) for index in range(first, last + 1))
    longest = max(map(len, labels), default=0)
    return _Plot(
        first,
        labels,
        left=round(max(64, longest * _CHARACTER + 12)),
        cell_width=_WIDTH / max(1, len(drawing.rows)),
        cell_height=min(max(_LOWEST, _HEIGHT / max(1, len(labels))), _HIGHEST),
    )


def _label(drawing: Drawing, index: int) -> str:
    if drawing.unit is None:
        return label(drawing.buckets, index)
    edges = drawing.buckets.edges(index)
    low, high = (None if edge is None else duration(edge * drawing.unit) for edge in edges)
    return f"[{low}, {high or '...'})" if low is not None else f"(..., {high})"


def _column(drawing: Drawing, column: int, plot: _Plot) -> Iterator[str]:
    when, counts = drawing.rows[column]
    x = plot.left + column * plot.cell_width
    for index, bucket in enumerate(plot.labels):
        count = counts[plot.first + index]
        if not count:
            continue
        y = plot.bottom - (index + 1) * plot.cell_height
        colour = _COLOURS[min(shade(count), len(_COLOURS)) - 1]
        what = bucket if drawing.unit is not None else f"{bucket} {drawing.what}"
        yield (
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{plot.cell_width:.2f}" '
            f'height="{plot.cell_height:.2f}" fill="{colour}">'
            f"<title>{_escaped(f'{drawing.clock(when)}  {what}: {count}')}</title></rect>"
        )


def _times(drawing: Drawing, plot: _Plot) -> Iterator[str]:
    # The end of an interval is at its right edge.
    if not drawing.rows:
        return
    room = _CHARACTER * len(drawing.clock(drawing.rows[0][0])) + 16
    step = math.ceil(room / plot.cell_width)
    for column in range(step - 1, len(drawing.rows), step):
        x = plot.left + (column + 1) * plot.cell_width
        when = drawing.clock(drawing.rows[column][0])
        yield f'<path d="M{x:.1f} {plot.bottom:.1f}v4" stroke="#888888"/>'
        yield _text(x, plot.bottom + 16, when, anchor="end")


def _legend(most: int, plot: _Plot) -> Iterator[str]:
    y = plot.bottom + 40
    yield _text(plot.left - 6, y + 10, "count", anchor="end")
    for step in range(1, max(2, min(shade(most), len(_COLOURS)) + 1)):
        x = plot.left + (step - 1) * 64
        yield f'<rect x="{x:.0f}" y="{y:.1f}" width="14" height="12" fill="{_COLOURS[step - 1]}"/>'
        yield _text(x + 18, y + 10, f"{number(legend(step)[0])}+")


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="#222222">{_escaped(text)}</text>'
    )


def _escaped(text: str) -> str:
    # XML cannot represent most control characters, nor unpaired surrogates.
    safe = "".join(c if c.isprintable() else "\ufffd" for c in text)
    for character, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        safe = safe.replace(character, f"&{name};")
    return safe
