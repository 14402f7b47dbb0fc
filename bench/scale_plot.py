"""A plot of times over sizes, both logarithmic, as SVG."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Points = Sequence[tuple[float, float]]

__all__ = ("plot",)

WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT = 760, 420, 64, 34, 150
COLOURS = ("#1b6ca8", "#c8553d", "#3c8d53", "#8856a7", "#b8860b", "#2a9d9d", "#7f4f24", "#444444")
SIZES = {6: "1 M", 7: "10 M", 8: "100 M"}
TIMES = {-6: "1 us", -5: "10 us", -4: "0.1 ms", -3: "1 ms", -2: "10 ms", -1: "0.1 s", 0: "1 s"}


def plot(lines: Mapping[str, Points]) -> str:
    """A picture of some lines of (size, seconds), each with its name at its end.

    A line that rises as the grey ones do is linear.
    """
    points = [(x, max(y, 1e-6)) for line in lines.values() for x, y in line]
    xs, ys = ([math.log10(one[axis]) for one in points] for axis in (0, 1))
    low, high = math.floor(min(ys)), math.ceil(max(ys))
    last = max(math.ceil(max(xs)), 1)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / last
        up = (HEIGHT - BOTTOM - 10) * (y - low) / (high - low)
        return round(across, 1), round(HEIGHT - BOTTOM - up, 1)

    body = [*_grid(place, last, low, high), *_lines(place, lines)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _grid(place: _Place, last: int, low: int, high: int) -> Iterator[str]:
    for power in range(last + 1):
        x, y = place(power, low)
        yield f'<path d="M{x} {y}V10" stroke="#eee"/>'
        name = SIZES.get(power, f"{10**power:,}")
        yield f'<text x="{x}" y="{y + 16}" text-anchor="middle">{name}</text>'
    for power in range(low, high + 1):
        x, y = place(0, power)
        yield f'<path d="M{x} {y}H{WIDTH - RIGHT}" stroke="#eee"/>'
        name = TIMES.get(power, f"{10 ** max(power, 0):,} s")
        yield f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{name}</text>'
    for start in range(low - last + 1, high):  # what grows linearly
        first, end = max(0, low - start), min(last, high - start)
        if first < end:
            (a, b), (c, d) = place(first, start + first), place(end, start + end)
            yield f'<path d="M{a} {b}L{c} {d}" stroke="#ddd" stroke-dasharray="3 4"/>'


def _lines(place: _Place, lines: Mapping[str, Points]) -> Iterator[str]:
    taken: list[float] = []
    for index, (name, line) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        found = [place(math.log10(x), math.log10(max(y, 1e-6))) for x, y in line]
        path = "L".join(f"{x} {y}" for x, y in found)
        yield f'<path d="M{path}" stroke="{colour}" fill="none" stroke-width="2"/>'
        x, y = found[-1]
        while any(abs(y - other) < 12 for other in taken):
            y += 2
        taken.append(y)
        yield f'<text x="{x + 6}" y="{y + 4}" fill="{colour}">{escape(name)}</text>'


if TYPE_CHECKING:
    from collections.abc import Callable

    _Place = Callable[[float, float], tuple[float, float]]
