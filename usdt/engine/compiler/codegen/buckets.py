"""Code that finds the bucket of a number in a histogram whose buckets grow with the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf.asm.insn import R1, R2, R3, Alu, Jump

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler

__all__ = ("emit_log_linear",)


def emit_log_linear(asm: Assembler, resolution: int) -> None:
    """Emit code that leaves the bucket of the unsigned number in r1 in r2; r1 and r3 are changed.

    Each power of two has ``2 ** resolution`` buckets. The number is shifted right until it has at
    most ``resolution + 1`` bits.
    """
    asm.mov(R2, 0)
    for bits in (32, 16, 8, 4, 2, 1):
        lower = asm.new_label("lower")
        if bits == 32:
            asm.mov(R3, R1)
            asm.alu(Alu.RSH, R3, 32 + resolution)
            asm.jump(Jump.EQ, R3, 0, lower)
        else:
            asm.jump(Jump.LT, R1, 1 << bits + resolution, lower)
        asm.add(R2, bits << resolution)
        asm.alu(Alu.RSH, R1, bits)
        asm.label(lower)
    asm.add(R2, R1)
