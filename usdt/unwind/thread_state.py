"""The state of a thread at a hit: its registers, and a copy of the top of its stack."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.arch.pt_regs import PT_REGS, pt_regs_size
from usdt.arch.unwinding import CPUS, STACK_UNIT, Cpu
from usdt.base.frozen import frozen
from usdt.unwind.expressions import MemoryNotRead

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("ThreadState",)

_NARROW = {"x86_64": "i386"}  # CPU → that of its 32-bit programs
_WORD = struct.Struct("<Q")


@frozen
class ThreadState:
    """The state of a thread.

    Attributes:
        cpu: the CPU, as the program uses it.
        registers: DWARF register number → value.
        pc: the address of the current instruction.
        start: the address of the first byte of ``stack``.
        stack: a copy of the top of the stack.
    """

    cpu: Cpu
    registers: Mapping[int, int]
    pc: int
    start: int
    stack: bytes

    @classmethod
    def of(cls, machine: str, saved: bytes, stack: bytes) -> ThreadState | None:
        """Return the state of a thread from what was recorded.

        Args:
            machine: the kernel's CPU.
            saved: the bytes of ``struct pt_regs``.
            stack: a copy of the stack from the last multiple of ``STACK_UNIT`` on.

        Returns:
            None if stacks of the CPU, or of its 32-bit programs, cannot be unwound.
        """
        if machine not in CPUS or len(saved) < pt_regs_size(machine):
            return None
        slots, cpu = PT_REGS[machine], CPUS[machine]
        if cpu.narrow is not None:
            slot, bits, value = cpu.narrow
            if _WORD.unpack_from(saved, slots[slot])[0] & bits == value:
                if machine not in _NARROW:
                    return None
                cpu = CPUS[_NARROW[machine]]
        mask = (1 << 8 * cpu.word) - 1
        registers = {
            number: _WORD.unpack_from(saved, slots[slot])[0] & mask
            for number, slot in cpu.registers.items()
        }
        pc = _WORD.unpack_from(saved, slots[cpu.pc])[0] & mask
        return cls(cpu, registers, pc, registers[cpu.sp] & -STACK_UNIT, stack)

    def read(self, address: int, size: int) -> int:
        """Return an unsigned integer on the stack.

        Raises:
            MemoryNotRead: it was not recorded.
        """
        at = address - self.start
        if not 0 <= at <= len(self.stack) - size:
            raise MemoryNotRead(address)
        return int.from_bytes(self.stack[at : at + size], "little")
