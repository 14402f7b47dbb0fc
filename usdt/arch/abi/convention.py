"""What calling conventions have in common: words, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.classify import Shape, shape_of
from usdt.arch.abi.passed import Lies, Lost, Passed, Piece, Spread, Value
from usdt.arch.calling_convention import CONVENTIONS
from usdt.arch.locations import Register
from usdt.arch.pt_regs import saved_registers
from usdt.base.errors import BtfError
from usdt.base.machine import BIG_ENDIAN, word_of

if TYPE_CHECKING:
    from usdt.btf.reader import Btf

__all__ = ("BEHIND", "DOUBTFUL", "FLOATING", "NOT_KEPT", "Words")

FLOATING = "a floating-point number in register {}, which programs on uprobes are not given"
DOUBTFUL = "how {} passes a {} is not known here"
NOT_KEPT = "the address of the result is in register {} at entry, and in none at return"
BEHIND = "where it is depends on {}, and how {} passes that is not known here"


class Words:
    """Every CPU: integers and pointers in words; what is more is doubtful."""

    floats: tuple[str, ...] = ()  # registers of floating-point numbers, which take no other's place

    def __init__(self, btf: Btf, machine: str) -> None:
        self.btf = btf
        self.machine = machine
        self.word = word_of(machine)
        self.big = machine in BIG_ENDIAN
        convention = CONVENTIONS[machine]
        self.slots = saved_registers(machine)
        self.names = convention.arguments
        self.results: tuple[str, ...] = (convention.result,)
        self.sp = convention.sp
        self.used = 0
        self.used_floats = 0
        self.stack = convention.stack
        self.doubt = ""

    # ------------------------------------------------------------ what conventions differ in

    def aggregate(self, shape: Shape) -> Passed:
        """A structure, a union, or what is larger than a word."""
        return self.doubted(shape)

    def returned(self, shape: Shape) -> Passed:
        """The result, if it is no number of up to a word."""
        return Lost(DOUBTFUL.format(self.machine, shape.words))

    def floating(self, shape: Shape) -> Passed:
        """A floating-point number."""
        if shape.size <= 8 and self.used_floats < len(self.floats):
            self.used_floats += 1
            return Lost(FLOATING.format(self.floats[self.used_floats - 1]))
        return self.doubted(shape)

    # ------------------------------------------------------------ common to them

    def doubted(self, shape: Shape) -> Lost:
        """What is not known; what follows is then not known, either."""
        self.doubt = self.doubt or shape.words
        return Lost(DOUBTFUL.format(self.machine, shape.words))

    def pass_(self, value: Value) -> Passed:
        """Where the next parameter is."""
        if self.doubt:
            return Lost(BEHIND.format(f"a {self.doubt} before it", self.machine))
        if value.by_reference:
            return self.pointed()
        try:
            shape = shape_of(self.btf, value.type)
        except BtfError:
            self.doubt = "type without a size"
            return Lost("its type is only declared in the debug information")
        if shape.scalar and not shape.floating and shape.size <= self.word:
            return self.number(shape.size)
        if shape.scalar and shape.floating:
            return self.floating(shape)
        return self.aggregate(shape)

    def result(self, value: Value) -> Passed:
        """Where the result is; to be asked first: its address may be the first parameter."""
        if not value.type:
            return Lost("it returns nothing")
        if value.by_reference:
            return self.hidden()
        try:
            shape = shape_of(self.btf, value.type)
        except BtfError:
            # Whether an argument says where it goes is not known.
            self.doubt = "type without a size"
            return Lost("its type is only declared in the debug information")
        if shape.scalar and not shape.floating and shape.size <= self.word:
            return Spread((self.piece(self.results[0], 0, shape.size),))
        if shape.scalar and shape.floating:
            return self.floating_result(shape)
        return self.returned(shape)

    def floating_result(self, shape: Shape) -> Passed:  # noqa: ARG002 - x86 looks at it
        """A floating-point number that is returned."""
        return Lost("a floating-point number in a register that programs are not given")

    def piece(self, name: str, start: int, size: int) -> Piece:
        """The first bytes of a register, as it lies in the kernel's structure."""
        shift = self.word - size if self.big else 0
        return Piece(start, size, Register(self.slots[name] + shift, size), _shown(self, name))

    def number(self, size: int) -> Passed:
        """The next word, as a number of so many bytes."""
        if self.used < len(self.names):
            self.used += 1
            return Spread((self.piece(self.names[self.used - 1], 0, size),))
        return self.pushed(size, shift=self.word - size if self.big else 0)

    def pushed(self, size: int, align: int = 0, shift: int = 0, *, pointer: bool = False) -> Lies:
        """The next place on the stack."""
        align = max(align, self.word)
        base = CONVENTIONS[self.machine].stack
        at = base + (-(-(self.stack - base) // align) * align)
        self.stack = at + -(-size // self.word) * self.word
        register = Register(self.slots[self.sp], self.word)
        return Lies(register, at + shift, _shown(self, self.sp), pointer)

    def pointed(self) -> Lies:
        """At an address that is the next word."""
        if self.used < len(self.names):
            self.used += 1
            name = self.names[self.used - 1]
            register = Register(self.slots[name], self.word)
            return Lies(register, None, _shown(self, name), pointer=True)
        return self.pushed(self.word, pointer=True)

    def hidden(self) -> Passed:
        """A result whose address is the first argument."""
        self.used += 1
        return Lost(NOT_KEPT.format(self.names[0]))

    def returned_address(self) -> Lies:
        """A result whose address is returned."""
        name = self.results[0]
        return Lies(Register(self.slots[name], self.word), None, _shown(self, name), pointer=True)

    def words(self, shape: Shape, names: tuple[str, ...]) -> Spread:
        """In registers as it lies in memory."""
        return Spread(
            tuple(
                self.piece(name, start, min(self.word, shape.size - start))
                for name, start in zip(names, range(0, shape.size, self.word), strict=False)
            )
        )


def _shown(convention: Words, name: str) -> str:
    # i386 has the registers of x86-64 under narrower names.
    return f"e{name[1:]}" if convention.machine == "i386" else name
