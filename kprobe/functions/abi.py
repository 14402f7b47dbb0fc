"""Which words hold a function's arguments: by the CPU's calling convention, or one after the other.

Words are numbered: those in registers first, then those on the stack. Sources: those of
:mod:`usdt.arch.calling_convention`; of structures passed by value the System V ABI for x86-64
(3.2.3), AAPCS64 (6.8.2), the RISC-V and LoongArch psABIs, the s390x ELF ABI and the ELF v2 ABI of
Power. A context of fentry has every argument in words of its own, in order (btf_ctx_access()).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.calling_convention import KERNEL_CONVENTIONS
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL, word_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ("Shape", "Where", "hides_result", "words_called", "words_traced")

_WORD = 8
_IN_REGISTERS = 16  # bytes of the largest structure that two registers hold


@frozen
class Shape:
    """What is passed: bytes, their alignment, and whether it is a structure or union."""

    size: int
    align: int = 1
    aggregate: bool = False

    @property
    def words(self) -> int:
        """How many words it takes."""
        return -(-self.size // _WORD)


@frozen
class Where:
    """The words of an argument, in order; ``reference``: there is the address of it."""

    words: tuple[int, ...]
    reference: bool = False


def words_traced(shapes: Sequence[Shape]) -> list[Where | None]:
    """The words of a context of fentry."""
    found: list[Where | None] = []
    at = 0
    for shape in shapes:
        found.append(Where(tuple(range(at, at + shape.words))))
        at += shape.words
    return found


def words_called(shapes: Sequence[Shape], machine: str = KERNEL) -> list[Where | None]:
    """The words of a call; None for an argument of which it is not known, and all after it."""
    registers = len(KERNEL_CONVENTIONS[machine].arguments)
    give = _RULES.get(machine)
    if give is None:
        return list(_plain(shapes, word_of(machine)))
    free = _Free(registers)
    return [give(free, shape) for shape in shapes]


def hides_result(shape: Shape, machine: str = KERNEL) -> bool:
    """Whether the first word of a call is the address of where its result goes."""
    if not shape.aggregate or machine.startswith("aarch64"):  # which has x8 for it
        return False
    return machine == "s390x" or shape.size > _IN_REGISTERS


class _Free:
    # The next register and the next word of the stack.
    def __init__(self, registers: int) -> None:
        self.registers = registers
        self.register = 0
        self.stack = 0

    def take(self, number: int) -> tuple[int, ...]:
        """So many registers."""
        first = self.register
        self.register += number
        return tuple(range(first, first + number))

    def push(self, shape: Shape) -> tuple[int, ...]:
        """Words of the stack."""
        if shape.align > _WORD:
            self.stack += self.stack % 2
        first = self.registers + self.stack
        self.stack += shape.words
        return tuple(range(first, first + shape.words))

    def even(self, shape: Shape) -> None:
        """A value of two words' alignment begins at an even register."""
        if shape.align > _WORD:
            self.register += self.register % 2


def _plain(shapes: Sequence[Shape], word: int) -> Iterator[Where | None]:
    # A CPU of which only values of a word are known.
    known = True
    for number, shape in enumerate(shapes):
        known = known and not shape.aggregate and shape.size <= word
        yield Where((number,)) if known else None


def _x86_64(free: _Free, shape: Shape) -> Where:
    small = not shape.aggregate or shape.size <= _IN_REGISTERS
    if small and free.register + shape.words <= free.registers:
        return Where(free.take(shape.words))
    return Where(free.push(shape))


def _aarch64(free: _Free, shape: Shape) -> Where:
    if shape.size > _IN_REGISTERS:
        return Where(_aarch64(free, Shape(_WORD)).words, reference=True)
    free.even(shape)
    if free.register + shape.words <= free.registers:
        return Where(free.take(shape.words))
    free.register = free.registers
    return Where(free.push(shape))


def _riscv(free: _Free, shape: Shape) -> Where:
    if shape.size > _IN_REGISTERS:
        return Where(_riscv(free, Shape(_WORD)).words, reference=True)
    left = free.registers - free.register
    if shape.words <= left:
        return Where(free.take(shape.words))
    if left > 0:  # its second word is the first on the stack
        return Where((*free.take(left), *free.push(Shape(_WORD))))
    return Where(free.push(shape))


def _s390x(free: _Free, shape: Shape) -> Where:
    if shape.size > _WORD or (shape.aggregate and shape.size not in (1, 2, 4, 8)):
        return Where(_s390x(free, Shape(_WORD)).words, reference=True)
    if free.register < free.registers:
        return Where(free.take(1))
    return Where(free.push(Shape(_WORD)))


def _in_order(free: _Free, shape: Shape) -> Where:
    # Power's and MIPS's: the words of a save area, whose first ones are in registers instead.
    free.even(shape)
    return Where(free.take(shape.words))


_RULES: dict[str, Callable[[_Free, Shape], Where]] = {
    "x86_64": _x86_64,
    "aarch64": _aarch64,
    "riscv64": _riscv,
    "loongarch64": _riscv,
    "s390x": _s390x,
    "ppc64le": _in_order,
    "mips64": _in_order,
    "mips64el": _in_order,
}
