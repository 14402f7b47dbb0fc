"""Code that adds to a value: counts, sums, minimum and maximum, buckets.

All additions are atomic, even in per-CPU maps: another program on the same CPU can preempt the
program of a user-space probe. Minimum and maximum need compare-and-exchange, which kernels before
5.12 lack. Those kernels run such programs without preemption and the values are per CPU, so plain
loads and stores are enough.

Register use: r7 the number to add, r8 the value's address; r0–r3 scratch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf.asm.insn import R0, R1, R2, R3, R7, R8, Alu, Jump
from usdt.engine.aggregate.spec import Linear
from usdt.engine.aggregate.values import COUNT, HIGH, LOW, MAX, MIN, buckets_at

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.aggregate.spec import Aggregation

__all__ = ("ValueEmitter",)

_SIGN = 1 << 63
_TRIES = 16  # attempts to exchange; each fails if another hit changes the value at the same instant


class ValueEmitter:
    """An emitter of the code that adds to the value at the address in r8.

    Args:
        asm: the assembler.
        aggregation: the aggregation to compute.
        signed: whether the number in r7 is signed.
        atomics: whether the kernel has compare-and-exchange instructions.
        lost: label to jump to when other hits change the value in every attempt.
    """

    def __init__(
        self,
        asm: Assembler,
        aggregation: Aggregation,
        *,
        signed: bool,
        atomics: bool,
        lost: str,
    ) -> None:
        self.asm = asm
        self.aggregation = aggregation
        self.signed = signed
        self.atomics = atomics
        self.lost = lost

    def write(self) -> None:
        """Emit the addition."""
        aggregation = self.aggregation
        if aggregation.stats:
            self._extremes()  # first: once the hit is counted, it must not be lost
            self._sums()
        if aggregation.buckets is None and not aggregation.stats:
            self._increment()
        if aggregation.buckets is not None:
            if isinstance(aggregation.buckets, Linear):
                self._linear(aggregation.buckets)
            else:
                self._log2()
            self.asm.alu(Alu.LSH, R2, 3)
            self.asm.add(R8, R2)
            self._increment(buckets_at(aggregation))

    def _increment(self, offset: int = COUNT) -> None:
        self.asm.mov(R1, 1)
        self.asm.atomic_add(R8, offset, R1)

    def _sums(self) -> None:
        asm = self.asm
        asm.mov(R1, R7)
        asm.alu(Alu.LSH, R1, 32)
        asm.alu(Alu.RSH, R1, 32)
        asm.atomic_add(R8, LOW, R1)
        asm.mov(R1, R7)
        asm.alu(Alu.ARSH if self.signed else Alu.RSH, R1, 32)
        asm.atomic_add(R8, HIGH, R1)
        self._increment()

    def _extremes(self) -> None:
        asm = self.asm
        asm.mov(R1, R7)
        if self.signed:
            asm.mov(R2, _SIGN - (1 << 64))
            asm.alu(Alu.XOR, R1, R2)
        self._raise_to(MAX)
        asm.alu(Alu.XOR, R1, -1)
        self._raise_to(MIN)

    def _raise_to(self, offset: int) -> None:
        # Stores r1 if it is greater than the stored u64.
        asm = self.asm
        done = asm.new_label("raised")
        asm.load(R0, R8, offset)
        if not self.atomics:
            asm.jump(Jump.GE, R0, R1, done)
            asm.store(R8, offset, R1)
            asm.label(done)
            return
        for _ in range(_TRIES):
            asm.jump(Jump.GE, R0, R1, done)
            asm.mov(R2, R0)
            asm.compare_exchange(R8, offset, R1)
            asm.jump(Jump.EQ, R0, R2, done)
        asm.goto(self.lost)
        asm.label(done)

    def _scaled(self) -> None:
        # Leaves the number in the unit of the buckets in r1.
        self.asm.mov(R1, R7)
        if self.aggregation.unit > 1:
            self.asm.alu(Alu.DIV, R1, self.aggregation.unit)

    def _log2(self) -> None:
        # Leaves the bucket's index in r2: 0 negative, 1 zero, else 2 + the number of the highest
        # bit.
        asm = self.asm
        done = asm.new_label("bucket")
        self._scaled()
        if self.signed:
            asm.mov(R2, 0)
            asm.jump(Jump.SLT, R1, 0, done)
        asm.mov(R2, 1)
        asm.jump(Jump.EQ, R1, 0, done)
        asm.mov(R2, 2)
        for bits in (32, 16, 8, 4, 2, 1):
            lower = asm.new_label("lower")
            if bits == 32:
                asm.mov(R3, R1)
                asm.alu(Alu.RSH, R3, 32)
                asm.jump(Jump.EQ, R3, 0, lower)
            else:
                asm.jump(Jump.LT, R1, 1 << bits, lower)
            asm.add(R2, bits)
            asm.alu(Alu.RSH, R1, bits)
            asm.label(lower)
        asm.label(done)

    def _linear(self, buckets: Linear) -> None:
        # Leaves the bucket's index in r2: 0 below, then each bucket, the last above.
        asm = self.asm
        done = asm.new_label("bucket")
        self._scaled()
        low, high = buckets.low, buckets.high
        if self.signed:
            less, least = Jump.SLT, low
        else:
            less, least = Jump.LT, max(low, 0)
        asm.mov(R2, 0)
        asm.mov(R3, least)
        asm.jump(less, R1, R3, done)
        asm.mov(R2, buckets.inner + 1)
        asm.mov(R3, high)
        if self.signed or high > 0:
            asm.jump(Jump.SGE if self.signed else Jump.GE, R1, R3, done)
            asm.mov(R3, low)
            asm.alu(Alu.SUB, R1, R3)
            self._divide(buckets.step)
            # Never taken; gives the verifier the bound.
            asm.jump(Jump.GT, R1, buckets.inner - 1, done)
            asm.mov(R2, R1)
            asm.add(R2, 1)
        asm.label(done)

    def _divide(self, step: int) -> None:
        if step < 1 << 31:
            self.asm.alu(Alu.DIV, R1, step)
        else:
            self.asm.mov(R3, step)
            self.asm.alu(Alu.DIV, R1, R3)
