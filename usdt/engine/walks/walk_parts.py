"""What the parts of a step share: labels, ends, reading memory, looking things up in tables.

Registers: as in :mod:`.walk_step`; the state is in r6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.unwind_rows import WalkEnd
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R6, R7, R8, Alu, Jump
from usdt.engine.walks.walk_state import KEY

if TYPE_CHECKING:
    from usdt.arch.unwinding import Cpu
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg

__all__ = ("StepParts",)

_SIGN = 63


class StepParts:
    """The base of the emitter of a step.

    Args:
        asm: the assembler.
        cpu: the CPU.
    """

    def __init__(self, asm: Assembler, cpu: Cpu) -> None:
        self.asm = asm
        self.cpu = cpu
        self.labels: dict[str, str] = {}

    def _label(self, name: str) -> str:
        if name not in self.labels:
            self.labels[name] = self.asm.new_label(name)
        return self.labels[name]

    def _stop(self, end: WalkEnd) -> str:
        return self._label(f"end_{end.name}")

    def _end(self, end: WalkEnd) -> None:
        self.asm.label(self._stop(end))
        self.asm.mov(R1, end)
        self.asm.goto(self._label("end"))

    def _go_on(self) -> None:
        self.asm.mov(R0, 0)
        self.asm.exit()

    def _read(self, to: int, size: int, failed: WalkEnd = WalkEnd.NOT_READ) -> None:
        # Reads from the address in r3 into the state.
        asm = self.asm
        asm.mov(R1, R6)
        asm.add(R1, to)
        asm.mov(R2, size)
        asm.call(Helper.PROBE_READ_USER)
        asm.jump(Jump.NE, R0, 0, self._stop(failed))

    def _block(self, table: str) -> None:
        # Leaves the block whose number is at KEY in r8.
        asm = self.asm
        asm.load_map(R1, table)
        asm.mov(R2, R6)
        asm.add(R2, KEY)
        asm.call(Helper.MAP_LOOKUP_ELEM)
        asm.jump(Jump.EQ, R0, 0, self._stop(WalkEnd.NO_MAPPING))
        asm.mov(R8, R0)

    def _search(self, bits: int, shift: int, size: int) -> None:
        # Finds the last entry of those from r1 on, r2 in number, whose first word is not above r7,
        # or else the first entry; leaves its address in r8. Without branches that depend on words:
        # a wrong guess of the processor costs more than the instructions.
        asm, done = self.asm, self.asm.new_label("found")
        for _ in range(bits):
            asm.jump(Jump.LT, R2, 2, done)
            asm.mov(R3, R2)
            asm.alu(Alu.RSH, R3, 1)
            asm.mov(R4, R1)
            asm.add(R4, R3)
            self._entry(R4, bits, shift)
            asm.load(R4, R4, 0, size)
            asm.mov(R5, R7)
            asm.alu(Alu.SUB, R5, R4)
            asm.alu(Alu.ARSH, R5, _SIGN)
            asm.alu(Alu.XOR, R5, -1)
            asm.alu(Alu.AND, R5, R3)
            asm.add(R1, R5)
            asm.alu(Alu.SUB, R2, R3)
        asm.label(done)
        self._entry(R1, bits, shift)
        asm.mov(R8, R1)

    def _entry(self, number: Reg, bits: int, shift: int) -> None:
        self.asm.alu(Alu.AND, number, (1 << bits) - 1)
        self.asm.alu(Alu.LSH, number, shift)
        self.asm.add(number, R8)

    def _mask(self, register: Reg) -> None:
        if self.cpu.code_mask != (1 << 64) - 1:
            self.asm.mov(R2, self.cpu.code_mask)
            self.asm.alu(Alu.AND, register, R2)
