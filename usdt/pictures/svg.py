"""A flame graph as one SVG file, with search and zoom by a small script."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from usdt.base.text import printable
from usdt.pictures.flame import amount, legend_of, notes
from usdt.pictures.vendored import asset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.pictures.tree import Tree

__all__ = ("flame_svg",)

# Pixels.
_WIDTH, _MARGIN, _ROW = 1200, 10, 17
_TOP, _BOTTOM = 64, 40
_CHARACTER = 7.2  # the width of a character
_LEAST = 0.1  # width of a box that is drawn


def flame_svg(tree: Tree) -> str:
    """Return the text of a file. The boxes show the first weight of the tree."""
    return "".join(_elements(tree))


def _elements(tree: Tree) -> Iterator[str]:
    depth = _depths(tree)
    height = _TOP + (max(depth) + 1) * _ROW + _BOTTOM
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="12">\n'
        f"<title>{_escaped(tree.title)}</title>\n"
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="{_WIDTH // 2}" y="24" text-anchor="middle" font-size="16">'
        f"{_escaped(_fitted(tree.title, _WIDTH * 0.6))}</text>\n"
        f'<text id="reset" x="{_MARGIN}" y="24" cursor="pointer">Reset</text>\n'
        f'<text id="search" x="{_WIDTH - _MARGIN}" y="24" text-anchor="end" cursor="pointer">'
        "Search</text>\n"
        f'<text id="details" x="{_MARGIN}" y="{height - 14}"> </text>\n'
        f'<text id="found" x="{_WIDTH - _MARGIN}" y="{height - 14}" text-anchor="end"> </text>\n'
    )
    yield from _legend(tree)
    yield '<g id="boxes">\n'
    yield from _boxes(tree, depth, height)
    yield f"</g>\n<script><![CDATA[{asset('svg.js')}]]></script>\n</svg>\n"


def _legend(tree: Tree) -> Iterator[str]:
    x = float(_MARGIN)
    for word, colour in legend_of(tree):
        yield f'<rect x="{x:.0f}" y="38" width="11" height="11" fill="{colour}" stroke="#888888"/>'
        yield f'<text x="{x + 15:.0f}" y="48">{_escaped(word)}</text>\n'
        x += 35 + len(word) * _CHARACTER
    for note in notes(tree):
        yield f'<text x="{x:.0f}" y="48" fill="#666666">{_escaped(note)}</text>\n'
        x += 20 + len(note) * _CHARACTER


def _depths(tree: Tree) -> list[int]:
    depths = [0] * len(tree.parent)
    for box, parent in enumerate(tree.parent[1:], 1):
        depths[box] = depths[parent] + 1
    return depths


def _places(tree: Tree) -> list[float]:
    # Where each box begins, as a share of the root: beside those before it, in the order of names.
    values = tree.values[0]
    total = values[0] or 1
    children: list[list[int]] = [[] for _ in tree.parent]
    for box, parent in enumerate(tree.parent[1:], 1):
        children[parent].append(box)
    places = [0.0] * len(tree.parent)
    for box, found in enumerate(children):
        at = places[box]
        for child in sorted(found, key=lambda one: tree.names[tree.function[one]]):
            places[child] = at
            at += values[child] / total
    return places


def _boxes(tree: Tree, depth: list[int], height: int) -> Iterator[str]:
    places, colours = _places(tree), tree.colours()
    total = tree.values[0][0] or 1
    scale = _WIDTH - 2 * _MARGIN
    for box, function in enumerate(tree.function):
        share = tree.values[0][box] / total
        width = share * scale
        if width < _LEAST and box:
            continue
        name = tree.names[function]
        x = _MARGIN + places[box] * scale
        y = height - _BOTTOM - (depth[box] + 1) * _ROW
        shown = _escaped(_fitted(name, width))
        yield (
            f'<g data-x="{places[box]:.6f}" data-w="{share:.6f}">'
            f"<title>{_escaped(f'{name} — {_numbers(tree, box)}')}</title>"
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 1}" '
            f'fill="{colours[box]}" rx="1"/>'
            f'<text x="{x + 3:.2f}" y="{y + 12}">{shown}</text></g>\n'
        )


def _numbers(tree: Tree, box: int) -> str:
    parts = [
        f"{weight.name}: {amount(values[box], weight.unit)} "
        f"({100 * values[box] / (values[0] or 1):.2f}%)"
        for weight, values in zip(tree.weights, tree.values, strict=True)
    ]
    if tree.change is not None:
        parts.append(f"{100 * tree.change[box]:+.2f}% of all")
    return ", ".join(parts)


def _fitted(text: str, width: float) -> str:
    most = int((width - 6) / _CHARACTER)
    if len(text) <= most:
        return text
    return text[: most - 1] + "…" if most > 2 else ""


def _escaped(text: str) -> str:
    return html.escape(printable(text))
