"""The base class of calling conventions: integers and pointers take consecutive words.

A word is an argument register or a stack slot of that size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.classify import AbiType, abi_type_of
from usdt.arch.abi.passed import (
    NotReadable,
    Passed,
    PassedInMemory,
    PassedInRegisters,
    RegisterPiece,
    Value,
)
from usdt.arch.calling_convention import CONVENTIONS, KERNEL_CONVENTIONS
from usdt.arch.locations import Register
from usdt.arch.pt_regs import PT_REGS, saved_registers
from usdt.base.errors import BtfError
from usdt.base.machine import BIG_ENDIAN, word_size
from usdt.btf import types as btf_types

if TYPE_CHECKING:
    from usdt.btf.reader import Btf

__all__ = (
    "AFTER_UNKNOWN",
    "FLOATING",
    "SPLIT",
    "SRET_NOT_KEPT",
    "UNKNOWN_PASSING",
    "CallingConvention",
)

_INTEGERS = (btf_types.Int, btf_types.Enum, btf_types.Pointer)
_NUMBERS = (*_INTEGERS, btf_types.Float)

FLOATING = "a floating-point number in register {}, which programs on uprobes cannot read"
UNKNOWN_PASSING = "how {} passes a {} is not known"
SPLIT = "one part of this {} is in registers, the other on the stack"
SRET_NOT_KEPT = "the address of the result is in register {} at entry, but in no register at return"
AFTER_UNKNOWN = "its place depends on {}, and how {} passes that is not known"


class CallingConvention:
    """The rules that apply to every CPU; types that they do not cover are marked as unknown.

    Parameters are assigned in order: each call of :meth:`assign_parameter` consumes registers and
    stack slots.

    Args:
        btf: the types.
        machine: the CPU.
        kernel: True for functions of the kernel, which uses no floating-point registers.
    """

    float_registers: tuple[str, ...] = ()  # registers of floating-point numbers

    def __init__(self, btf: Btf, machine: str, *, kernel: bool = False) -> None:
        self.btf = btf
        self.machine = machine
        self.word = word_size(machine)
        self.big_endian = machine in BIG_ENDIAN
        self.floats = not kernel
        convention = (KERNEL_CONVENTIONS if kernel else CONVENTIONS)[machine]
        self.slots = PT_REGS[machine] if kernel else saved_registers(machine)
        self.argument_registers = convention.arguments
        second = () if convention.second_result is None else (convention.second_result,)
        self.result_registers: tuple[str, ...] = (convention.result, *second)
        self.sp = convention.sp
        self.next_register = 0
        self.next_float = 0
        self.first_slot = self.stack = convention.stack
        self.unknown = ""

    # ------------------------------------------------------------ what conventions override

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        return self.mark_unknown(abi_type)

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        if abi_type.size > 2 * self.word:
            return self.assign_sret()
        return NotReadable(UNKNOWN_PASSING.format(self.machine, abi_type.description))

    def assign_floating(self, abi_type: AbiType) -> Passed:
        """Assign a floating-point number."""
        if abi_type.size <= 8 and self.next_float < len(self.float_registers):
            self.next_float += 1
            return NotReadable(FLOATING.format(self.float_registers[self.next_float - 1]))
        return self.mark_unknown(abi_type)

    # ------------------------------------------------------------ common

    def word_part(self, number: int) -> int | None:
        """Return the size of an integer or pointer that fits a word; None for any other type.

        Most types are such: they need no classification, which takes longer.

        Raises:
            BtfError: the type has no size.
        """
        found = self.btf.resolve(number)
        if not isinstance(found, _INTEGERS if self.floats else _NUMBERS):
            return None
        size = self.btf.size_of(number)
        return size if size <= self.word else None

    def mark_unknown(self, abi_type: AbiType) -> NotReadable:
        """Return NotReadable, and mark all later parameters as unknown."""
        self.unknown = self.unknown or abi_type.description
        return NotReadable(UNKNOWN_PASSING.format(self.machine, abi_type.description))

    def assign_parameter(self, value: Value) -> Passed:
        """Return the location of the next parameter."""
        if self.unknown:
            return NotReadable(AFTER_UNKNOWN.format(f"a {self.unknown} before it", self.machine))
        if value.by_reference:
            return self.assign_by_reference()
        try:
            size = self.word_part(value.type)
            if size is not None:
                return self.assign_word(size)
            abi_type = abi_type_of(self.btf, value.type, floats=self.floats)
        except BtfError:
            self.unknown = "type without a size"
            return NotReadable("its type is only declared in the debug information")
        if abi_type.scalar and abi_type.floating:
            return self.assign_floating(abi_type)
        return self.assign_aggregate(abi_type)

    def result(self, value: Value) -> Passed:
        """Return the location of the result.

        Call this before the parameters are assigned: the address of the result may be the first.
        """
        if not value.type:
            return NotReadable("it returns nothing")
        if value.by_reference:
            return self.assign_sret()
        try:
            size = self.word_part(value.type)
            if size is not None:
                return PassedInRegisters((self.piece(self.result_registers[0], 0, size),))
            abi_type = abi_type_of(self.btf, value.type, floats=self.floats)
        except BtfError:
            # It is unknown whether the first argument is the address of the result.
            self.unknown = "type without a size"
            return NotReadable("its type is only declared in the debug information")
        if abi_type.scalar and abi_type.floating:
            return self.floating_result(abi_type)
        return self.aggregate_result(abi_type)

    def floating_result(self, abi_type: AbiType) -> Passed:  # noqa: ARG002 - x86 uses it
        """Return the location of a floating-point result."""
        return NotReadable("a floating-point number in a register that programs cannot read")

    def piece(self, name: str, start: int, size: int) -> RegisterPiece:
        """Return the low ``size`` bytes of a register as a piece; ``start`` is its offset."""
        shift = self.word - size if self.big_endian else 0
        return RegisterPiece(
            start, size, Register(self.slots[name] + shift, size), _display_name(self, name)
        )

    def assign_word(self, size: int) -> Passed:
        """Assign the next word to an integer of ``size`` bytes."""
        if self.next_register < len(self.argument_registers):
            self.next_register += 1
            return PassedInRegisters(
                (self.piece(self.argument_registers[self.next_register - 1], 0, size),)
            )
        return self.assign_stack(size, shift=self.word - size if self.big_endian else 0)

    def assign_stack(
        self, size: int, align: int = 0, shift: int = 0, *, pointer: bool = False
    ) -> PassedInMemory:
        """Assign the next stack slots."""
        align = max(align, self.word)
        at = self.first_slot + (-(-(self.stack - self.first_slot) // align) * align)
        self.stack = at + -(-size // self.word) * self.word
        register = Register(self.slots[self.sp], self.word)
        return PassedInMemory(register, at + shift, _display_name(self, self.sp), pointer)

    def assign_by_reference(self) -> PassedInMemory:
        """Assign the next word to the address of a value."""
        if self.next_register < len(self.argument_registers):
            self.next_register += 1
            name = self.argument_registers[self.next_register - 1]
            register = Register(self.slots[name], self.word)
            return PassedInMemory(register, None, _display_name(self, name), pointer=True)
        return self.assign_stack(self.word, pointer=True)

    def assign_sret(self) -> Passed:
        """Assign the address of the result (sret), and return the location of the result."""
        self.next_register += 1
        return NotReadable(SRET_NOT_KEPT.format(self.argument_registers[0]))

    def sret_returned(self) -> PassedInMemory:
        """Return the location of an sret result whose address the function returns."""
        name = self.result_registers[0]
        return PassedInMemory(
            Register(self.slots[name], self.word), None, _display_name(self, name), pointer=True
        )

    def assign_words(self, abi_type: AbiType) -> Passed:
        """Assign the words of a value to the next registers; what is left goes to the stack."""
        count = -(-abi_type.size // self.word)
        names = self.argument_registers[self.next_register : self.next_register + count]
        if not names and count:
            return self.assign_stack(abi_type.size, abi_type.align)
        self.next_register += len(names)
        if len(names) < count:
            self.assign_stack((count - len(names)) * self.word)
            return NotReadable(SPLIT.format(abi_type.description))
        return self.in_registers(abi_type, names)

    def in_registers(self, abi_type: AbiType, names: tuple[str, ...]) -> PassedInRegisters:
        """Return a value whose words are in consecutive registers."""
        return PassedInRegisters(
            tuple(
                self.piece(name, start, min(self.word, abi_type.size - start))
                for name, start in zip(names, range(0, abi_type.size, self.word), strict=False)
            )
        )


def _display_name(convention: CallingConvention, name: str) -> str:
    # The tables have i386 registers under their x86-64 names.
    return f"e{name[1:]}" if convention.machine == "i386" else name
