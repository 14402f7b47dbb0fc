"""x86-64 and i386: the System V ABI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.convention import FLOATING, Words
from usdt.arch.abi.passed import Lost, Passed, Piece, Spread

if TYPE_CHECKING:
    from usdt.arch.abi.classify import Shape
    from usdt.btf.reader import Btf

__all__ = ("I386", "SystemV")


class SystemV(Words):
    """x86-64: eight bytes of a structure are INTEGER if anything in them is, SSE otherwise."""

    floats = tuple(f"xmm{number}" for number in range(8))

    def __init__(self, btf: Btf, machine: str) -> None:
        super().__init__(btf, machine)
        self.results = ("rax", "rdx")

    def hidden(self) -> Passed:
        """A result whose address is the first argument."""
        self.used += 1
        return self.returned_address()

    def floating(self, shape: Shape) -> Passed:
        """A floating-point number."""
        if shape.size > 8:
            return self.aggregate(shape)
        if self.used_floats == len(self.floats):
            return self.pushed(shape.size)
        return super().floating(shape)

    def floating_result(self, shape: Shape) -> Passed:
        """A floating-point number that is returned."""
        return Lost(FLOATING.format("xmm0" if shape.size <= 8 else "st0"))

    def classes(self, shape: Shape) -> list[bool] | None:
        """For each eight bytes whether they are SSE; None: it is passed in memory."""
        if shape.size > 16 or shape.unaligned or not shape.size or shape.extended:
            return None
        found = [True] * -(-shape.size // 8)
        for leaf in shape.leaves:
            for at in range(leaf.start // 8, (leaf.start + leaf.size - 1) // 8 + 1):
                found[at] = found[at] and leaf.floating
        return found

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        if not shape.leaves and shape.size <= 16:
            return Spread(())  # an empty class
        classes = self.classes(shape)
        whole, real = (0, 0) if classes is None else (classes.count(False), classes.count(True))
        room = self.used + whole <= 6 and self.used_floats + real <= 8
        if classes is None or not room:
            return self.pushed(shape.size, shape.align)
        pieces = []
        for number, sse in enumerate(classes):
            name = self.floats[self.used_floats] if sse else self.names[self.used]
            self.used, self.used_floats = self.used + (not sse), self.used_floats + sse
            pieces.append(self._eight(shape, number * 8, name, sse=sse))
        return Spread(tuple(pieces))

    def _eight(self, shape: Shape, start: int, name: str, *, sse: bool) -> Piece:
        size = min(8, shape.size - start)
        if sse:
            return Piece(start, size, None, name, FLOATING.format(name))
        return self.piece(name, start, size)

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        classes = self.classes(shape)
        if classes is None and shape.scalar:
            return Lost("a floating-point number in register st0, which programs are not given")
        if classes is None:
            return self.hidden()
        whole, real = iter(self.results), iter(self.floats)
        return Spread(
            tuple(
                self._eight(shape, number * 8, next(real if sse else whole), sse=sse)
                for number, sse in enumerate(classes)
            )
        )


class I386(Words):
    """Everything is on the stack; large results are where a hidden address says."""

    def hidden(self) -> Passed:
        """A result whose address is the first argument."""
        self.stack += self.word
        return self.returned_address()

    def floating(self, shape: Shape) -> Passed:
        """A floating-point number."""
        return self.pushed(shape.size)

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        return self.pushed(shape.size)

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        if not shape.scalar:
            return self.hidden()
        return self.words(shape, ("rax", "rdx"))
