"""Code that creates entry state at a call's entry, finds it at the return, and removes it.

:mod:`usdt.engine.compiler.entry_return` defines entry state. The return program keeps its address
in ENTRY_STATE_SLOT, or 0 if there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R7, R8, R9, R10, Alu, Jump
from usdt.engine.compiler.codegen.current_task import emit_ids, emit_task
from usdt.engine.compiler.codegen.map_calls import emit_map_call, emit_map_key
from usdt.engine.compiler.codegen.model import LEFT, UNPAIRED
from usdt.engine.compiler.codegen.record import IDS, RecordEmitter
from usdt.engine.compiler.codegen.stack_slots import (
    ENTRY_POINTER_SLOT,
    ENTRY_STATE_SLOT,
    KEY_SLOT,
    STRING_SLOT,
)
from usdt.engine.compiler.entry_return import TIME_OFFSET, blank_map, frame_map, place_map

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.compiler.codegen.model import Labels, ProgramVariant
    from usdt.engine.compiler.entry_return import EntryReturnRole
    from usdt.engine.compiler.plan import ProbePlan

__all__ = (
    "emit_entry",
    "emit_find_entry_state",
    "emit_forget",
    "emit_image",
    "emit_measure",
    "emit_remove_entry_state",
)

_KEY = STRING_SLOT  # no string is compared while a key is in use
_KEY_SIZE = 16
_POINTER = 8  # offset in the key
_PLACED = -1 << 31  # bit 31 of the pair: the state is in a place
_SPREAD = 61  # places between calls of threads at one stack address


def _key(asm: Assembler, part: EntryReturnRole) -> None:
    # Store the key, except for the stack pointer, which is left in r8.
    pointer = part.stack.pointer
    if part.stack.kernel_keeps_sp and not part.entry:
        asm.load(R8, R10, ENTRY_POINTER_SLOT)
    elif pointer is None:
        asm.mov(R8, R6)
    else:
        asm.load(R8, R6, pointer.offset, pointer.size)
    asm.store(R10, _KEY, R9 if part.stack.same_thread else 0, 4)
    asm.store(R10, _KEY + 4, part.pair | (_PLACED if part.places else 0), 4)


def _find_place(asm: Assembler, part: EntryReturnRole, pointer: Reg, other: str) -> None:
    # Leaves the address of the place of a call in r0. Its key is stored but for the stack pointer,
    # which is in a register.
    asm.alu(Alu.MOV, R1, pointer, width=32)  # a number, also of the context's address
    asm.alu(Alu.RSH, R1, 4)
    asm.load(R2, R10, _KEY, 4)
    asm.alu(Alu.MUL, R2, _SPREAD)
    asm.add(R1, R2)
    asm.add(R1, part.pair)
    asm.alu(Alu.AND, R1, part.places - 1)
    asm.store(R10, KEY_SLOT, R1, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, place_map(part.size))
    asm.jump(Jump.EQ, R0, 0, other)  # never: array elements always exist


def _is_own(asm: Assembler, place: Reg, pointer: Reg, other: str) -> None:
    # Goes to ``other`` if the place has the state of another call, or none.
    asm.load(R1, place, _POINTER)
    asm.jump(Jump.NE, R1, pointer, other)
    asm.load(R1, place, 0)
    asm.load(R2, R10, _KEY)
    asm.jump(Jump.NE, R1, R2, other)


def _count_left(asm: Assembler, part: EntryReturnRole) -> None:
    # Counts a span whose call an exception or longjmp() has left.
    if part.start is None:
        return
    counted = asm.new_label("counted")
    asm.store(R10, KEY_SLOT, 0, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, UNPAIRED)
    asm.jump(Jump.EQ, R0, 0, counted)
    asm.mov(R1, 1)
    asm.atomic_add(R0, LEFT, R1)
    asm.label(counted)


def _use_hash(asm: Assembler, part: EntryReturnRole) -> None:
    # Makes the key that of the hash map.
    if part.places:
        asm.store(R10, _KEY + 4, part.pair, 4)


def emit_entry(
    asm: Assembler,
    variant: ProgramVariant,
    part: EntryReturnRole,
    labels: Labels,
    *,
    sleepable: bool,
) -> None:
    """Emit the action of a variant at an entry: create its entry state and fill it."""
    _EntryStateEmitter(asm, variant, part, labels, sleepable=sleepable).emit()
    if part.start is not None:
        asm.label(_image_label(variant))
        emit_image(asm, variant, part.start, labels, sleepable=sleepable)


def _image_label(variant: ProgramVariant) -> str:
    return f"image.{variant.number}"


def emit_image(
    asm: Assembler, variant: ProgramVariant, plan: ProbePlan, labels: Labels, *, sleepable: bool
) -> None:
    """Emit code that fills the image of a span's start; r7 is its entry state."""
    may_sleep = sleepable and plan.faultable
    _ImageEmitter(asm, replace(variant, plan=plan), labels, sleepable=may_sleep).emit()


