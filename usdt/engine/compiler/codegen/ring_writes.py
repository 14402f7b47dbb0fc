"""Code that reserves and submits records of ring buffers: the kernel's, or those in an array.

In an array (:mod:`usdt.bpf.rings.array_rings`), a record is reserved thus, with the offset in the
data behind each position:

    again:  head, then tail         a tail that is read first may be too old: no space, it seems
            does the record fit before the end of the data?   no: it begins at the start, and what
                                    is left before the end becomes a discarded record
            is there space?         no: the hit is lost
            head: compare and exchange                        another hit was faster: again

The attempts are bounded. The verifier goes through each of them, for each record of a program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R10, Alu, Jump
from usdt.bpf.rings.array_rings import HEAD, POSITIONS, TAIL
from usdt.bpf.rings.ringbuf import DISCARD, HEADER
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.bpf.rings.groups import RingGroups

__all__ = ("BELL", "EVENTS", "RingWriter")

BELL = "bell"  # the ring buffer of the kernel that wakes the reader of an array
EVENTS = "events"  # the ring buffer, the array of those of groups of CPUs, or the array with them
# Two CPUs that do nothing but write lose 11,000 of two million records with 2 attempts, 12 with 6,
# one with 8.
_ATTEMPTS_PER_CPU = 8
_WAKEUP = 0  # flags: wake the reader if it has read all earlier records


class RingWriter:
    """Emits the code around one record.

    Args:
        asm: the assembler.
        record: r7 or r8, which has the address of the record from reserve() on.
        size: bytes of the record.
        groups: how CPUs share ring buffers, and where these are.
    """

    def __init__(self, asm: Assembler, record: Reg, size: int, groups: RingGroups) -> None:
        self._asm = asm
        self._record = record
        self._size = size
        self._groups = groups

    def reserve(self, full: str) -> None:
        """Emit code that reserves a record in the ring buffer of this CPU.

        Args:
            full: the label to go to if there is no space.
        """
        asm, groups = self._asm, self._groups
        if groups.array_size:
            self._reserve_in_array(full)
            return
        if groups.count > 1:
            asm.call(Helper.GET_SMP_PROCESSOR_ID)
            asm.alu(Alu.RSH, R0, groups.shift)
            asm.store(R10, KEY_SLOT, R0, 4)
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, EVENTS)
            asm.jump(Jump.EQ, R0, 0, full)
            asm.mov(R1, R0)
        else:
            asm.load_map(R1, EVENTS)
        asm.mov(R2, self._size)
        asm.mov(R3, 0)
        asm.call(Helper.RINGBUF_RESERVE)
        asm.jump(Jump.EQ, R0, 0, full)
        asm.mov(self._record, R0)

    def submit(self) -> None:
        """Emit code that lets the reader see the record; it wakes the reader if that waits."""
        if self._groups.array_size:
            self._submit_in_array(self._size)
        else:
            self._end(Helper.RINGBUF_SUBMIT)

    def discard(self) -> None:
        """Emit code that discards the record.

        It wakes the reader as well: records submitted after this one did not, and wait for it.
        """
        if self._groups.array_size:
            self._submit_in_array(self._size | DISCARD)
        else:
            self._end(Helper.RINGBUF_DISCARD)

    def _end(self, helper: Helper) -> None:
        self._asm.mov(R1, self._record)
        self._asm.mov(R2, _WAKEUP)
        self._asm.call(helper)

    def _reserve_in_array(self, full: str) -> None:
        # r1 positions, r0 head, r3 tail, r4 the next head, r5 the offset in the data. Until there
        # is a record, its register counts the attempts.
        asm, size, record = self._asm, self._groups.array_size, self._record
        total = self._total
        again, retry, wrap, reserved = map(asm.new_label, ("again", "retry", "wrap", "reserved"))
        done = asm.new_label("done")
        self._positions(R1, 0, full)
        asm.mov(record, _ATTEMPTS_PER_CPU * self._groups.cpus)
        asm.label(again)
        asm.load(R0, R1, HEAD)
        asm.load(R3, R1, TAIL)
        asm.mov(R5, R0)
        asm.alu(Alu.AND, R5, size - 8)
        asm.jump(Jump.GT, R5, size - total, wrap)
        asm.mov(R4, R0)
        asm.add(R4, total)
        self._advance(retry, full)
        self._data(record)
        asm.add(record, R5)
        asm.label(reserved)
        asm.store(record, 4, R0, 4)
        asm.add(record, HEADER)
        asm.goto(done)
        asm.label(wrap)
        asm.mov(R4, R0)
        asm.alu(Alu.SUB, R4, R5)
        asm.add(R4, size + total)
        self._advance(retry, full)
        self._data(record)
        asm.mov(R4, record)
        asm.add(R4, R5)
        asm.mov(R3, DISCARD | size - HEADER)
        asm.alu(Alu.SUB, R3, R5)
        asm.store(R4, 0, R3, 4)
        asm.goto(reserved)
        asm.label(retry)
        asm.add(record, -1)
        asm.jump(Jump.NE, record, 0, again)
        asm.goto(full)
        asm.label(done)

    @property
    def _total(self) -> int:
        # Bytes with the header.
        return HEADER + -(-self._size // 8) * 8

    def _advance(self, retry: str, full: str) -> None:
        # Sets the head to r4 if there is space up to it. If the head has moved meanwhile, the tail
        # may be beyond r0: the space is more than there is, and the exchange fails.
        asm = self._asm
        asm.mov(R2, R4)
        asm.alu(Alu.SUB, R2, R3)
        asm.jump(Jump.SGT, R2, self._groups.array_size, full)
        asm.mov(R2, R0)
        asm.compare_exchange(R1, HEAD, R4)
        asm.jump(Jump.NE, R0, R2, retry)

    def _positions(self, to: Reg, offset: int, missing: str) -> None:
        # Leaves the address of this CPU's positions; of several, keeps the offset of the data.
        asm, groups = self._asm, self._groups
        if groups.count == 1:
            asm.load_map_value(to, EVENTS, offset)
            return
        asm.call(Helper.GET_SMP_PROCESSOR_ID)
        asm.alu(Alu.RSH, R0, groups.shift)
        asm.jump(Jump.GE, R0, groups.count, missing)
        asm.load_map_value(to, EVENTS, offset)
        asm.mov(R2, R0)
        asm.alu(Alu.LSH, R2, POSITIONS.bit_length() - 1)
        asm.add(to, R2)
        asm.alu(Alu.LSH, R0, groups.array_size.bit_length() - 1)
        asm.store(R10, KEY_SLOT, R0)

    def _data(self, to: Reg) -> None:
        asm, groups = self._asm, self._groups
        asm.load_map_value(to, EVENTS, POSITIONS * groups.count)
        if groups.count > 1:
            asm.load(R2, R10, KEY_SLOT)
            asm.add(to, R2)

    def _submit_in_array(self, header: int) -> None:
        asm, record = self._asm, self._record
        done = asm.new_label("submitted")
        asm.store(record, -HEADER, header, 4)
        self._positions(R1, TAIL, done)
        asm.load(R1, R1, 0, 4)
        asm.load(R2, record, 4 - HEADER, 4)
        asm.jump(Jump.NE, R1, R2, done)
        asm.load_map(R1, BELL)
        asm.mov(R2, record)
        asm.add(R2, -HEADER)
        asm.mov(R3, HEADER)
        asm.mov(R4, _WAKEUP)
        asm.call(Helper.RINGBUF_OUTPUT)
        asm.label(done)
