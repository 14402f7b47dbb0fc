"""One step of a walk through a user stack: a function that ``bpf_loop`` calls for each frame.

    find      the range of the address, by binary search over those of the process
    keep      the address, unless it is there already
    row       of the address, by binary search over the rows of its table
    apply     the row: registers of the caller; or follow the frame pointer

It follows :mod:`usdt.unwind.unwinder`, which does the same in user space. Memory is read without
page faults.

Registers: r6 state, r7 address that is looked up, r8 base or CFA, r9 rules of the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.unwind_rows import BY_FRAME_POINTER, MAX_SLOT, Special, WalkEnd
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, Alu, Jump
from usdt.engine.language.tree import MAX_FRAMES
from usdt.engine.walks.find_file import emit_find_file
from usdt.engine.walks.walk_parts import StepParts
from usdt.engine.walks.walk_state import (
    CACHED,
    EXACT,
    FP,
    FRAMES,
    HASH,
    KEY,
    LIMIT,
    LINK,
    NUMBER,
    PC,
    RANGE,
    RANGE_BITS,
    RANGES,
    REASON,
    RETRY,
    ROW_BITS,
    ROWS,
    SCRATCH,
    SP,
    TEMP,
    UNCHECKED,
    VALUE,
    VALUE_HEADER,
)

if TYPE_CHECKING:
    from usdt.arch.unwinding import Cpu
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.walks.find_file import KernelFields

__all__ = ("MIX", "RangeKind", "StepEmitter")

MIX = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio: multiplied to mix hashes
_RANGE_START, _RANGE_END, _BIAS, _FIRST_ROW, _ROWS = 0, 8, 16, 24, 28
_CALL = 8  # bytes before a return address that are examined


class RangeKind:
    """What is in the place of the first row in ranges without rows."""

    NO_TABLE = 0
    RETURN_PROBES = 1
    NO_SPACE = 2
    ANONYMOUS = 3


class StepEmitter(StepParts):
    """An emitter of the function that makes one step.

    Args:
        asm: the assembler.
        cpu: the CPU.
        fields: offsets in the kernel's structures, to find mappings that are not known yet.
    """

    def __init__(self, asm: Assembler, cpu: Cpu, fields: KernelFields | None) -> None:
        super().__init__(asm, cpu)
        self.fields = fields

    def emit(self) -> None:
        """Emit the function."""
        self.asm.load(R6, R2, 0)
        self._find_range()
        self._keep()
        self._find_row()
        self._apply_plain()
        self._apply_special()
        self._leave_without_row()
        for end in WalkEnd:
            self._end(end)
        self.asm.label(self._label("end"))
        self.asm.store(R6, REASON, R1)
        self.asm.mov(R0, 1)
        self.asm.exit()

    def _find_range(self) -> None:
        asm, search, found = self.asm, self._label("search"), self._label("in_range")
        asm.load(R7, R6, PC)
        asm.load(R1, R6, EXACT)
        exact = self._label("exact")
        asm.jump(Jump.NE, R1, 0, exact)
        asm.add(R7, -1)  # a call may be the last instruction of its function
        asm.label(exact)
        asm.load(R1, R6, CACHED + _RANGE_START)
        asm.jump(Jump.LT, R7, R1, search)
        asm.load(R1, R6, CACHED + _RANGE_END)
        asm.jump(Jump.LT, R7, R1, found)
        asm.label(search)
        asm.load(R1, R6, FRAMES, 4)
        asm.store(R6, KEY, R1, 4)
        self._block(RANGES)
        asm.load(R1, R6, FRAMES + 4, 4)
        asm.load(R2, R6, FRAMES + 8, 4)
        asm.jump(Jump.EQ, R2, 0, self._label("unknown"))
        self._search(RANGE_BITS, 5, 8)
        for offset in range(0, RANGE.size, 8):
            asm.load(R1, R8, offset)
            asm.store(R6, CACHED + offset, R1)
        asm.load(R1, R6, CACHED + _RANGE_START)
        asm.jump(Jump.LT, R7, R1, self._label("unknown"))
        asm.load(R1, R6, CACHED + _RANGE_END)
        asm.jump(Jump.LT, R7, R1, found)
        asm.label(self._label("unknown"))
        if self.fields is not None:
            emit_find_file(asm, self.fields, self._label("no_mapping"))
            asm.goto(found)
        asm.label(self._label("no_mapping"))
        asm.load(R1, R6, FRAMES + 8, 4)
        asm.jump(Jump.EQ, R1, 0, self._stop(WalkEnd.NO_PROCESS))
        asm.goto(self._stop(WalkEnd.NO_MAPPING))
        asm.label(found)

    def _keep(self) -> None:
        asm, kept, has_table = self.asm, self._label("kept"), self._label("has_table")
        self._require_anonymous()
        asm.load(R1, R6, CACHED + _ROWS, 4)
        asm.jump(Jump.NE, R1, 0, has_table)
        asm.load(R1, R6, CACHED + _FIRST_ROW, 4)
        asm.jump(Jump.EQ, R1, RangeKind.RETURN_PROBES, self._stop(WalkEnd.RETURN_PROBE))
        asm.label(has_table)
        asm.load(R1, R6, EXACT)
        asm.jump(Jump.SET, R1, RETRY, kept)
        asm.load(R2, R6, NUMBER)
        asm.load(R3, R6, LIMIT)
        asm.jump(Jump.GE, R2, R3, self._stop(WalkEnd.TOO_DEEP))
        asm.jump(Jump.GE, R2, MAX_FRAMES, self._stop(WalkEnd.TOO_DEEP))
        asm.load(R4, R6, PC)
        asm.alu(Alu.LSH, R1, 63)
        asm.alu(Alu.OR, R4, R1)
        asm.mov(R3, R2)
        asm.alu(Alu.LSH, R3, 3)
        asm.add(R3, R6)
        asm.store(R3, VALUE + VALUE_HEADER.size, R4)
        asm.add(R2, 1)
        asm.store(R6, NUMBER, R2)
        asm.load(R5, R6, HASH)
        asm.alu(Alu.XOR, R5, R4)
        asm.mov(R3, MIX)
        asm.alu(Alu.MUL, R5, R3)
        asm.mov(R3, R5)
        asm.alu(Alu.RSH, R3, 32)
        asm.alu(Alu.XOR, R5, R3)
        asm.store(R6, HASH, R5)
        asm.label(kept)

    def _require_anonymous(self) -> None:
        # Code of a JIT compiler returns to addresses without a call instruction before them.
        asm, checked, none = self.asm, self._label("checked"), self._stop(WalkEnd.NO_FRAME_POINTER)
        asm.load(R1, R6, UNCHECKED)
        asm.jump(Jump.EQ, R1, 0, checked)
        asm.load(R1, R6, CACHED + _ROWS, 4)
        asm.jump(Jump.NE, R1, 0, none)
        asm.load(R1, R6, CACHED + _FIRST_ROW, 4)
        asm.jump(Jump.NE, R1, RangeKind.ANONYMOUS, none)
        asm.store(R6, UNCHECKED, 0)
        asm.label(checked)

    def _find_row(self) -> None:
        asm = self.asm
        rows = self._label("rows")
        asm.load(R2, R6, CACHED + _ROWS, 4)
        asm.load(R1, R6, CACHED + _FIRST_ROW, 4)
        asm.jump(Jump.NE, R2, 0, rows)
        asm.jump(Jump.EQ, R1, RangeKind.NO_SPACE, self._stop(WalkEnd.NO_TABLE_SPACE))
        asm.goto(self._label("no_table"))
        asm.label(rows)
        asm.alu(Alu.RSH, R1, ROW_BITS)
        asm.store(R6, KEY, R1, 4)
        self._block(ROWS)
        asm.load(R1, R6, CACHED + _BIAS)
        asm.alu(Alu.SUB, R7, R1)
        asm.load(R1, R6, CACHED + _FIRST_ROW, 4)
        asm.alu(Alu.AND, R1, (1 << ROW_BITS) - 1)
        asm.load(R2, R6, CACHED + _ROWS, 4)
        self._search(ROW_BITS, 3, 4)
        asm.load(R1, R8, 0, 4)
        asm.jump(Jump.SLT, R7, R1, self._label("no_row"))
        asm.load(R9, R8, 4, 4)

    # ------------------------------------------------------------ rows

    def _apply_plain(self) -> None:
        asm, by_stack = self.asm, self._label("by_stack")
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 31)
        asm.jump(Jump.NE, R1, 0, self._label("special"))
        asm.load(R8, R6, SP)
        asm.mov(R1, R9)
        asm.alu(Alu.AND, R1, BY_FRAME_POINTER << 16)
        asm.jump(Jump.EQ, R1, 0, by_stack)
        asm.load(R8, R6, FP)
        asm.label(by_stack)
        asm.mov(R1, R9)
        asm.alu(Alu.AND, R1, 0xFFFF)
        asm.alu(Alu.LSH, R1, 3)
        asm.add(R8, R1)
        self._take_frame()

    def _take_frame(self) -> None:
        # The CFA is in r8.
        asm, above = self.asm, self._label("above")
        asm.label(self._label("cfa"))
        asm.load(R1, R6, SP)
        asm.jump(Jump.GT, R8, R1, above)
        asm.jump(Jump.NE, R8, R1, self._stop(WalkEnd.NOT_ABOVE))
        asm.load(R1, R6, EXACT)  # a function that has pushed nothing may be the innermost one
        asm.alu(Alu.AND, R1, 1)
        asm.jump(Jump.EQ, R1, 0, self._stop(WalkEnd.NOT_ABOVE))
        asm.label(above)
        self._return_address()
        unchanged = self._label("frame_unchanged")
        self._slot(R1, 17)
        asm.jump(Jump.EQ, R1, 0, unchanged)
        self._below_cfa()
        self._read(FP, 8)
        asm.label(unchanged)
        asm.label(self._label("enter"))  # the return address is at TEMP, the stack pointer in r8
        asm.load(R1, R6, TEMP)
        self._mask(R1)
        asm.jump(Jump.EQ, R1, 0, self._stop(WalkEnd.OUTERMOST))
        asm.store(R6, PC, R1)
        asm.store(R6, SP, R8)
        asm.store(R6, LINK, 0)
        asm.store(R6, EXACT, 0)
        self._go_on()

    def _return_address(self) -> None:
        asm, found = self.asm, self._label("return_address")
        self._slot(R1, 24)
        if self.cpu.link is not None:
            on_stack = self._label("on_stack")
            asm.jump(Jump.NE, R1, 0, on_stack)
            asm.load(R1, R6, LINK)
            asm.store(R6, TEMP, R1)
            asm.goto(found)
            asm.label(on_stack)
        self._below_cfa()
        self._read(TEMP, 8)
        asm.label(found)

    def _slot(self, to: Reg, shift: int) -> None:
        self.asm.mov(to, R9)
        self.asm.alu(Alu.RSH, to, shift)
        self.asm.alu(Alu.AND, to, MAX_SLOT)

    def _below_cfa(self) -> None:
        # r3 = CFA - r1 words
        self.asm.alu(Alu.LSH, R1, 3)
        self.asm.mov(R3, R8)
        self.asm.alu(Alu.SUB, R3, R1)

    def _apply_special(self) -> None:
        asm = self.asm
        asm.label(self._label("special"))
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 16)
        asm.alu(Alu.AND, R1, 0xFF)
        asm.jump(Jump.EQ, R1, Special.NO_ROW, self._label("no_row"))
        asm.jump(Jump.EQ, R1, Special.OUTERMOST, self._stop(WalkEnd.OUTERMOST))
        asm.jump(Jump.EQ, R1, Special.SIGNAL, self._label("signal"))
        asm.jump(Jump.EQ, R1, Special.PLT, self._label("plt"))
        asm.jump(Jump.EQ, R1, Special.REALIGNED, self._label("realigned"))
        self._record()
        self._realigned()
        self._plt()
        self._signal()

    def _record(self) -> None:
        # The frame pointer and the return address are side by side, as FP and TEMP are.
        asm, at, alone = self.asm, self._label("record"), self._label("return_alone")
        asm.mov(R7, R1)
        asm.load(R8, R6, FP)
        asm.jump(Jump.EQ, R7, Special.RECORD_BY_FRAME, at)
        asm.jump(Jump.GT, R7, max(Special), self._stop(WalkEnd.COMPLEX))
        asm.jump(Jump.LT, R7, Special.RECORD_BY_STACK, self._stop(WalkEnd.COMPLEX))
        asm.load(R8, R6, SP)
        asm.label(at)
        self._slot(R3, 24)
        asm.alu(Alu.LSH, R3, 3)
        asm.add(R3, R8)
        asm.alu(Alu.AND, R9, 0xFFFF)
        asm.alu(Alu.LSH, R9, 3)
        asm.add(R8, R9)
        asm.load(R1, R6, SP)
        asm.jump(Jump.LE, R8, R1, self._stop(WalkEnd.NOT_ABOVE))
        asm.jump(Jump.EQ, R7, Special.RETURN_BY_STACK, alone)
        asm.add(R3, -8)
        self._read(FP, 16)
        asm.goto(self._label("enter"))
        asm.label(alone)
        self._read(TEMP, 8)
        asm.goto(self._label("enter"))

    def _realigned(self) -> None:
        asm = self.asm
        asm.label(self._label("realigned"))
        asm.load(R3, R6, FP)
        asm.mov(R1, R9)
        asm.alu(Alu.AND, R1, 0xFFFF)
        asm.alu(Alu.LSH, R1, 3)
        asm.alu(Alu.SUB, R3, R1)
        self._read(SCRATCH, 8)
        asm.load(R3, R6, FP)
        self._read(FP, 8)
        asm.load(R8, R6, SCRATCH)
        asm.mov(R9, 1 << 24)
        asm.goto(self._label("cfa"))

    def _plt(self) -> None:
        asm = self.asm
        asm.label(self._label("plt"))
        pushed = asm.new_label("pushed")
        asm.load(R8, R6, SP)
        asm.add(R8, 8)
        asm.load(R1, R6, PC)
        asm.alu(Alu.AND, R1, 15)
        asm.alu(Alu.AND, R9, 0xFFFF)
        asm.jump(Jump.LT, R1, R9, pushed)
        asm.add(R8, 8)
        asm.label(pushed)
        asm.mov(R9, 1 << 24)
        asm.goto(self._label("cfa"))

    def _signal(self) -> None:
        asm, cpu = self.asm, self.cpu
        asm.label(self._label("signal"))
        asm.load(R8, R6, SP)
        saved = [(TEMP, cpu.saved_pc), (FP, cpu.saved[cpu.frame_pointer]), (SP, cpu.saved[cpu.sp])]
        if cpu.link is not None:
            saved.append((LINK, cpu.saved[cpu.link]))
        for field, offset in saved:
            asm.mov(R3, R8)
            asm.add(R3, cpu.context + offset)
            self._read(field, 8)
        asm.load(R1, R6, TEMP)
        asm.jump(Jump.EQ, R1, 0, self._stop(WalkEnd.OUTERMOST))
        asm.store(R6, PC, R1)
        asm.store(R6, EXACT, 1)
        self._go_on()

    # ------------------------------------------------------------ without a row

    def _leave_without_row(self) -> None:
        asm = self.asm
        asm.label(self._label("no_row"))
        asm.load(R1, R6, EXACT)
        asm.jump(Jump.NE, R1, 0, self._label("no_table"))
        # A return to the first instruction of a function was put on the stack without a call.
        asm.store(R6, EXACT, RETRY)
        self._go_on()
        asm.label(self._label("no_table"))
        self._trampoline()
        self._follow_frame_pointer()

    def _trampoline(self) -> None:
        asm, known = self.asm, self.cpu.trampoline
        if not known:
            return
        other = self._label("other")
        # Two words cover the instructions, and overlap where they are no multiple of a word.
        for at in dict.fromkeys((0, len(known) - 8)):
            asm.load(R3, R6, PC)
            asm.add(R3, at)
            asm.mov(R1, R6)
            asm.add(R1, TEMP)
            asm.mov(R2, 8)
            asm.call(Helper.PROBE_READ_USER)
            asm.jump(Jump.NE, R0, 0, other)
            asm.load(R1, R6, TEMP)
            asm.mov(R2, int.from_bytes(known[at : at + 8], "little"))
            asm.jump(Jump.NE, R1, R2, other)
        asm.goto(self._label("signal"))
        asm.label(other)

    def _follow_frame_pointer(self) -> None:
        asm, none = self.asm, self._stop(WalkEnd.NO_FRAME_POINTER)
        asm.load(R8, R6, FP)
        asm.load(R1, R6, SP)
        asm.jump(Jump.LT, R8, R1, none)
        asm.jump(Jump.SET, R8, 7, none)
        asm.mov(R3, R8)
        self._read(TEMP, 16, WalkEnd.NO_FRAME_POINTER)
        asm.load(R1, R6, TEMP)  # the outer frame pointer; the return address follows
        asm.store(R6, FP, R1)
        asm.load(R1, R6, SCRATCH)
        self._mask(R1)
        asm.store(R6, SCRATCH, R1)
        asm.mov(R3, R1)
        asm.add(R3, -_CALL)
        self._read(TEMP, _CALL, WalkEnd.NO_FRAME_POINTER)
        unchecked, checked = self._label("no_call"), self._label("call_checked")
        self._check_call(unchecked)
        asm.goto(checked)
        asm.label(unchecked)
        asm.store(R6, UNCHECKED, 1)
        asm.label(checked)
        asm.load(R1, R6, SCRATCH)
        asm.store(R6, TEMP, R1)
        asm.add(R8, 16)
        asm.goto(self._label("enter"))

    def _check_call(self, none: str) -> None:
        # Goes to ``none`` unless the bytes at TEMP end with a call instruction.
        asm, call = self.asm, self._label("call")
        if self.cpu.link is not None:  # bl, blr
            asm.load(R1, R6, TEMP + 4, 4)
            asm.mov(R2, R1)
            asm.alu(Alu.RSH, R2, 26)
            asm.jump(Jump.EQ, R2, 0b100101, call)
            asm.mov(R2, 0xFFFFFC1F)
            asm.alu(Alu.AND, R1, R2)
            asm.mov(R2, 0xD63F0000)
            asm.jump(Jump.NE, R1, R2, none)
            asm.label(call)
            return
        asm.load(R1, R6, TEMP + _CALL - 5, 1)
        asm.jump(Jump.EQ, R1, 0xE8, call)  # call rel32
        for size in (2, 3, 4, 6, 7):  # call r/m64 (ff /2)
            another = asm.new_label("another")
            asm.load(R1, R6, TEMP + _CALL - size, 1)
            asm.jump(Jump.NE, R1, 0xFF, another)
            asm.load(R1, R6, TEMP + _CALL + 1 - size, 1)
            asm.alu(Alu.AND, R1, 0x38)
            asm.jump(Jump.EQ, R1, 0x10, call)
            asm.label(another)
        asm.goto(none)
        asm.label(call)
