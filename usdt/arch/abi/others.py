"""ARM, s390x, RISC-V and Power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.convention import DOUBTFUL, FLOATING, NOT_KEPT, Words
from usdt.arch.abi.passed import Lost, Passed

if TYPE_CHECKING:
    from usdt.arch.abi.classify import Shape
    from usdt.btf.reader import Btf

__all__ = ("Aarch64", "Arm", "Power", "Riscv", "S390x")


class Aarch64(Words):
    """AAPCS64: equal floating-point numbers together, large structures by their address."""

    floats = tuple(f"v{number}" for number in range(8))

    def floating(self, shape: Shape) -> Passed:
        """A floating-point number."""
        if self.used_floats == len(self.floats):
            return self.pushed(shape.size, shape.align)
        return super().floating(shape)

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        number = shape.homogeneous
        if number:
            if self.used_floats + number <= len(self.floats):
                self.used_floats += number
                return Lost(FLOATING.format(self.floats[self.used_floats - 1]))
            self.used_floats = len(self.floats)
            return self.pushed(shape.size, shape.align)
        if shape.size > 16:
            return self.pointed()
        if shape.align == 16:
            self.used += self.used & 1
        count = -(-shape.size // 8)
        if self.big:
            return self.doubted(shape)
        if self.used + count > len(self.names):
            self.used = len(self.names)
            return self.pushed(shape.size, shape.align)
        names = self.names[self.used : self.used + count]
        self.used += count
        return self.words(shape, names)

    def hidden(self) -> Passed:
        """A result whose address is the first argument."""
        return Lost(NOT_KEPT.format("x8"))

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        if shape.homogeneous:
            return Lost("floating-point numbers in registers that programs are not given")
        if shape.size > 16:
            return self.hidden()
        if self.big:
            return Lost(DOUBTFUL.format(self.machine, shape.words))
        return self.words(shape, ("x0", "x1"))


class S390x(Words):
    """Structures of a word's sizes as numbers, all others by their address."""

    floats = ("f0", "f2", "f4", "f6")

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        if shape.size not in (1, 2, 4, 8):
            return self.pointed()
        if len(shape.leaves) == 1 and shape.leaves[0].floating:
            return self.floating(shape)
        return self.number(shape.size)

    def returned(self, shape: Shape) -> Passed:  # noqa: ARG002 - none is returned in registers
        """The result, if it is no number of up to a word."""
        return self.hidden()


class Riscv(Words):
    """Two words in registers, more by its address."""

    floats = tuple(f"fa{number}" for number in range(8))

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        if shape.size > 2 * self.word:
            return self.pointed()
        if any(leaf.floating for leaf in shape.leaves):
            return self.doubted(shape)
        count = -(-shape.size // self.word)
        if self.used + count > len(self.names):
            return self._split(shape)
        names = self.names[self.used : self.used + count]
        self.used += count
        return self.words(shape, names)

    def _split(self, shape: Shape) -> Passed:
        # One half in the last register, the other on the stack: not put together here.
        if self.used < len(self.names):
            return self.doubted(shape)
        return self.pushed(shape.size, shape.align)

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        if shape.size > 2 * self.word:
            return self.hidden()
        if any(leaf.floating for leaf in shape.leaves):
            return Lost("floating-point numbers in registers that programs are not given")
        return self.words(shape, ("a0", "a1"))


class Power(Words):
    """ELF v2: floating-point numbers take the places of words, too."""

    floats = tuple(f"f{number}" for number in range(1, 14))

    def __init__(self, btf: Btf, machine: str) -> None:
        super().__init__(btf, machine)
        self.results = ("r3", "r4")

    def floating(self, shape: Shape) -> Passed:
        """A floating-point number."""
        found = super().floating(shape)
        self.number(8)
        return found

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        count = -(-shape.size // 8)
        if shape.homogeneous or shape.align > 8 or self.used + count > len(self.names):
            return self.doubted(shape)
        names = self.names[self.used : self.used + count]
        self.used += count
        return self.words(shape, names)

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        if shape.homogeneous:
            return Lost("floating-point numbers in registers that programs are not given")
        if shape.size > 16:
            return self.hidden()
        return self.words(shape, self.results)


class Arm(Words):
    """A number of eight bytes takes an even register and the next.

    Whether floating-point numbers have registers of their own, armel and armhf disagree.
    """

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        if shape.floating or not shape.scalar or self.big:
            return self.doubted(shape)
        self.used += self.used & 1
        if self.used + 2 > len(self.names):
            self.used = len(self.names)
            return self.pushed(8, 8)
        names = self.names[self.used : self.used + 2]
        self.used += 2
        return self.words(shape, names)

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        if shape.scalar and shape.size == 8 and not self.big:
            return self.words(shape, ("r0", "r1"))
        if shape.size > 4:
            return self.hidden()
        return super().returned(shape)
