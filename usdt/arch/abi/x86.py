"""x86-64 and i386: the System V ABI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.abi.convention import FLOATING, CallingConvention
from usdt.arch.abi.passed import NotReadable, Passed, PassedInRegisters, RegisterPiece

if TYPE_CHECKING:
    from usdt.arch.abi.classify import AbiType

__all__ = ("I386", "SystemV")


class SystemV(CallingConvention):
    """x86-64: the class of an eightbyte is INTEGER if that of any field in it is, else SSE."""

    float_registers = tuple(f"xmm{number}" for number in range(8))

    def assign_sret(self) -> Passed:
        """Assign the address of the result (sret), and return the location of the result."""
        self.next_register += 1
        return self.sret_returned()

    def assign_floating(self, abi_type: AbiType) -> Passed:
        """Assign a floating-point number."""
        if abi_type.size > 8:
            return self.assign_aggregate(abi_type)
        if self.next_float == len(self.float_registers):
            return self.assign_stack(abi_type.size)
        return super().assign_floating(abi_type)

    def floating_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a floating-point result."""
        return NotReadable(FLOATING.format("xmm0" if abi_type.size <= 8 else "st0"))

    def classes(self, abi_type: AbiType) -> list[bool] | None:
        """Return True for each eightbyte of class SSE, False for INTEGER; None for class MEMORY."""
        if abi_type.size > 16 or abi_type.unaligned or not abi_type.size or abi_type.extended:
            return None
        found = [True] * -(-abi_type.size // 8)
        for field in abi_type.fields:
            for at in range(field.start // 8, (field.start + field.size - 1) // 8 + 1):
                found[at] = found[at] and field.floating
        return found

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        if not abi_type.fields and abi_type.size <= 16:
            return PassedInRegisters(())  # an empty structure takes no register
        classes = self.classes(abi_type)
        whole, real = (0, 0) if classes is None else (classes.count(False), classes.count(True))
        fits = self.next_register + whole <= 6 and self.next_float + real <= 8
        if classes is None or not fits:
            return self.assign_stack(abi_type.size, abi_type.align)
        pieces = []
        for number, sse in enumerate(classes):
            name = (
                self.float_registers[self.next_float]
                if sse
                else self.argument_registers[self.next_register]
            )
            self.next_register, self.next_float = (
                self.next_register + (not sse),
                self.next_float + sse,
            )
            pieces.append(self._eight(abi_type, number * 8, name, sse=sse))
        return PassedInRegisters(tuple(pieces))

    def _eight(self, abi_type: AbiType, start: int, name: str, *, sse: bool) -> RegisterPiece:
        size = min(8, abi_type.size - start)
        if sse:
            return RegisterPiece(start, size, None, name, FLOATING.format(name))
        return self.piece(name, start, size)

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        classes = self.classes(abi_type)
        if classes is None and abi_type.scalar:
            return NotReadable(
                "a floating-point number in register st0, which programs cannot read"
            )
        if classes is None:
            return self.assign_sret()
        whole, real = iter(self.result_registers), iter(self.float_registers)
        return PassedInRegisters(
            tuple(
                self._eight(abi_type, number * 8, next(real if sse else whole), sse=sse)
                for number, sse in enumerate(classes)
            )
        )


class I386(CallingConvention):
    """i386: all parameters on the stack; the caller passes the address of a structure result."""

    def assign_sret(self) -> Passed:
        """Assign the address of the result (sret), and return the location of the result."""
        self.stack += self.word
        return self.sret_returned()

    def assign_floating(self, abi_type: AbiType) -> Passed:
        """Assign a floating-point number."""
        return self.assign_stack(abi_type.size)

    def assign_aggregate(self, abi_type: AbiType) -> Passed:
        """Assign a structure, a union, or a number wider than a word."""
        return self.assign_stack(abi_type.size)

    def aggregate_result(self, abi_type: AbiType) -> Passed:
        """Return the location of a result wider than a word, or of a structure or union."""
        if not abi_type.scalar:
            return self.assign_sret()
        return self.in_registers(abi_type, self.result_registers)
