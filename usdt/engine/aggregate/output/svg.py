"""A heatmap as SVG: one self-contained file without scripts, fonts or external resources."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.engine.aggregate.output.heatmap import legend, shade
from usdt.engine.aggregate.output.text import label, number, spanned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.aggregate.spec import Linear, Log2

__all__ = ("Drawing", "svg")

_CELL_HEIGHT = 14  # pixels
_WIDEST = 12  # maximum pixels of an interval
_CANVAS = 960  # pixels for all intervals
_LEFT, _TOP, _BOTTOM, _RIGHT = 96, 48, 64, 24
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
        unit: unit of the buckets.
        buckets: rows of the picture, the lowest at the bottom.
        rows: for each interval, its end (time.time()) and its counts.
    """

    title: str
    unit: str
    buckets: Log2 | Linear
    rows: tuple[tuple[float, tuple[int, ...]], ...]


def svg(drawing: Drawing) -> str:
    """Return the text of the file."""
    return "\n".join(_elements(drawing)) + "\n"


def _elements(drawing: Drawing) -> Iterator[str]:
    sums = [sum(column) for column in zip(*(row for _, row in drawing.rows), strict=True)]
    first, last = spanned(sums)
    shown = max(1, last - first + 1)
    width = min(_WIDEST, _CANVAS / max(1, len(drawing.rows)))
    right = _LEFT + max(320.0, width * len(drawing.rows))
    bottom = _TOP + shown * _CELL_HEIGHT
    total = sum(sums)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + _RIGHT:.0f}" '
        f'height="{bottom + _BOTTOM}" font-family="sans-serif" font-size="11">'
    )
    yield f"<title>{_escaped(drawing.title)}</title>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield _text(_LEFT, 20, f"{drawing.title}  ({drawing.unit}, {total} in all)", size=13)
    yield from _labels(drawing, first, last)
    for column in range(len(drawing.rows)):
        yield from _column(drawing, column, range(first, last + 1), width)
    yield (
        f'<rect x="{_LEFT}" y="{_TOP}" width="{right - _LEFT:.1f}" '
        f'height="{bottom - _TOP}" fill="none" stroke="#888888"/>'
    )
    yield from _times(drawing, bottom, width)
    yield from _legend(max(sums, default=0), bottom + 40)
    yield "</svg>"


def _labels(drawing: Drawing, first: int, last: int) -> Iterator[str]:
    for index in range(first, last + 1):
        y = _TOP + (last - index + 1) * _CELL_HEIGHT - 3
        yield _text(_LEFT - 6, y, label(drawing.buckets, index), anchor="end")


def _column(drawing: Drawing, column: int, shown: range, width: float) -> Iterator[str]:
    when, counts = drawing.rows[column]
    x = _LEFT + column * width
    for index in shown:
        count = counts[index]
        if not count:
            continue
        y = _TOP + (shown.stop - 1 - index) * _CELL_HEIGHT
        colour = _COLOURS[min(shade(count), len(_COLOURS)) - 1]
        what = f"{_clock(when)}  {label(drawing.buckets, index)} {drawing.unit}: {count}"
        yield (
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_CELL_HEIGHT}" '
            f'fill="{colour}"><title>{_escaped(what)}</title></rect>'
        )


def _times(drawing: Drawing, bottom: int, width: float) -> Iterator[str]:
    step = max(1, round(72 / width))
    for column in range(0, len(drawing.rows), step):
        yield _text(_LEFT + column * width, bottom + 14, _clock(drawing.rows[column][0]))


def _legend(most: int, y: int) -> Iterator[str]:
    yield _text(_LEFT - 6, y + 10, "count", anchor="end")
    for step in range(1, max(2, min(shade(most), len(_COLOURS)) + 1)):
        x = _LEFT + (step - 1) * 64
        yield f'<rect x="{x}" y="{y}" width="14" height="12" fill="{_COLOURS[step - 1]}"/>'
        yield _text(x + 18, y + 10, f"{number(legend(step)[0])}+")


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="#222222">{_escaped(text)}</text>'
    )


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _escaped(text: str) -> str:
    # XML cannot represent most control characters, nor unpaired surrogates.
    safe = "".join(c if c.isprintable() else "\ufffd" for c in text)
    for character, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        safe = safe.replace(character, f"&{name};")
    return safe