class _ImageEmitter(RecordEmitter):
    # An image is a record in the entry state; its address is in r7.
    def _body(self) -> None:
        asm = self.asm
        asm.add(R7, TIME_OFFSET)
        if self.sleepable:
            asm.mov(R8, 0)
            asm.label(self.again)
        self._place()
        if self.variant.same_thread:  # the end writes the name, if the span is shown
            emit_ids(asm, R7, IDS)
        else:
            emit_task(asm, R7, IDS)
        self._values()
        self._time()  # last, so that the duration does not include the values
        asm.goto(self.labels.exit)

    def discard(self) -> None:
        """Emit nothing, as for entry state."""


class _EntryStateEmitter(RecordEmitter):
    # Entry state is filled like a record; its address is in r7.
    def __init__(
        self,
        asm: Assembler,
        variant: ProgramVariant,
        part: EntryReturnRole,
        labels: Labels,
        *,
        sleepable: bool,
    ) -> None:
        super().__init__(asm, variant, labels, sleepable=sleepable)
        self.part = part

    def _body(self) -> None:
        asm = self.asm
        lost = self.labels.lost
        ready = asm.new_label("ready")
        _key(asm, self.part)
        asm.store(R10, _KEY + 8, R8)
        if self.part.places:
            self._take_place(ready)
        if self.part.start is not None:
            fresh = asm.new_label("fresh")
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, frame_map(self.part.size), _KEY)
            asm.jump(Jump.EQ, R0, 0, fresh)
            _count_left(asm, self.part)
            asm.label(fresh)
        asm.store(R10, KEY_SLOT, 0, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, blank_map(self.part.size))
        asm.jump(Jump.EQ, R0, 0, lost)  # never: array elements always exist
        asm.mov(R3, R0)
        emit_map_key(asm, frame_map(self.part.size), _KEY)
        asm.mov(R4, 0)
        asm.call(Helper.MAP_UPDATE_ELEM)
        asm.jump(Jump.NE, R0, 0, lost)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, frame_map(self.part.size), _KEY)
        asm.jump(Jump.EQ, R0, 0, lost)
        asm.mov(R7, R0)
        asm.label(ready)
        for offset in range(0, _KEY_SIZE, 8):
            asm.load(R1, R10, _KEY + offset)
            asm.store(R7, offset, R1)
        if self.part.timed:
            asm.store(R7, TIME_OFFSET, 0)
        if self.sleepable:
            asm.mov(R8, 0)
            asm.label(self.again)
        self._values()
        if self.part.start is not None:
            asm.goto(_image_label(self.variant))
            return
        if self.part.timed:  # last, so that the duration does not include the captures
            asm.call(Helper.KTIME_GET_NS)
            asm.store(R7, TIME_OFFSET, R0)
        asm.goto(self.labels.exit)

    def _take_place(self, ready: str) -> None:
        # Leaves the address of the place in r7 and goes to ``ready``, unless another call has it.
        asm = self.asm
        free, hashed = asm.new_label("free"), asm.new_label("hashed")
        asm.jump(Jump.EQ, R8, 0, hashed)  # a program may set its stack pointer to 0
        _find_place(asm, self.part, R8, hashed)
        asm.mov(R7, R0)
        asm.load(R1, R7, _POINTER)
        asm.jump(Jump.EQ, R1, 0, free)
        _is_own(asm, R7, R8, hashed)  # an exception has left an earlier call at this address
        _count_left(asm, self.part)
        asm.goto(ready)
        asm.label(free)
        asm.mov(R0, 0)
        asm.compare_exchange(R7, _POINTER, R8)
        asm.jump(Jump.EQ, R0, 0, ready)
        asm.label(hashed)
        _use_hash(asm, self.part)

    def discard(self) -> None:
        """Emit nothing: no reader waits for entry state, so the program may sleep with it."""


