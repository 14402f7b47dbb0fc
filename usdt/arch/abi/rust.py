"""The calling convention of Rust, on x86-64 and arm64."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.convention import FLOATING, SRET_NOT_KEPT, UNKNOWN_PASSING
from usdt.arch.abi.others import Aarch64
from usdt.arch.abi.passed import NotReadable, Passed, PassedInRegisters, RegisterPiece
from usdt.arch.abi.rust_layout import scalar_pair_of
from usdt.arch.abi.x86 import SystemV
from usdt.base.errors import BtfError

if TYPE_CHECKING:
    from usdt.arch.abi.classify import AbiType, ScalarField
    from usdt.arch.abi.passed import Value
    from usdt.btf.reader import Btf

__all__ = ("Rust",)


# Machines whose rules are known → registers of floating-point numbers.
_FLOATS = {"x86_64": SystemV.float_registers, "aarch64": Aarch64.float_registers}


class Rust(SystemV):
    """The convention of rustc, which is not stable.

    A scalar, or a pair of scalars, is passed in registers. Any other value is passed as a word if
    it fits into one, else by address.
    """

    def __init__(self, btf: Btf, machine: str) -> None:
        super().__init__(btf, machine)
        self.float_registers = _FLOATS.get(machine, ())
        self._numbers: list[ScalarField] | None = None  # the scalars of the current value

    def assign_parameter(self, value: Value) -> Passed:
        """Return the location of the next parameter."""
        self._look_at(value)
        return (
            PassedInRegisters(())
            if self._numbers == [] and not self.unknown
            else super().assign_parameter(value)
        )

    def result(self, value: Value) -> Passed:
        """Return the location of the result."""
        self._look_at(value)
        return super().result(value)

    def _look_at(self, value: Value) -> None:
        try:
            self._numbers = scalar_pair_of(self.btf, value.type) if value.type else None
        except BtfError:  # only declared; the base class reports it
            self._numbers = None

    def assign_sret(self) -> Passed:
        """Assign the address of the result (sret), and return the location of the result."""
        return (
            NotReadable(SRET_NOT_KEPT.format("x8"))
            if self.machine == "aarch64"
            else super().assign_sret()
        )

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        numbers = self._numbers
        if self.machine not in _FLOATS:
            return self.mark_unknown(abi_type)
        if numbers is None:
            return (
                self.assign_by_reference()
                if abi_type.size > self.word
                else self.assign_word(abi_type.size)
            )
        if abi_type.scalar:
            return self._wide(abi_type)
        fits = self.next_register + len(numbers) <= len(self.argument_registers)
        if not fits or any(one.size > self.word for one in numbers):
            return self.mark_unknown(abi_type)
        return PassedInRegisters(tuple(map(self._one, numbers)))

    def _wide(self, abi_type: AbiType) -> Passed:
        # A two-word number; arm64 starts it at an even register.
        odd = self.machine == "aarch64" and self.next_register % 2
        names = self.argument_registers[self.next_register : self.next_register + 2]
        if odd or len(names) < 2:
            return self.mark_unknown(abi_type)
        self.next_register += 2
        return self.in_registers(abi_type, names)

    def _one(self, field: ScalarField) -> RegisterPiece:
        if not field.floating:
            self.next_register += 1
            return self.piece(
                self.argument_registers[self.next_register - 1], field.start, field.size
            )
        name = self.float_registers[min(self.next_float, len(self.float_registers) - 1)]
        self.next_float += 1
        return RegisterPiece(field.start, field.size, None, name, FLOATING.format(name))

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        if self.machine not in _FLOATS:
            return NotReadable(UNKNOWN_PASSING.format(self.machine, abi_type.description))
        if not abi_type.size:
            return NotReadable("it returns nothing")
        if abi_type.size > 2 * self.word or (self._numbers is None and abi_type.size > self.word):
            return self.assign_sret()
        if self._numbers is None or abi_type.scalar:
            return self.in_registers(abi_type, self.result_registers)
        if any(field.floating for field in self._numbers):
            return NotReadable("floating-point numbers in registers that programs cannot read")
        return PassedInRegisters(
            tuple(
                self.piece(name, field.start, field.size)
                for name, field in zip(self.result_registers, self._numbers, strict=False)
            )
        )
