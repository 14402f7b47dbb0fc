"""Stacks as one tree, for flame graphs; colours by kind, or by the difference of two profiles."""

from __future__ import annotations

import colorsys
import zlib
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import printable
from usdt.pictures.profile import Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.pictures.profile import Frame, Profile

__all__ = ("COLOURS", "MAX_NODES", "Tree", "difference", "kinds_of", "tree_of")

#: The most boxes of a picture; the smallest of others are left out.
MAX_NODES = 20_000

#: Kind → hue in degrees, and saturation. All colours are light: the text on them is black.
COLOURS = {
    "native": (8, 0.80),
    "inlined": (178, 0.50),
    "python": (212, 0.75),
    "jit": (118, 0.50),
    "kernel": (38, 0.90),
    "label": (0, 0.0),
    "note": (0, 0.0),
}
_ALL = "all"


@frozen
class Tree:
    """The boxes of a flame graph. A parent is before its children; box 0 is the root.

    Attributes:
        title: what was traced.
        weights: what the numbers are; the first is shown first.
        names: the text of each distinct function.
        kinds: its kind.
        function: for each box, the index of its function.
        parent: for each box, the index of its parent; -1 of the root.
        values: for each weight, the number of each box, with that of the boxes above it.
        change: for each box, its share after minus its share before; None without a difference.
        left_out: how many boxes are not here, because they are the smallest.
        negative: how many stacks are not here, because a number of them is negative.
    """

    title: str
    weights: tuple[Weight, ...]
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    function: tuple[int, ...]
    parent: tuple[int, ...]
    values: tuple[tuple[int, ...], ...]
    change: tuple[float, ...] | None = None
    left_out: int = 0
    negative: int = 0

    def colours(self) -> list[str]:
        """Return the colour of each box, as ``#rrggbb``."""
        if self.change is not None:
            largest = max(map(abs, self.change), default=0.0)
            return [_change_colour(one / largest if largest else 0.0) for one in self.change]
        known = [
            _kind_colour(kind, name) for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        return [known[index] for index in self.function]


class _Builder:
    # Boxes in the order in which they are first met.
    def __init__(self, weights: int) -> None:
        self.functions: dict[tuple[str, str], int] = {(_ALL, "label"): 0}
        self.function = [0]
        self.parent = [-1]
        self.values: list[list[int]] = [[0] for _ in range(weights)]
        self.negative = 0
        self._children: dict[tuple[int, int], int] = {}
        self._known: dict[Frame, int] = {}

    def add(self, profile: Profile, columns: Sequence[int]) -> None:
        # The last weights of the profile become these columns.
        for sample in profile.samples():
            values = [*zip(columns, sample.values[-len(columns) :], strict=True)]
            if min(value for _, value in values) < 0:
                self.negative += 1
                continue
            self._count(0, values)
            box = 0
            for frame in sample.path():
                box = self._child(box, frame)
                self._count(box, values)

    def _count(self, box: int, values: Sequence[tuple[int, int]]) -> None:
        for column, value in values:
            self.values[column][box] += value

    def _child(self, parent: int, frame: Frame) -> int:
        function = self._known.get(frame)
        if function is None:
            name = printable(frame.title), frame.kind
            function = self.functions.setdefault(name, len(self.functions))
            self._known[frame] = function
        box = self._children.get((parent, function))
        if box is None:
            box = self._children[parent, function] = len(self.parent)
            self.parent.append(parent)
            self.function.append(function)
            for column in self.values:
                column.append(0)
        return box

    def tree(self, title: str, weights: tuple[Weight, ...], most: int) -> Tree:
        # A parent's number is at least that of a child, and it is before it: it stays with it.
        def size(box: int) -> int:
            return max(column[box] for column in self.values)

        kept = sorted(sorted(range(len(self.parent)), key=lambda box: (-size(box), box))[:most])
        place = {box: index for index, box in enumerate(kept)} | {-1: -1}
        known = [*self.functions]
        used = {
            one: index
            for index, one in enumerate(dict.fromkeys(self.function[box] for box in kept))
        }
        return Tree(
            title,
            weights,
            tuple(known[one][0] for one in used),
            tuple(known[one][1] for one in used),
            tuple(used[self.function[box]] for box in kept),
            tuple(place[self.parent[box]] for box in kept),
            tuple(tuple(column[box] for box in kept) for column in self.values),
            left_out=len(self.parent) - len(kept),
            negative=self.negative,
        )


def tree_of(profile: Profile, *, most: int = MAX_NODES) -> Tree:
    """Return the tree of a profile; its last weight is shown first.

    Args:
        profile: the stacks.
        most: the most boxes.
    """
    number = len(profile.weights)
    builder = _Builder(number)
    builder.add(profile, range(number)[::-1])
    return builder.tree(profile.title, profile.weights[::-1], most)


def difference(before: Profile, after: Profile, *, most: int = MAX_NODES) -> Tree:
    """Return the tree of two profiles, with the change of each box's share.

    Shares are compared because runs differ in length. The last weights are compared.
    """
    builder = _Builder(2)
    weights = []
    for column, (profile, when) in enumerate(((after, "after"), (before, "before"))):
        builder.add(profile, (column,))
        last = profile.weights[-1]
        weights.append(Weight(f"{last.name} {when}", last.unit))
    tree = builder.tree(after.title, (*weights,), most)
    totals = [column[0] or 1 for column in tree.values]
    change = tuple(
        now / totals[0] - then / totals[1] for now, then in zip(*tree.values, strict=True)
    )
    return Tree(
        *(tree.title, tree.weights, tree.names, tree.kinds, tree.function, tree.parent),
        *(tree.values, change, tree.left_out, tree.negative),
    )


def kinds_of(tree: Tree) -> list[str]:
    """Return the kinds of functions in a tree, in the order of :data:`COLOURS`."""
    used = {tree.kinds[index] for index in tree.function}
    return [kind for kind in COLOURS if kind in used and kind not in ("label", "note")]


def _kind_colour(kind: str, name: str) -> str:
    # Functions of a kind differ a little, the same in every picture.
    hue, saturation = COLOURS[kind]
    spread = zlib.crc32(name.encode("utf-8", "backslashreplace"))
    lightness = 0.66 + (spread & 0xFF) / 255 * 0.16
    turn = ((spread >> 8 & 0xFF) / 255 - 0.5) * 16 if saturation else 0.0
    return _hex(hue + turn, lightness, saturation)


def _change_colour(change: float) -> str:
    # White for no change, red for more, blue for less.
    hue = 0 if change > 0 else 220
    return _hex(hue, 0.96 - 0.36 * abs(change) ** 0.5, 0.9 if change else 0.0)


def _hex(hue: float, lightness: float, saturation: float) -> str:
    parts = colorsys.hls_to_rgb(hue % 360 / 360, lightness, saturation)
    return "#" + "".join(f"{round(part * 255):02x}" for part in parts)
