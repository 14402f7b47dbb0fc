"""Calling conventions of arm64, arm, s390x, RISC-V, Power and MIPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.convention import FLOATING, SRET_NOT_KEPT, UNKNOWN_PASSING, CallingConvention
from usdt.arch.abi.passed import NotReadable, Passed, PassedInRegisters
from usdt.arch.locations import Register
from usdt.base.frozen import replace

if TYPE_CHECKING:
    from usdt.arch.abi.classify import AbiType

__all__ = ("Aarch64", "Arm", "Mips", "Power", "Riscv", "S390x")


class Aarch64(CallingConvention):
    """AAPCS64: homogeneous float aggregates in vector registers, large structures by address."""

    float_registers = tuple(f"v{number}" for number in range(8))

    def assign_floating(self, abi_type: AbiType) -> Passed:
        """Assign a floating-point number."""
        if self.next_float == len(self.float_registers):
            return self.assign_stack(abi_type.size, abi_type.align)
        return super().assign_floating(abi_type)

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        number = abi_type.homogeneous
        if number:
            if self.next_float + number <= len(self.float_registers):
                self.next_float += number
                return NotReadable(FLOATING.format(self.float_registers[self.next_float - 1]))
            self.next_float = len(self.float_registers)
            return self.assign_stack(abi_type.size, abi_type.align)
        if abi_type.size > 16:
            return self.assign_by_reference()
        if abi_type.align == 16:
            self.next_register += self.next_register & 1
        count = -(-abi_type.size // 8)
        if self.big_endian:
            return self.mark_unknown(abi_type)
        if self.next_register + count > len(self.argument_registers):
            self.next_register = len(self.argument_registers)
            return self.assign_stack(abi_type.size, abi_type.align)
        names = self.argument_registers[self.next_register : self.next_register + count]
        self.next_register += count
        return self.in_registers(abi_type, names)

    def assign_sret(self) -> Passed:
        """Assign the address of the result (sret), and return the location of the result."""
        return NotReadable(SRET_NOT_KEPT.format("x8"))

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        if abi_type.homogeneous:
            return NotReadable("floating-point numbers in registers that programs cannot read")
        if abi_type.size > 16:
            return self.assign_sret()
        if self.big_endian:
            return NotReadable(UNKNOWN_PASSING.format(self.machine, abi_type.description))
        return self.in_registers(abi_type, self.result_registers)


class S390x(CallingConvention):
    """Structures of 1, 2, 4 or 8 bytes are passed as numbers, all others by address."""

    float_registers = ("f0", "f2", "f4", "f6")

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        if abi_type.size not in (1, 2, 4, 8):
            return self.assign_by_reference()
        if len(abi_type.fields) == 1 and abi_type.fields[0].floating:
            return self.assign_floating(abi_type)
        return self.assign_word(abi_type.size)

    def aggregate_result(self, abi_type: AbiType) -> Passed:  # noqa: ARG002 - never in registers
        """Return the location of a result wider than a word, or of a structure or union."""
        return self.assign_sret()


class Riscv(CallingConvention):
    """Up to two words are passed in registers, larger values by address."""

    float_registers = tuple(f"fa{number}" for number in range(8))

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        if abi_type.size > 2 * self.word:
            return self.assign_by_reference()
        if any(field.floating for field in abi_type.fields):
            return self.mark_unknown(abi_type)
        return self.assign_words(abi_type)

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        if abi_type.size > 2 * self.word:
            return self.assign_sret()
        if any(field.floating for field in abi_type.fields):
            return NotReadable("floating-point numbers in registers that programs cannot read")
        return self.in_registers(abi_type, self.result_registers)


class Power(CallingConvention):
    """ELF v2: a floating-point number also consumes the general register of its word."""

    float_registers = tuple(f"f{number}" for number in range(1, 14))

    def assign_floating(self, abi_type: AbiType) -> Passed:
        """Assign a floating-point number."""
        found = super().assign_floating(abi_type)
        self.assign_word(8)
        return found

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        if abi_type.homogeneous:
            return self.mark_unknown(abi_type)
        if abi_type.align > 8:
            self.next_register += self.next_register & 1
        return self.assign_words(abi_type)

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        if abi_type.homogeneous:
            return NotReadable("floating-point numbers in registers that programs cannot read")
        if abi_type.size > 16:
            return self.assign_sret()
        return self.in_registers(abi_type, self.result_registers)


class Mips(Power):
    """The n64 ABI without floating-point registers; structures are left-justified."""

    def in_registers(self, abi_type: AbiType, names: tuple[str, ...]) -> PassedInRegisters:
        """Return a value whose words are in consecutive registers."""
        pieces = super().in_registers(abi_type, names).pieces
        if abi_type.scalar:
            return PassedInRegisters(pieces)
        return PassedInRegisters(
            tuple(replace(one, register=Register(self.slots[one.name], one.size)) for one in pieces)
        )

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        return CallingConvention.aggregate_result(self, abi_type)


class Arm(CallingConvention):
    """An 8-byte number takes an even register and the next one.

    Floating-point numbers are unknown: armel passes them in general registers, armhf does not.
    """

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        if abi_type.floating or not abi_type.scalar or self.big_endian:
            return self.mark_unknown(abi_type)
        self.next_register += self.next_register & 1
        if self.next_register + 2 > len(self.argument_registers):
            self.next_register = len(self.argument_registers)
            return self.assign_stack(8, 8)
        names = self.argument_registers[self.next_register : self.next_register + 2]
        self.next_register += 2
        return self.in_registers(abi_type, names)

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        if abi_type.scalar and abi_type.size == 8 and not self.big_endian:
            return self.in_registers(abi_type, self.result_registers)
        if abi_type.size > 4:
            return self.assign_sret()
        return super().aggregate_result(abi_type)
