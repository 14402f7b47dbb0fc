"""Code that adds to a value: counts, sums, minimum and maximum, buckets.

All additions are atomic, even in per-CPU maps: another program on the same CPU can preempt the
program of a user-space probe. Minimum and maximum need compare-and-exchange, which kernels before
5.12 lack. Those kernels run such programs without preemption and the values are per CPU, so plain
loads and stores are enough.

The buckets of a distribution are entries of another map, made at their first hit: few of the
thousands that a value could have are hit. Each entry has 16 adjacent buckets, which are often
hit together. Its key has a number that the value gets at its first hit. A hit whose bucket finds no
space is counted in the value.

Register use: r7 the number to add, r8 the value's address; r0–r5 scratch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R7, R8, R10, Alu, Jump
from usdt.engine.aggregate.spec import Bounds, Linear, Log2
from usdt.engine.aggregate.values import (
    COUNT,
    GROUP,
    HIGH,
    LOW,
    MAX,
    MIN,
    NUMBER,
    UNPLACED,
    buckets_at,
    distribution_at,
)
from usdt.engine.compiler.codegen.buckets import emit_log_linear
from usdt.engine.compiler.codegen.map_calls import emit_fetch_add, emit_map_call
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT, READ_SLOT

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.aggregate.spec import Aggregation, Buckets

__all__ = ("NUMBERS", "SPREAD", "ZEROS", "ValueEmitter", "emit_new_number")

ZEROS = "zeros"  # array of one value: the initial value of a new entry of any map
SPREAD = "spread"  # hash: s32 group of buckets, u32 number of their value → u64 hits of each
NUMBERS = "numbers"  # per-CPU array of one entry: the next number of a value
_SIGN = 1 << 63
_NOEXIST = 1  # BPF_NOEXIST
_GROUP_BITS = GROUP.bit_length() - 1
_TRIES = 16  # attempts to exchange; each fails if another hit changes the value at the same instant


def emit_new_number(asm: Assembler, *, step: int, atomics: bool, failed: str) -> None:
    """Emit code that leaves a number that nothing has in r1.

    Args:
        asm: the assembler.
        step: the distance of two numbers that a CPU gives.
        atomics: whether the kernel has atomic instructions that return the previous value.
        failed: label to jump to without a number; never taken.
    """
    asm.store(R10, KEY_SLOT, 0, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, NUMBERS)
    asm.jump(Jump.EQ, R0, 0, failed)  # array entries always exist
    emit_fetch_add(asm, R0, step, atomics=atomics)


class ValueEmitter:
    """An emitter of the code that adds to the value at the address in r8.

    Args:
        asm: the assembler.
        aggregation: the aggregation to compute.
        signed: whether the number in r7 is signed.
        atomics: whether the kernel has compare-and-exchange instructions.
        step: the distance of two numbers that a CPU gives to values.
        lost: label to jump to when other hits change the value in every attempt.
    """

    def __init__(
        self,
        asm: Assembler,
        aggregation: Aggregation,
        *,
        signed: bool,
        atomics: bool,
        step: int,
        lost: str,
    ) -> None:
        self.asm = asm
        self.aggregation = aggregation
        self.signed = signed
        self.atomics = atomics
        self.step = step
        self.lost = lost

    def write(self) -> None:
        """Emit the addition."""
        aggregation = self.aggregation
        if aggregation.stats:
            self._extremes()  # first: once the hit is counted, it must not be lost
            self._sums()
        if aggregation.resolution is not None:
            self._place(aggregation.resolution)
        if aggregation.buckets is None and not aggregation.stats:
            self._increment()
        if aggregation.buckets is not None:
            self._bucket(aggregation.buckets)
            self.asm.alu(Alu.LSH, R2, 3)
            self.asm.add(R8, R2)
            self._increment(buckets_at(aggregation))

    def _bucket(self, buckets: Buckets) -> None:
        # Leaves the bucket's index in r2.
        match buckets:
            case Linear():
                self._linear(buckets)
            case Bounds():
                self._scaled()
                lowest, highest = (-_SIGN, _SIGN - 1) if self.signed else (0, 2 * _SIGN - 1)
                done = self.asm.new_label("bucket")
                self._search(buckets, buckets.bucket(lowest), buckets.bucket(highest), done)
                self.asm.label(done)
            case Log2():
                self._log2()
            case _:
                assert_never(buckets)

    def _search(self, buckets: Bounds, first: int, last: int, done: str) -> None:
        # Halves the buckets from ``first`` to ``last`` until one is left; goes to ``done``.
        asm = self.asm
        if first == last:
            asm.mov(R2, first)
            asm.goto(done)
            return
        middle = (first + last) // 2
        above = asm.new_label("above")
        asm.mov(R3, buckets.highest[middle])
        asm.jump(Jump.SGT if self.signed else Jump.GT, R1, R3, above)
        self._search(buckets, first, middle, done)
        asm.label(above)
        self._search(buckets, middle + 1, last, done)

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
        emit_log_linear(asm, 0)
        asm.add(R2, 1)
        asm.jump(Jump.GT, R2, Log2().number - 1, self.lost)  # never taken; gives the bound
        asm.label(done)

    # ------------------------------------------------------------ distributions

    def _place(self, resolution: int) -> None:
        # Counts the number in its bucket of the value's distribution.
        asm = self.asm
        found, full, placed = (asm.new_label(name) for name in ("found", "full", "placed"))
        self._number(full)
        asm.store(R10, KEY_SLOT + 4, R1, 4)
        asm.mov(R1, R7)
        if self.signed:  # the bucket of the magnitude, with the sign
            asm.mov(R4, R7)
            asm.alu(Alu.ARSH, R4, 63)
            asm.alu(Alu.XOR, R1, R4)
            asm.alu(Alu.SUB, R1, R4)
        emit_log_linear(asm, resolution)
        if self.signed:
            asm.alu(Alu.XOR, R2, R4)
            asm.alu(Alu.SUB, R2, R4)
        asm.mov(R3, R2)
        asm.alu(Alu.LSH, R3, 3)
        asm.store(R10, READ_SLOT, R3, 4)
        asm.alu(Alu.ARSH, R2, _GROUP_BITS)
        asm.store(R10, KEY_SLOT, R2, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, SPREAD)
        asm.jump(Jump.NE, R0, 0, found)
        asm.store(R10, READ_SLOT + 4, 0, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, ZEROS, READ_SLOT + 4)
        asm.jump(Jump.EQ, R0, 0, full)  # never taken: array entries always exist
        asm.mov(R3, R0)
        asm.mov(R4, _NOEXIST)
        emit_map_call(asm, Helper.MAP_UPDATE_ELEM, SPREAD)
        # The update may fail because another hit has made the entry meanwhile.
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, SPREAD)
        asm.jump(Jump.NE, R0, 0, found)
        asm.label(full)
        asm.mov(R1, 1)
        asm.atomic_add(R8, distribution_at(self.aggregation) + UNPLACED, R1)
        asm.goto(placed)
        asm.label(found)
        asm.load(R1, R10, READ_SLOT, 4)
        asm.alu(Alu.AND, R1, 8 * (GROUP - 1))
        asm.add(R0, R1)
        asm.mov(R1, 1)
        asm.atomic_add(R0, 0, R1)
        asm.label(placed)

    def _number(self, full: str) -> None:
        # Leaves the number of the value in r1, and gives it one at its first hit.
        asm = self.asm
        at = distribution_at(self.aggregation) + NUMBER
        numbered = asm.new_label("numbered")
        asm.load(R1, R8, at)
        asm.jump(Jump.NE, R1, 0, numbered)
        emit_new_number(asm, step=self.step, atomics=self.atomics, failed=full)
        if self.atomics:
            asm.mov(R0, 0)
            asm.compare_exchange(R8, at, R1)
            asm.jump(Jump.EQ, R0, 0, numbered)
            asm.mov(R1, R0)  # another hit was faster
        else:
            asm.store(R8, at, R1)
        asm.label(numbered)

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
