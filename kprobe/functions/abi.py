"""Argument slots of a kernel function: at a call, or in the context of fentry.

A slot ("word" in the code) has the size of a register. Slots are numbered from 0: first the
argument registers, then the stack. The context of fentry has the slots of each argument in order
(btf_ctx_access()).
Sources: those of :mod:`usdt.arch.calling_convention`; for structures passed by value, the System V
ABI for x86-64 (3.2.3), AAPCS64 (6.8.2), the RISC-V and LoongArch psABIs, the s390x ELF ABI and the
ELF v2 ABI of Power.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.calling_convention import KERNEL_CONVENTIONS
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_MACHINE, word_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ("AbiType", "ArgumentWords", "call_words", "fentry_words", "has_sret")

_WORD = 8
_MAX_IN_REGISTERS = 16  # bytes of the largest structure that two registers hold


@frozen
class AbiType:
    """A type as calling conventions classify it.

    Attributes:
        size: size in bytes.
        align: alignment in bytes.
        aggregate: True for a structure or union.
    """

    size: int
    align: int = 1
    aggregate: bool = False

    @property
    def words(self) -> int:
        """The number of slots that a value takes."""
        return -(-self.size // _WORD)


@frozen
class ArgumentWords:
    """The slots of an argument, in order; with ``by_reference``, the slot of its address."""

    words: tuple[int, ...]
    by_reference: bool = False


def fentry_words(shapes: Sequence[AbiType]) -> list[ArgumentWords | None]:
    """Return the slots of each argument in the context of fentry."""
    found: list[ArgumentWords | None] = []
    at = 0
    for shape in shapes:
        found.append(ArgumentWords(tuple(range(at, at + shape.words))))
        at += shape.words
    return found


def call_words(
    shapes: Sequence[AbiType], machine: str = KERNEL_MACHINE
) -> list[ArgumentWords | None]:
    """Return the slots of each argument of a call; None for an unknown one and all after it."""
    registers = len(KERNEL_CONVENTIONS[machine].arguments)
    give = _RULES.get(machine)
    if give is None:
        return list(_plain(shapes, word_size(machine)))
    free = _WordAllocator(registers)
    return [give(free, shape) for shape in shapes]


def has_sret(shape: AbiType, machine: str = KERNEL_MACHINE) -> bool:
    """Return True if the first slot of a call is the address of its result (sret)."""
    if not shape.aggregate or machine.startswith("aarch64"):  # which uses x8
        return False
    return machine == "s390x" or shape.size > _MAX_IN_REGISTERS


class _WordAllocator:
    # The next free register and stack slot.
    def __init__(self, registers: int) -> None:
        self.registers = registers
        self.register = 0
        self.stack = 0

    def take(self, number: int) -> tuple[int, ...]:
        """Allocate registers."""
        first = self.register
        self.register += number
        return tuple(range(first, first + number))

    def push(self, shape: AbiType) -> tuple[int, ...]:
        """Allocate stack slots."""
        if shape.align > _WORD:
            self.stack += self.stack % 2
        first = self.registers + self.stack
        self.stack += shape.words
        return tuple(range(first, first + shape.words))

    def even(self, shape: AbiType) -> None:
        """Skip to an even register for a value with an alignment of two slots."""
        if shape.align > _WORD:
            self.register += self.register % 2


def _plain(shapes: Sequence[AbiType], word: int) -> Iterator[ArgumentWords | None]:
    # For this CPU, only arguments of one register are known.
    known = True
    for number, shape in enumerate(shapes):
        known = known and not shape.aggregate and shape.size <= word
        yield ArgumentWords((number,)) if known else None


def _x86_64(free: _WordAllocator, shape: AbiType) -> ArgumentWords:
    small = not shape.aggregate or shape.size <= _MAX_IN_REGISTERS
    if small and free.register + shape.words <= free.registers:
        return ArgumentWords(free.take(shape.words))
    return ArgumentWords(free.push(shape))


def _aarch64(free: _WordAllocator, shape: AbiType) -> ArgumentWords:
    if shape.size > _MAX_IN_REGISTERS:
        return ArgumentWords(_aarch64(free, AbiType(_WORD)).words, by_reference=True)
    free.even(shape)
    if free.register + shape.words <= free.registers:
        return ArgumentWords(free.take(shape.words))
    free.register = free.registers
    return ArgumentWords(free.push(shape))


def _riscv(free: _WordAllocator, shape: AbiType) -> ArgumentWords:
    if shape.size > _MAX_IN_REGISTERS:
        return ArgumentWords(_riscv(free, AbiType(_WORD)).words, by_reference=True)
    left = free.registers - free.register
    if shape.words <= left:
        return ArgumentWords(free.take(shape.words))
    if left > 0:  # the second half is in the first stack slot
        return ArgumentWords((*free.take(left), *free.push(AbiType(_WORD))))
    return ArgumentWords(free.push(shape))


def _s390x(free: _WordAllocator, shape: AbiType) -> ArgumentWords:
    if shape.size > _WORD or (shape.aggregate and shape.size not in (1, 2, 4, 8)):
        return ArgumentWords(_s390x(free, AbiType(_WORD)).words, by_reference=True)
    if free.register < free.registers:
        return ArgumentWords(free.take(1))
    return ArgumentWords(free.push(AbiType(_WORD)))


def _in_order(free: _WordAllocator, shape: AbiType) -> ArgumentWords:
    # Power and MIPS: consecutive slots of a save area, the first of which are in registers.
    free.even(shape)
    return ArgumentWords(free.take(shape.words))


_RULES: dict[str, Callable[[_WordAllocator, AbiType], ArgumentWords]] = {
    "x86_64": _x86_64,
    "aarch64": _aarch64,
    "riscv64": _riscv,
    "loongarch64": _riscv,
    "s390x": _s390x,
    "ppc64le": _in_order,
    "mips64": _in_order,
    "mips64el": _in_order,
}
