"""The code that pairs starts with ends by a key.

    depths    key → u64 number of open starts; for threads, then u64 stack pointer and u64 address
              of the start at each depth
    spans     key and slot → entry state; :mod:`usdt.engine.compiler.spans` defines its contents
    threads   low bits of the thread → a value of depths, the entry state of slot 0, u64 thread

The starts of a key form a stack. A start at depth d has slot d, or the last slot from depth 63 on,
where a deeper start replaces the one before. The state has its depth, so that an end whose start
was replaced finds no other. Starts that a predicate refused are on the stack too if another is
open, because their ends come as well.

If the key is the thread, the starts of most threads are in the array ``threads``, which is found
without a hash. A thread whose entry another one has taken uses the hashes.

If the key is the thread, and both ends are in programs, stack pointers tell which starts an
exception or longjmp() has left:

    start     above the last start, at a stack address and place of code where an earlier start was:
              the function of the earlier one runs again, so that it and all later starts are over
    end       above the last start, at the stack address of an earlier start: it is the end of that,
              and all later starts are over

Register use: r6 context, r7 value of the key, then entry state, r8 depth, r9 pid_tgid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R6, R7, R8, R10, Alu, Jump
from usdt.engine.aggregate.codegen.keys import KeyEmitter
from usdt.engine.aggregate.keys import HEADER
from usdt.engine.compiler.codegen.entry_state import emit_image, emit_measure
from usdt.engine.compiler.codegen.map_calls import emit_fetch_add, emit_map_call, emit_thread_place
from usdt.engine.compiler.codegen.model import EXIT, LEFT, UNPAIRED, PairRole
from usdt.engine.compiler.codegen.stack_slots import (
    ENTRY_STATE_SLOT,
    FIRST_STATE_SLOT,
    KEY_SLOT,
    READ_SLOT,
    TEMPORARIES,
)
from usdt.engine.compiler.entry_return import TIME_OFFSET
from usdt.engine.compiler.record.layout import DURATION_OFFSET

if TYPE_CHECKING:
    from usdt.arch.locations import Register
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.aggregate.keys import KeyLayout
    from usdt.engine.compiler.codegen.model import Labels, ProgramVariant
    from usdt.engine.compiler.outputs import Output

__all__ = (
    "BLANK",
    "DEEP",
    "DEPTHS",
    "NESTED",
    "SPANS",
    "THREADS",
    "UNUSED",
    "PairEnd",
    "depths_size",
    "thread_size",
)

DEPTHS = "depths"
SPANS = "spans"
THREADS = "threads"
BLANK = "blank"  # array of one blank entry state
UNUSED = "unused"  # array of one value of DEPTHS without starts
NESTED = 64  # slots of a key
DEEP = 8  # offset in UNPAIRED
_DEPTH = 0  # offset in the entry state
_NOEXIST = 1  # BPF_NOEXIST
_LAST = NESTED - 1
_POINTER, _PLACE, _LEVEL = 8, 16, 16  # in a value of DEPTHS: offsets at depth 0, and bytes a depth


def depths_size(*, pointers: bool) -> int:
    """Return the bytes of a value of DEPTHS."""
    return _POINTER + NESTED * _LEVEL if pointers else 8


def thread_size(state: int, *, pointers: bool) -> int:
    """Return the bytes of an entry of THREADS with an entry state of ``state`` bytes."""
    return depths_size(pointers=pointers) + state + 8


@frozen
class PairEnd(PairRole):
    """The start or the end of a pair.

    Attributes:
        entry: True for the start.
        faultable: whether a part of the key may be unreadable.
        key: layout of the key.
        outputs: the expressions of the key.
        text: the key as written, for errors.
        key_offset: offset of the key in the entry state.
        pointer: location of the stack pointer; None: ends are paired by the key alone.
        place: location of the address of the probe; None: unknown.
        atomics: whether the kernel has atomic instructions that return the previous value.
        kernel: whether addresses may be in the kernel.
        same_thread: whether the key is the thread. Its map entries then stay for its next spans,
            which is cheaper: threads are few, and user space removes those that have ended.
        threads: the number of entries of THREADS, a power of two; 0: there is no such map.
    """

    entry: bool
    faultable: bool
    key: KeyLayout
    outputs: tuple[Output, ...]
    text: str
    key_offset: int
    pointer: Register | None
    place: Register | None
    atomics: bool
    kernel: bool
    same_thread: bool
    threads: int = 0

    def emit_start(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the action of a start."""
        key = self._key(asm, labels, sleepable=sleepable)
        self._push(asm, key, labels, None)
        emit_image(asm, variant, variant.plan, labels, sleepable=sleepable)

    def emit_refuse(self, asm: Assembler, labels: Labels, after: str, *, sleepable: bool) -> None:
        """Emit code for a start that does not count: its state remains blank."""
        key = self._key(asm, labels, sleepable=sleepable)
        self._push(asm, key, labels, after)
        asm.goto(after)

    def emit_find(self, asm: Assembler, labels: Labels, missing: str, *, sleepable: bool) -> None:
        """Emit code that finds the entry state of the last start."""
        key = self._key(asm, labels, sleepable=sleepable)
        self._find(asm, key, missing)
        self._pop(asm, missing)
        self._forget_key(asm, key)
        if self.pointer is not None:
            self._drop_before_end(asm, self.pointer)
        nested, ready = asm.new_label("nested"), asm.new_label("ready")
        self._first_state(asm, nested)
        asm.goto(ready)
        asm.label(nested)
        self._slot(asm, key)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, SPANS, key.base)
        asm.jump(Jump.EQ, R0, 0, EXIT)  # it was counted at its start
        asm.load(R1, R0, _DEPTH)
        asm.jump(Jump.NE, R1, R8, EXIT)
        asm.label(ready)
        asm.store(R10, ENTRY_STATE_SLOT, R0)
        asm.load(R1, R0, TIME_OFFSET)
        asm.jump(Jump.EQ, R1, 0, EXIT)  # a predicate refused the start
        emit_measure(asm, TIME_OFFSET + DURATION_OFFSET)

    def emit_remove(self, asm: Assembler, missing: str) -> None:
        """Emit code that removes the entry state that was found."""
        asm.load(R7, R10, ENTRY_STATE_SLOT)
        asm.jump(Jump.EQ, R7, 0, missing)
        if self.same_thread:
            asm.store(R7, TIME_OFFSET, 0)
            return
        for offset in range(0, self.key.size, 8):
            asm.load(R1, R7, self.key_offset + offset)
            asm.store(R10, TEMPORARIES + offset, R1)
        emit_map_call(asm, Helper.MAP_DELETE_ELEM, SPANS, TEMPORARIES)

    def _key(self, asm: Assembler, labels: Labels, *, sleepable: bool) -> KeyEmitter:
        key = KeyEmitter(
            asm,
            self.key,
            self.outputs,
            text=self.text,
            sleepable=sleepable,
            unread=labels.undecided,
            lost=labels.lost,
            kernel=self.kernel,
            tasks=True,
        )
        key.write(0, intervals=False)
        return key

    def _push(self, asm: Assembler, key: KeyEmitter, labels: Labels, alone: str | None) -> None:
        # Leaves the address of a blank entry state in r7. Goes to ``alone``, if given, if no other
        # start is open.
        found, new, nested, blank = map(asm.new_label, ("found", "new", "nested", "blank"))
        self._find(asm, key, new if alone is None else alone)
        if alone is None:
            asm.goto(found)
            asm.label(new)
            self._make(asm, key, labels, found)
            asm.label(found)
        else:
            asm.load(R1, R7, 0)
            asm.jump(Jump.SLE, R1, 0, alone)
        if self.pointer is not None:
            self._drop_before_start(asm, self.pointer)
        self._add(asm, 1)
        asm.mov(R8, R1)
        if self.pointer is not None:
            self._note_place(asm, self.pointer)
        self._first_state(asm, nested)
        asm.mov(R7, R0)
        asm.goto(blank)
        asm.label(nested)
        self._slot(asm, key)
        self._count_replaced(asm, key)
        self._state(asm, key, labels)
        self._identify(asm, key)
        asm.label(blank)
        asm.store(R7, TIME_OFFSET, 0)

    def _add(self, asm: Assembler, by: int) -> None:
        # Change the depth at r7; leave the previous one in r1. Probes in programs hit in a thread
        # one after the other.
        if self.pointer is None:
            emit_fetch_add(asm, R7, by, atomics=self.atomics)
            return
        asm.load(R1, R7, 0)
        asm.mov(R2, R1)
        asm.add(R2, by)
        asm.store(R7, 0, R2)

    def _pop(self, asm: Assembler, missing: str) -> None:
        # Leaves the depth of the last start in r8; goes to ``missing`` if there is none.
        taken = asm.new_label("taken")
        self._add(asm, -1)
        asm.jump(Jump.SGT, R1, 0, taken)
        self._add(asm, 1)
        asm.goto(missing)
        asm.label(taken)
        asm.mov(R8, R1)
        asm.add(R8, -1)

    def _find(self, asm: Assembler, key: KeyEmitter, missing: str) -> None:
        # Leaves the address of the value of DEPTHS in r7, and that of the state of slot 0 in
        # FIRST_STATE_SLOT, or 0 if it is in SPANS.
        found = asm.new_label("stack")
        if self.threads:
            self._thread(asm, key, missing)
            asm.load(R1, R7, self._owner)
            asm.store(R10, FIRST_STATE_SLOT, R0)
            asm.jump(Jump.EQ, R1, R8, found)
            asm.store(R10, FIRST_STATE_SLOT, 0)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, DEPTHS, key.base)
        asm.jump(Jump.EQ, R0, 0, missing)
        asm.mov(R7, R0)
        asm.label(found)

    def _make(self, asm: Assembler, key: KeyEmitter, labels: Labels, found: str) -> None:
        # As _find(), for a key without a value.
        if self.threads:
            self._thread(asm, key, labels.lost)
            asm.store(R10, FIRST_STATE_SLOT, R0)
            asm.mov(R0, 0)
            asm.compare_exchange(R7, self._owner, R8)
            asm.jump(Jump.EQ, R0, 0, found)
            asm.store(R10, FIRST_STATE_SLOT, 0)
        asm.store(R10, KEY_SLOT, 0, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, UNUSED)
        asm.jump(Jump.EQ, R0, 0, labels.lost)
        asm.mov(R3, R0)
        asm.mov(R4, _NOEXIST)
        emit_map_call(asm, Helper.MAP_UPDATE_ELEM, DEPTHS, key.base)
        # It fails if another thread has made the entry meanwhile.
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, DEPTHS, key.base)
        asm.jump(Jump.EQ, R0, 0, labels.lost)
        asm.mov(R7, R0)

    @property
    def _owner(self) -> int:
        # Offset of the thread in an entry of THREADS.
        state = self.key_offset + self.key.size
        return thread_size(state, pointers=self.pointer is not None) - 8

    def _thread(self, asm: Assembler, key: KeyEmitter, missing: str) -> None:
        # Leaves the address of the thread's entry of THREADS in r7, that of its state in r0, and
        # the thread in r8.
        asm.load(R8, R10, key.base + HEADER.size)
        emit_thread_place(asm, R8, THREADS, self.threads, missing)
        asm.mov(R7, R0)
        asm.add(R0, depths_size(pointers=self.pointer is not None))

    def _first_state(self, asm: Assembler, nested: str) -> None:
        # Leaves the address of the state of slot 0 in r0; goes to ``nested`` if it is in SPANS.
        if not self.threads:
            asm.goto(nested)
            return
        asm.jump(Jump.NE, R8, 0, nested)
        asm.load(R0, R10, FIRST_STATE_SLOT)
        asm.jump(Jump.EQ, R0, 0, nested)

    def _state(self, asm: Assembler, key: KeyEmitter, labels: Labels) -> None:
        # Leaves the address of the slot's entry state in r7.
        kept = asm.new_label("kept")
        if self.same_thread:
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, SPANS, key.base)
            asm.mov(R7, R0)
            asm.jump(Jump.NE, R0, 0, kept)
        asm.store(R10, KEY_SLOT, 0, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, BLANK)
        asm.jump(Jump.EQ, R0, 0, labels.lost)
        asm.mov(R3, R0)
        asm.mov(R4, 0)
        emit_map_call(asm, Helper.MAP_UPDATE_ELEM, SPANS, key.base)
        asm.jump(Jump.NE, R0, 0, labels.lost)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, SPANS, key.base)
        asm.jump(Jump.EQ, R0, 0, labels.lost)
        asm.mov(R7, R0)
        asm.label(kept)

    def _identify(self, asm: Assembler, key: KeyEmitter) -> None:
        asm.store(R7, _DEPTH, R8)
        for offset in range(0, self.key.size, 8):
            asm.load(R1, R10, key.base + offset)
            asm.store(R7, self.key_offset + offset, R1)

    def _slot(self, asm: Assembler, key: KeyEmitter) -> None:
        # Make the key that of the slot for the depth in r8.
        self._clamp(asm)
        asm.store(R10, key.base, R1, 4)

    def _clamp(self, asm: Assembler) -> None:
        # Leaves the slot for the depth in r8 in r1.
        within = asm.new_label("within")
        asm.mov(R1, R8)
        asm.jump(Jump.LE, R1, _LAST, within)
        asm.mov(R1, _LAST)
        asm.label(within)

    def _count_replaced(self, asm: Assembler, key: KeyEmitter) -> None:
        # Count the start in the last slot, which a deeper one replaces.
        free = asm.new_label("free")
        asm.jump(Jump.LE, R8, _LAST, free)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, SPANS, key.base)
        asm.jump(Jump.EQ, R0, 0, free)
        asm.load(R1, R0, TIME_OFFSET)
        asm.jump(Jump.EQ, R1, 0, free)
        asm.mov(R1, 1)
        asm.store(R10, READ_SLOT, R1)
        self._count(asm, DEEP)
        asm.label(free)

    def _count(self, asm: Assembler, counter: int) -> None:
        # Add the number in READ_SLOT to a counter.
        done = asm.new_label("counted")
        asm.store(R10, KEY_SLOT, 0, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, UNPAIRED)
        asm.jump(Jump.EQ, R0, 0, done)
        asm.load(R1, R10, READ_SLOT)
        asm.atomic_add(R0, counter, R1)
        asm.label(done)

    def _forget_key(self, asm: Assembler, key: KeyEmitter) -> None:
        # Remove the key if the depth in r8 is 0. Its slot must be 0.
        if self.same_thread:
            return
        more = asm.new_label("more")
        asm.jump(Jump.NE, R8, 0, more)
        emit_map_call(asm, Helper.MAP_DELETE_ELEM, DEPTHS, key.base)
        asm.label(more)

    def _place(self, asm: Assembler, register: Reg) -> None:
        if self.place is None:
            asm.mov(register, 0)
        else:
            asm.load(register, R6, self.place.offset, self.place.size)

    def _note_place(self, asm: Assembler, pointer: Register) -> None:
        # Keep the stack pointer and the address of the start at the depth in r8.
        deep = asm.new_label("deep")
        asm.mov(R1, R8)
        asm.jump(Jump.GT, R1, _LAST, deep)
        self._level(asm)
        asm.load(R2, R6, pointer.offset, pointer.size)
        asm.store(R1, _POINTER, R2)
        self._place(asm, R2)
        asm.store(R1, _PLACE, R2)
        asm.label(deep)

    def _level(self, asm: Assembler) -> None:
        # Leaves the address of the level of the depth in r1 in r1.
        asm.alu(Alu.LSH, R1, _LEVEL.bit_length() - 1)
        asm.add(R1, R7)

    def _drop_before_start(self, asm: Assembler, pointer: Register) -> None:
        done, again = asm.new_label("done"), asm.new_label("again")
        asm.load(R8, R7, 0)
        asm.mov(R1, R8)
        asm.add(R1, -1)
        asm.jump(Jump.GT, R1, _LAST, done)  # none is open, or too many
        asm.mov(R5, R1)
        self._level(asm)
        asm.load(R2, R1, _POINTER)
        asm.load(R3, R6, pointer.offset, pointer.size)
        asm.jump(Jump.GE, R2, R3, done)
        self._place(asm, R4)
        asm.add(R8, -1)
        for _ in range(_LAST):
            below = asm.new_label("below")
            self._below(asm, done)
            asm.load(R2, R1, _POINTER)
            asm.jump(Jump.NE, R2, R3, below)
            asm.load(R2, R1, _PLACE)
            asm.jump(Jump.EQ, R2, R4, again)
            asm.label(below)
        asm.goto(done)
        asm.label(again)
        asm.add(R8, 1)
        self._drop(asm)
        asm.label(done)

    def _drop_before_end(self, asm: Assembler, pointer: Register) -> None:
        # Leaves the depth of the start to take in r8.
        own, earlier = asm.new_label("own"), asm.new_label("earlier")
        self._clamp(asm)
        asm.mov(R5, R1)
        self._level(asm)
        asm.load(R2, R1, _POINTER)
        asm.load(R3, R6, pointer.offset, pointer.size)
        asm.jump(Jump.GE, R2, R3, own)
        for _ in range(_LAST):
            self._below(asm, own)
            asm.load(R2, R1, _POINTER)
            asm.jump(Jump.EQ, R2, R3, earlier)
        asm.goto(own)
        asm.label(earlier)
        self._drop(asm)
        asm.label(own)

    def _below(self, asm: Assembler, none: str) -> None:
        # Goes one depth down in r5 and leaves its level in r1; goes to ``none`` below the first.
        # A depth in a register has the verifier go down once. Constants, compared with the depth,
        # have it go down once for each depth, which takes half a second.
        asm.jump(Jump.LE, R5, 0, none)
        asm.add(R5, -1)
        asm.mov(R1, R5)
        self._level(asm)

    def _drop(self, asm: Assembler) -> None:
        # Drop the starts from the depth in r5 to that in r8, which becomes the former.
        asm.store(R7, 0, R5)
        self._clamp(asm)
        asm.alu(Alu.SUB, R1, R5)
        asm.store(R10, READ_SLOT, R1)
        asm.mov(R8, R5)
        self._count(asm, LEFT)
