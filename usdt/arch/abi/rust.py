"""Rust, on x86-64 and arm64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.convention import DOUBTFUL, FLOATING, NOT_KEPT
from usdt.arch.abi.others import Aarch64
from usdt.arch.abi.passed import Lost, Passed, Piece, Spread
from usdt.arch.abi.rust_layout import numbers_of
from usdt.arch.abi.x86 import SystemV
from usdt.base.errors import BtfError

if TYPE_CHECKING:
    from usdt.arch.abi.classify import Leaf, Shape
    from usdt.arch.abi.passed import Value
    from usdt.btf.reader import Btf

__all__ = ("Rust",)


class Rust(SystemV):
    """Rust's own convention, which it does not promise.

    A number alone or two numbers go as such; what is no more than a word as one, what is larger
    by its address.
    """

    def __init__(self, btf: Btf, machine: str) -> None:
        super().__init__(btf, machine)
        self.results = {"x86_64": ("rax", "rdx"), "aarch64": ("x0", "x1")}.get(machine, ())
        self.floats = () if not self.results else SystemV.floats
        if machine == "aarch64":
            self.floats = Aarch64.floats
        self._numbers: list[Leaf] | None = None  # of the value that is looked at

    def pass_(self, value: Value) -> Passed:
        """Where the next parameter is."""
        self._look_at(value)
        return Spread(()) if self._numbers == [] and not self.doubt else super().pass_(value)

    def result(self, value: Value) -> Passed:
        """Where the result is."""
        self._look_at(value)
        return super().result(value)

    def _look_at(self, value: Value) -> None:
        try:
            self._numbers = numbers_of(self.btf, value.type) if value.type else None
        except BtfError:  # it is only declared: said by the others
            self._numbers = None

    def hidden(self) -> Passed:
        """A result whose address is the first argument."""
        return Lost(NOT_KEPT.format("x8")) if self.machine == "aarch64" else super().hidden()

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        numbers = self._numbers
        if not self.results:
            return self.doubted(shape)
        if numbers is None:
            return self.pointed() if shape.size > self.word else self.number(shape.size)
        if shape.scalar:
            return self._wide(shape)
        room = self.used + len(numbers) <= len(self.names)
        if not room or any(one.size > self.word for one in numbers):
            return self.doubted(shape)
        return Spread(tuple(map(self._one, numbers)))

    def _wide(self, shape: Shape) -> Passed:
        # A number of two words; arm64 begins it at a register with an even number.
        odd = self.machine == "aarch64" and self.used % 2
        names = self.names[self.used : self.used + 2]
        if odd or len(names) < 2:
            return self.doubted(shape)
        self.used += 2
        return self.words(shape, names)

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
        if shape.size > 2 * self.word or (self._numbers is None and shape.size > self.word):
            return self.hidden()
        if self._numbers is None or shape.scalar:
            return self.words(shape, self.results)
        if any(leaf.floating for leaf in self._numbers):
            return Lost("floating-point numbers in registers that programs are not given")
        return Spread(
            tuple(
                self.piece(name, leaf.start, leaf.size)
                for name, leaf in zip(self.results, self._numbers, strict=False)
            )
        )
