"""Rust, on x86-64 and arm64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.uprobes.conventions.others import Aarch64
from usdt.uprobes.conventions.passed import Lost, Passed, Piece, Spread
from usdt.uprobes.conventions.words import DOUBTFUL, FLOATING, NOT_KEPT
from usdt.uprobes.conventions.x86 import SystemV

if TYPE_CHECKING:
    from bpf.btf.reader import Btf
    from usdt.uprobes.leaves import Leaf, Shape

__all__ = ("Rust",)


class Rust(SystemV):
    """Rust's own convention, which it does not promise.

    A number alone or two numbers go as such, a structure of up to two words as whole words, a
    larger one by its address.
    """

    def __init__(self, btf: Btf, machine: str) -> None:
        super().__init__(btf, machine)
        self.results = {"x86_64": ("rax", "rdx"), "aarch64": ("x0", "x1")}.get(machine, ())
        self.floats = () if not self.results else SystemV.floats
        if machine == "aarch64":
            self.floats = Aarch64.floats

    def hidden(self) -> Passed:
        """A result whose address is the first argument."""
        return Lost(NOT_KEPT.format("x8")) if self.machine == "aarch64" else super().hidden()

    def pair(self, shape: Shape) -> list[Leaf]:
        """The one or two numbers that a value is; [] if it is more."""
        found = sorted(dict.fromkeys(shape.leaves), key=lambda leaf: leaf.start)
        if len(found) > 2 or any(leaf.size > 8 or leaf.bits for leaf in found):
            return []
        return [] if len(found) == 2 and found[0].end > found[1].start else found

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        if not self.results:
            return self.doubted(shape)
        if not shape.size:
            return Spread(())
        numbers = self.pair(shape)
        if not numbers and shape.size > 2 * self.word:
            return self.pointed()
        count = len(numbers) or -(-shape.size // self.word)
        if self.used + count > len(self.names):
            return self.doubted(shape)
        if not numbers:
            names = self.names[self.used : self.used + count]
            self.used += count
            return self.words(shape, names)
        return Spread(tuple(map(self._one, numbers)))

    def _one(self, leaf: Leaf) -> Piece:
        if not leaf.floating:
            self.used += 1
            return self.piece(self.names[self.used - 1], leaf.start, leaf.size)
        name = self.floats[min(self.used_floats, len(self.floats) - 1)]
        self.used_floats += 1
        return Piece(leaf.start, leaf.size, None, name, FLOATING.format(name))

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        if not self.results:
            return Lost(DOUBTFUL.format(self.machine, shape.words))
        if not shape.size:
            return Lost("it returns nothing")
        numbers = self.pair(shape)
        if not numbers and shape.size > 2 * self.word:
            return self.hidden()
        if not numbers:
            return self.words(shape, self.results)
        if any(leaf.floating for leaf in numbers):
            return Lost("floating-point numbers in registers that programs are not given")
        return Spread(
            tuple(
                self.piece(name, leaf.start, leaf.size)
                for name, leaf in zip(self.results, numbers, strict=False)
            )
        )
