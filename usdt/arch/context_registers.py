"""Registers of a program's context by name, and the return address at a function's entry."""

from __future__ import annotations

from usdt.arch.calling_convention import CONVENTIONS, KERNEL_CONVENTIONS
from usdt.arch.locations import Memory, Register, Unreadable, ValueClass, ValueType
from usdt.arch.pt_regs import saved_registers
from usdt.arch.register_names import register_offsets
from usdt.base.frozen import frozen
from usdt.base.machine import word_size

__all__ = ("ContextRegisters",)

_SEGMENTS = frozenset(("cs", "ds", "es", "fs", "gs", "ss"))  # 2 bytes; x86 keeps flags above them
_VECTORS = frozenset(("d", "f", "mm", "q", "st", "v", "vs", "xmm", "ymm", "z", "zmm"))  # + number


@frozen
class ContextRegisters:
    """The registers that the kernel saved when a probe was hit.

    Attributes:
        machine: the CPU of the probed code; "" if the context has no registers.
        kernel: whether the code is the kernel's.
        entry: whether the probe is on the first instruction of a function.
        no_registers: why the context has none.
    """

    machine: str = ""
    kernel: bool = False
    entry: bool = False
    no_registers: str = "only functions (uprobe:, kprobe:) and USDT probes have registers"

    @property
    def word(self) -> ValueType:
        """The type of a register, and of a return address."""
        return ValueType(ValueClass.UNSIGNED, word_size(self.machine) if self.machine else 8)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the registers."""
        return tuple(register_offsets(self.machine))

    def register(self, name: str) -> Register | Unreadable:
        """Return the location of a register; ``Unreadable`` if the context does not have it."""
        offset = register_offsets(self.machine).get(name)
        if not self.machine:
            return Unreadable(self.no_registers)
        if offset is None and name.rstrip("0123456789") in _VECTORS:
            return Unreadable("the kernel saves no vector and floating-point registers at probes")
        if offset is None:
            return Unreadable(f"{self.machine} has no register {name}")
        return Register(offset, 2 if name in _SEGMENTS else self.word.size)

    @property
    def caller(self) -> Register | Memory | Unreadable:
        """The location of the return address, if the probe is at a function's entry."""
        if not self.machine:
            return Unreadable(self.no_registers)
        conventions = KERNEL_CONVENTIONS if self.kernel else CONVENTIONS
        convention, slots = conventions.get(self.machine), saved_registers(self.machine)
        if convention is None or not slots:
            return Unreadable(f"the calling convention of {self.machine} is unknown")
        size = self.word.size
        if convention.link is not None:
            return Register(slots[convention.link], size)
        return Memory(slots[convention.sp], None, 1, 0, size, size, kernel=self.kernel)
