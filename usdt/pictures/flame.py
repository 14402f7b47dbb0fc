"""A flame graph as a part of a page, drawn by d3-flame-graph: search, zoom, colours, tooltips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.pictures.page import Part, page, text
from usdt.pictures.tree import kinds_of
from usdt.pictures.vendored import asset

if TYPE_CHECKING:
    from usdt.pictures.tree import Tree

__all__ = ("KIND_NAMES", "amount", "flame_page", "flame_part", "legend_of", "notes")

#: Kind → what the legend calls it.
KIND_NAMES = {
    "native": "native",
    "inlined": "inlined",
    "python": "Python",
    "jit": "JIT-compiled (Java, Node.js)",
    "kernel": "kernel",
}


def flame_part(tree: Tree, name: str = "flame") -> Part:
    """Return a flame graph as a part of a page.

    Args:
        tree: the stacks.
        name: its name in the page, letters only; each flame graph of a page has its own.
    """
    colours = tree.colours()
    legend = legend_of(tree)
    shown = "".join(
        f'<li><span style="background:{colour}"></span>{text(word)}</li>' for word, colour in legend
    )
    options = "".join(
        f'<option value="{index}">{text(weight.name)}</option>'
        for index, weight in enumerate(tree.weights)
    )
    remarks = "".join(f"<p>{text(note)}</p>" for note in notes(tree))
    html = (
        f'<section class="flame" id="{name}" data-flame="{name}">\n'
        '<form class="flame-tools" role="search">\n'
        '<input type="search" placeholder="Search (/)" aria-label="Search functions" '
        'autocomplete="off" spellcheck="false">\n'
        f'<select aria-label="Width of the boxes"{" hidden" if len(tree.weights) < 2 else ""}>'
        f"{options}</select>\n"
        '<button type="button" class="flame-reset">Reset</button>\n'
        '<output class="flame-found" aria-live="polite"></output>\n</form>\n'
        f'<ul class="flame-legend">{shown}</ul>\n'
        '<div class="flame-chart"></div>\n<p class="flame-details">&nbsp;</p>\n'
        f"{remarks}</section>"
    )
    return Part(
        html,
        ("d3", "d3-flame-graph"),
        (asset("flame.js"),),
        (asset("flame.css"),),
        {name: _data(tree, colours)},
    )


def flame_page(tree: Tree) -> str:
    """Return a flame graph as a page of its own."""
    return page(tree.title or "Flame graph", [flame_part(tree)])


def legend_of(tree: Tree) -> list[tuple[str, str]]:
    """Return what colours mean: words, and a colour for each."""
    if tree.change is not None:
        return [("more", "#f58c8c"), ("less", "#8cabf5"), ("the same", "#f5f5f5")]
    examples = {
        tree.kinds[of]: colour for of, colour in zip(tree.function, tree.colours(), strict=True)
    }
    return [(KIND_NAMES[kind], examples[kind]) for kind in kinds_of(tree)]


def amount(value: int, unit: str) -> str:
    """Return a number with its unit, for people."""
    if unit == "nanoseconds":
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if value >= size:
                return f"{value / size:#.4g} {name}"
        return f"{value} ns"
    return f"{value:,}{' B' if unit == 'bytes' else ''}"


def notes(tree: Tree) -> list[str]:
    """Return what a picture lacks, for people."""
    found = []
    if tree.left_out:
        boxes = "smallest box is" if tree.left_out == 1 else f"{tree.left_out} smallest boxes are"
        found.append(f"The {boxes} left out.")
    if tree.negative:
        stacks = "1 stack is" if tree.negative == 1 else f"{tree.negative} stacks are"
        found.append(f"{stacks} left out: a sum of theirs is negative.")
    return found


def _data(tree: Tree, colours: list[str]) -> dict[str, Any]:
    # Columns, not a tree: the depth of stacks is not that of the JSON. A colour is stored once.
    palette = {colour: index for index, colour in enumerate(dict.fromkeys(colours))}
    return {
        "names": tree.names,
        "kinds": tree.kinds,
        "function": tree.function,
        "parent": tree.parent,
        "palette": [*palette],
        "colour": [palette[colour] for colour in colours],
        "weights": [
            {"name": weight.name, "unit": weight.unit, "values": values}
            for weight, values in zip(tree.weights, tree.values, strict=True)
        ],
        "change": None if tree.change is None else [round(one, 9) for one in tree.change],
    }
