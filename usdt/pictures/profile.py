"""Stacks with their weights, from any source: what pictures and profiles are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = (
    "HITS",
    "KINDS",
    "MAX_FRAMES",
    "MAX_STACKS",
    "Frame",
    "Label",
    "Profile",
    "Sample",
    "Weight",
)

#: The kinds of frames. "label" is a command or another key, "note" what stands for no function.
KINDS = ("native", "inlined", "python", "jit", "kernel", "label", "note")

#: The most frames of a stack; of a deeper one the innermost are kept.
MAX_FRAMES = 1000

#: The most distinct stacks of a profile.
MAX_STACKS = 1 << 18

_MOST_TEXT = 1 << 26  # characters of functions, files and labels
_OTHERS = "[other stacks]"
_PLAIN = ("comm", "probe")  # labels whose text says what they are

#: The name and the text of a key: ``("comm", "python3")``.
Label = tuple[str, str]


@frozen
class Frame:
    """A function of a stack, the same in all processes.

    Attributes:
        name: the function; what stands for it if its name is not known.
        kind: one of :data:`KINDS`.
        module: the file, or ``[kernel]``; "" if it is not known.
        build_id: the build ID of the file; "" if it is not known.
        address: the link-time address in the file; 0 if it is not known.
        file: the source file; "" if it is not known.
        line: the line in it; 0 if it is not known.
    """

    name: str
    kind: str = "native"
    module: str = ""
    build_id: str = ""
    address: int = 0
    file: str = ""
    line: int = 0

    @property
    def unnamed(self) -> bool:
        """Whether the name is that of the module, ``[libc.so.6]``, or another in its place."""
        return self.name.startswith("[")

    @property
    def title(self) -> str:
        """The name, with the source line if it is known: ``work (shop.c:3)``."""
        if not self.file:
            return self.name
        return f"{self.name} ({self.file.rpartition('/')[2]}:{self.line or '?'})"


@frozen
class Weight:
    """What the numbers of samples are.

    Attributes:
        name: ``hits``, ``duration``, or the expression that was added up.
        unit: ``count``, ``nanoseconds`` or ``bytes``, as in pprof; "" for another number.
    """

    name: str
    unit: str = ""


#: The weight that every profile has first.
HITS = Weight("hits", "count")


@frozen
class Sample:
    """A distinct stack.

    Attributes:
        labels: the keys that are no stacks, the command first.
        frames: the functions, the outermost first.
        values: a number for each weight of the profile.
    """

    labels: tuple[Label, ...]
    frames: tuple[Frame, ...]
    values: tuple[int, ...]

    def path(self) -> Iterator[Frame]:
        """Yield the labels as frames, then the functions."""
        for name, text in self.labels:
            yield Frame(text if name in _PLAIN else f"{name}={text}", "label")
        yield from self.frames


def _named(frame: Frame, names: Mapping[tuple[str, int], Frame]) -> Frame:
    return names.get((frame.build_id, frame.address), frame) if frame.unnamed else frame


class Profile:
    """Stacks, added up. Memory grows with distinct stacks, up to a limit.

    Args:
        weights: what the numbers of each stack are.
        most: the most distinct stacks that are kept apart.

    Attributes:
        title: what was traced.
        weights: what the numbers of each stack are.
        other: how many hits are in the stack ``[other stacks]``, because there are too many.
        cut: how many stacks lack their outermost frames, because they are too deep.
    """

    def __init__(self, *weights: Weight, title: str = "", most: int = MAX_STACKS) -> None:
        self.title = title
        self.weights = weights or (HITS,)
        self.other = 0
        self.cut = 0
        self._most = most
        self._text = 0
        self._frames: dict[Frame, Frame] = {}
        self._values: dict[tuple[tuple[Label, ...], tuple[Frame, ...]], list[int]] = {}

    def add(
        self, labels: tuple[Label, ...], frames: tuple[Frame, ...], values: Sequence[int]
    ) -> None:
        """Add hits with a stack, whose frames are given outermost first.

        Args:
            labels: the keys that are no stacks.
            frames: the functions.
            values: a number for each weight; 0 for those that are missing at the end.
        """
        if len(frames) > MAX_FRAMES:
            frames = (Frame("[cut]", "note"), *frames[-MAX_FRAMES:])
            self.cut += values[0]
        known = self._values.get((labels, frames))
        if known is None:
            if len(self._values) >= self._most or self._text > _MOST_TEXT:
                self.other += values[0]
                labels, frames = (), (Frame(_OTHERS, "note"),)
            frames = tuple(map(self._same, frames))
            self._text += sum(len(text) for _, text in labels) + len(frames)
            known = self._values.setdefault((labels, frames), [])
        known += [0] * (len(values) - len(known))
        for index, value in enumerate(values):
            known[index] += value

    def _same(self, frame: Frame) -> Frame:
        # Equal frames of different stacks are one object.
        known = self._frames.setdefault(frame, frame)
        if known is frame:
            self._text += len(frame.name) + len(frame.module) + len(frame.file)
        return known

    def column(self, weight: Weight) -> int:
        """Return which number of a stack is that of a weight, which is added if it is new."""
        if weight not in self.weights:
            self.weights += (weight,)
        return self.weights.index(weight)

    def add_weighted(
        self,
        labels: tuple[Label, ...],
        frames: tuple[Frame, ...],
        hits: int,
        weight: Weight | None,
        value: int,
    ) -> None:
        """Add hits with a stack, and what they weigh."""
        if weight is None:
            self.add(labels, frames, (hits,))
        else:
            self.add(labels, frames, (hits, *[0] * (self.column(weight) - 1), value))

    def samples(self) -> list[Sample]:
        """Return all distinct stacks, in the order of their first hits.

        The label ``probe`` is there only if there are several probes. A frame whose function is not
        known has the name that another machine gave its address in the same file.
        """
        probes = {text for labels, _ in self._values for name, text in labels if name == "probe"}
        names = self._names()
        found: dict[tuple[tuple[Label, ...], tuple[Frame, ...]], list[int]] = {}
        for (labels, frames), values in self._values.items():
            shown = labels
            if len(probes) < 2:
                shown = tuple(one for one in labels if one[0] != "probe")
            known_as = tuple(_named(frame, names) for frame in frames) if names else frames
            known = found.setdefault((shown, known_as), [0] * len(self.weights))
            for index, value in enumerate(values):
                known[index] += value
        return [Sample(labels, frames, (*values,)) for (labels, frames), values in found.items()]

    def _names(self) -> dict[tuple[str, int], Frame]:
        # Returns the frames that have the names of those without one, by build ID and address.
        frames = {frame for _, stack in self._values for frame in stack if frame.build_id}
        wanted = {(one.build_id, one.address) for one in frames if one.unnamed}
        found: dict[tuple[str, int], Frame] = {}
        for one in frames:
            place = one.build_id, one.address
            if place in wanted and not one.unnamed and one.kind != "inlined":
                found[place] = min(one, found.get(place, one), key=lambda frame: frame.title)
        return found

    def notices(self) -> list[str]:
        """Return what the profile lacks, for people."""
        notices = []
        if self.other:
            notices.append(f"too many distinct stacks: {plural(self.other, 'hit')} in {_OTHERS}")
        if self.cut:
            notices.append(
                f"the stacks of {plural(self.cut, 'hit')} have more than {MAX_FRAMES} frames: cut"
            )
        return notices