def emit_forget(asm: Assembler, part: EntryReturnRole) -> None:
    """Emit code that removes the state of an earlier call at the same stack address."""
    _key(asm, part)
    asm.store(R10, _KEY + 8, R8)
    if part.places:
        hashed = asm.new_label("hashed")
        _find_place(asm, part, R8, hashed)
        _is_own(asm, R0, R8, hashed)
        asm.store(R0, _POINTER, 0)
        _count_left(asm, part)
        asm.label(hashed)
        _use_hash(asm, part)
    emit_map_call(asm, Helper.MAP_DELETE_ELEM, frame_map(part.size), _KEY)
    if part.start is not None:
        none = asm.new_label("none")
        asm.jump(Jump.NE, R0, 0, none)
        _count_left(asm, part)
        asm.label(none)


def emit_find_entry_state(asm: Assembler, part: EntryReturnRole, missing: str) -> None:
    """Emit code that finds the entry state of the returning call.

    The code goes to ``missing`` if there is none.
    """
    found = asm.new_label("frame")
    _key(asm, part)
    for popped in part.stack.return_pops:
        asm.mov(R7, R8)
        if popped:
            asm.add(R7, -popped)
        asm.store(R10, _KEY + 8, R7)
        if part.places:
            hashed = asm.new_label("hashed")
            asm.store(R10, _KEY + 4, part.pair | _PLACED, 4)
            _find_place(asm, part, R7, hashed)
            _is_own(asm, R0, R7, hashed)
            asm.goto(found)
            asm.label(hashed)
            _use_hash(asm, part)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, frame_map(part.size), _KEY)
        asm.jump(Jump.NE, R0, 0, found)
    asm.goto(missing)
    asm.label(found)
    asm.store(R10, ENTRY_STATE_SLOT, R0)
    if part.timed:
        emit_measure(asm, part.duration_offset)


def emit_measure(asm: Assembler, duration: int) -> None:
    """Emit code that stores the time since the entry in the entry state, at this offset."""
    asm.call(Helper.KTIME_GET_NS)
    asm.load(R1, R10, ENTRY_STATE_SLOT)
    asm.load(R2, R1, TIME_OFFSET)
    asm.alu(Alu.SUB, R0, R2)
    asm.store(R1, duration, R0)


def emit_remove_entry_state(asm: Assembler, part: EntryReturnRole, missing: str) -> None:
    """Emit code that removes the entry state that was found.

    The code goes to ``missing`` if none was found.
    """
    asm.load(R7, R10, ENTRY_STATE_SLOT)
    asm.jump(Jump.EQ, R7, 0, missing)
    if part.places:
        hashed = asm.new_label("hashed")
        asm.load(R1, R7, 4, 4)
        asm.alu(Alu.RSH, R1, 31)
        asm.jump(Jump.EQ, R1, 0, hashed)
        asm.store(R7, _POINTER, 0)
        asm.goto(missing)
        asm.label(hashed)
    for offset in range(0, _KEY_SIZE, 8):
        asm.load(R1, R7, offset)
        asm.store(R10, _KEY + offset, R1)
    emit_map_call(asm, Helper.MAP_DELETE_ELEM, frame_map(part.size), _KEY)
