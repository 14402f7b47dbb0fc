"""Code that walks the user stack of a hit and keeps it in the map of stacks.

    claim a state → registers → steps (:mod:`.walk_step`) → hash of the addresses → map of stacks

Register use: r6 context, r7 preserved, r8 state, r9 pid_tgid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.pt_regs import PT_REGS
from usdt.arch.unwind_rows import WalkEnd
from usdt.arch.unwinding import CPUS
from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R8, R9, R10, Alu, Jump
from usdt.engine.compiler.codegen.expressions import KEY_SLOT, READ_SLOT
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.walks.find_file import kernel_fields
from usdt.engine.walks.walk_state import (
    BUSY,
    CACHED,
    EXACT,
    EXACT_MARK,
    FIRST,
    FP,
    FRAMES,
    HASH,
    KEY,
    LIMIT,
    LINK,
    NUMBER,
    PC,
    REASON,
    SLICES,
    SP,
    STATES_PER_CPU,
    TEMP,
    UNCHECKED,
    VALUE,
    VALUE_HEADER,
    WALKS,
    WANTED,
)
from usdt.engine.walks.walk_step import MIX, StepEmitter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from usdt.arch.unwinding import Cpu
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.walks.find_file import KernelFields

__all__ = ("STEP_STACK", "emit_walk")

#: Bytes of the BPF stack that the steps need; the program and its steps share 512.
STEP_STACK = 64
_STEP = "step of a walk"
_NOEXIST = 1  # BPF_NOEXIST
_SLICE_WORDS = (0, 8)  # offsets of what tells ranges apart
_MM = 16  # offset in SLICE


def emit_walk(
    asm: Assembler, *, stacks: str, frames: int, start: int, kernel: bool, lost: str
) -> None:
    """Emit code that stores a hash of the user stack, and the process, in the key.

    Args:
        asm: the assembler.
        stacks: name of the map of stacks, by hash.
        frames: the most addresses of a stack.
        start: offset of the u64 hash from r10; the u64 process ID follows.
        kernel: whether the probe is in the kernel, so that the context has other registers.
        lost: label to jump to when the map of stacks is full.
    """
    cpu = CPUS[KERNEL_MACHINE]
    fields = kernel_fields()
    asm.function(_STEP, lambda at: StepEmitter(at, cpu, fields).emit())
    _claim(asm, lost)
    _begin(asm, frames, fields, kernel=kernel)
    walked, stored = asm.new_label("walked"), asm.new_label("stored")
    asm.load(R1, R8, PC)
    asm.jump(Jump.EQ, R1, 0, walked)  # a thread of the kernel
    asm.load(R1, R8, REASON)
    asm.jump(Jump.EQ, R1, WalkEnd.NARROW, walked)
    asm.store(R10, READ_SLOT, R8)
    asm.mov(R1, 2 * frames + 2)  # an address is looked up twice at most
    asm.load_function(R2, _STEP)
    asm.mov(R3, R10)
    asm.add(R3, READ_SLOT)
    asm.mov(R4, 0)
    asm.call(Helper.LOOP)
    asm.label(walked)
    _check_slice(asm)
    _finish(asm)
    _map_call(asm, Helper.MAP_LOOKUP_ELEM, stacks, HASH)
    asm.jump(Jump.NE, R0, 0, stored)
    asm.mov(R3, R8)
    asm.add(R3, VALUE)
    asm.mov(R4, _NOEXIST)
    _map_call(asm, Helper.MAP_UPDATE_ELEM, stacks, HASH)
    _map_call(asm, Helper.MAP_LOOKUP_ELEM, stacks, HASH)
    asm.jump(Jump.NE, R0, 0, stored)
    asm.store(R8, BUSY, 0)
    asm.goto(lost)
    asm.label(stored)
    asm.load(R1, R8, HASH)
    asm.store(R10, start, R1)
    asm.mov(R1, R9)
    asm.alu(Alu.RSH, R1, 32)
    asm.store(R10, start + 8, R1)
    asm.store(R8, BUSY, 0)


def _map_call(asm: Assembler, helper: Helper, name: str, field: int) -> None:
    # Calls a helper with a map and the key in a field of the state.
    asm.load_map(R1, name)
    asm.mov(R2, R8)
    asm.add(R2, field)
    asm.call(helper)


def _claim(asm: Assembler, lost: str) -> None:
    # Leaves a state that nobody uses in r8. A program that this one has interrupted may use one.
    claimed = asm.new_label("claimed")
    asm.call(Helper.GET_SMP_PROCESSOR_ID)
    asm.mov(R1, R0)
    asm.alu(Alu.MUL, R1, STATES_PER_CPU)
    asm.store(R10, KEY_SLOT, R1, 4)
    for _ in range(STATES_PER_CPU):
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, WALKS)
        asm.jump(Jump.EQ, R0, 0, lost)
        asm.mov(R8, R0)
        asm.mov(R0, 0)
        asm.mov(R1, 1)
        asm.compare_exchange(R8, BUSY, R1)
        asm.jump(Jump.EQ, R0, 0, claimed)
        asm.load(R1, R10, KEY_SLOT, 4)
        asm.add(R1, 1)
        asm.store(R10, KEY_SLOT, R1, 4)
    asm.goto(lost)
    asm.label(claimed)


def _begin(asm: Assembler, frames: int, known: KernelFields | None, *, kernel: bool) -> None:
    # The registers, the first address, and the ranges of the process.
    cpu, slots = CPUS[KERNEL_MACHINE], PT_REGS[KERNEL_MACHINE]
    fields = {PC: cpu.pc, SP: cpu.registers[cpu.sp], FP: cpu.registers[cpu.frame_pointer]}
    if cpu.link is not None:
        fields[LINK] = cpu.registers[cpu.link]
    context = R6
    if kernel:
        asm.call(Helper.GET_CURRENT_TASK_BTF)
        asm.mov(R1, R0)
        asm.call(Helper.TASK_PT_REGS)
        context = R0
    for field, name in fields.items():
        asm.load(R1, context, slots[name])
        asm.store(R8, field, R1)
    _note_width(asm, cpu, context, slots)
    if known is not None:
        _leave_kernel_thread(asm, known)
    asm.load(R1, R8, PC)
    asm.mov(R2, EXACT_MARK)
    asm.alu(Alu.OR, R1, R2)
    asm.store(R8, VALUE + VALUE_HEADER.size, R1)
    asm.store(R8, HASH, R1)
    asm.store(R8, NUMBER, 1)
    asm.store(R8, LIMIT, frames)
    asm.store(R8, EXACT, FIRST)
    asm.store(R8, UNCHECKED, 0)
    asm.store(R8, CACHED, 0)
    asm.store(R8, CACHED + 8, 0)
    for offset in _SLICE_WORDS:
        asm.store(R8, FRAMES + offset, 0)
    unknown = asm.new_label("unknown")
    _find_slice(asm, unknown)
    if known is not None:
        _check_program(asm, unknown)
    for offset in _SLICE_WORDS:
        asm.load(R1, R0, offset)
        asm.store(R8, FRAMES + offset, R1)
    asm.label(unknown)


def _note_width(asm: Assembler, cpu: Cpu, context: Reg, slots: Mapping[str, int]) -> None:
    # A walk ends with TOO_DEEP unless a step says something else. None is made of 32-bit programs.
    wide = asm.new_label("wide")
    asm.store(R8, REASON, WalkEnd.TOO_DEEP)
    if cpu.narrow is not None:
        slot, bits, value = cpu.narrow
        asm.load(R1, context, slots[slot])
        asm.alu(Alu.AND, R1, bits)
        asm.jump(Jump.NE, R1, value, wide)
        asm.store(R8, REASON, WalkEnd.NARROW)
    asm.label(wide)


def _leave_kernel_thread(asm: Assembler, known: KernelFields) -> None:
    # Leaves the address space at TEMP. A thread of the kernel has none, and no user stack.
    has_stack = asm.new_label("has_stack")
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    asm.load(R1, R0, known.mm)
    asm.store(R8, TEMP, R1)
    asm.jump(Jump.NE, R1, 0, has_stack)
    asm.store(R8, PC, 0)
    asm.label(has_stack)


def _check_program(asm: Assembler, unknown: str) -> None:
    # The ranges are those of the program that was executed when they were first used.
    same = asm.new_label("same")
    asm.load(R1, R8, TEMP)
    asm.load(R2, R0, _MM)
    asm.jump(Jump.EQ, R1, R2, same)
    asm.jump(Jump.NE, R2, 0, unknown)
    asm.store(R0, _MM, R1)
    asm.label(same)


def _find_slice(asm: Assembler, unknown: str) -> None:
    # Leaves the address of the process's slice in r0.
    asm.mov(R1, R9)
    asm.alu(Alu.RSH, R1, 32)
    asm.store(R8, KEY, R1, 4)
    _map_call(asm, Helper.MAP_LOOKUP_ELEM, SLICES, KEY)
    asm.jump(Jump.EQ, R0, 0, unknown)


def _check_slice(asm: Assembler) -> None:
    # If the ranges of the process were replaced meanwhile, what was found may be wrong. If they
    # lacked something, the process is noted. A walk without ranges found all by files.
    same, changed, wanted = (asm.new_label(name) for name in ("same", "changed", "wanted"))
    asm.load(R1, R8, FRAMES + 8, 4)
    asm.jump(Jump.EQ, R1, 0, same)
    _find_slice(asm, same)
    for offset in _SLICE_WORDS:
        asm.load(R1, R0, offset)
        asm.load(R2, R8, FRAMES + offset)
        asm.jump(Jump.NE, R1, R2, changed)
    asm.goto(same)
    asm.label(changed)
    asm.store(R8, REASON, WalkEnd.CHANGED)
    asm.store(R8, NUMBER, 1)
    asm.label(same)
    asm.load(R1, R8, REASON)
    asm.jump(Jump.EQ, R1, WalkEnd.NO_PROCESS, wanted)
    known = asm.new_label("known")
    asm.jump(Jump.NE, R1, WalkEnd.NO_MAPPING, known)
    asm.label(wanted)
    asm.mov(R1, R9)
    asm.alu(Alu.RSH, R1, 32)
    asm.store(R8, KEY, R1, 4)
    asm.mov(R3, R8)
    asm.add(R3, NUMBER)
    asm.mov(R4, 0)
    _map_call(asm, Helper.MAP_UPDATE_ELEM, WANTED, KEY)
    asm.label(known)


def _finish(asm: Assembler) -> None:
    # The header of the stack, and the hash.
    asm.load(R1, R8, NUMBER)
    asm.store(R8, VALUE, R1, 4)
    asm.load(R2, R8, REASON)
    asm.store(R8, VALUE + 4, R2, 4)
    asm.alu(Alu.LSH, R2, 32)
    asm.alu(Alu.OR, R1, R2)
    asm.load(R2, R8, HASH)
    asm.alu(Alu.XOR, R1, R2)
    asm.mov(R2, MIX)
    asm.alu(Alu.MUL, R1, R2)
    asm.mov(R2, R1)
    asm.alu(Alu.RSH, R2, 29)
    asm.alu(Alu.XOR, R1, R2)
    asm.store(R8, HASH, R1)
