"""Code that finds the Python frames of the current thread.

    runtimes     process → where its frames are: an entry of :mod:`usdt.cpython.runtime`
    interpreters, threads   the thread state with the ID of this thread, and with frames
    frames       from the innermost outwards: a slot of :mod:`usdt.cpython.stack_record` for each
    codes        a copy of each code object that no program has copied yet

All memory is that of the traced process. It may hold anything: every loop is bounded, and a read
that fails ends the stack.

Registers: r9 pid_tgid; r8 is saved if it is needed, r6 and r7 are preserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper, MapType
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R8, R9, R10, Alu, Jump
from usdt.bpf.maps import MapSpec
from usdt.cpython.code_objects import (
    COPY_SIZE,
    FILENAME_AT,
    FILENAME_SIZE,
    QUALNAME_AT,
    QUALNAME_SIZE,
    READY,
    TABLE_AT,
    TABLE_SIZE,
)
from usdt.cpython.layouts import NO_FIELD
from usdt.cpython.runtime import ENTRY_SIZE, field_offset
from usdt.cpython.stack_record import (
    BROKEN,
    COMPLETE,
    IDLE,
    MORE,
    NO_THREAD,
    NOT_KNOWN,
    OFFSET_BITS,
    OWNER_MASK,
    SLOT_SIZE,
    UNREADABLE,
)
from usdt.engine.compiler.codegen.map_calls import emit_map_call, emit_map_key
from usdt.engine.language.tree import MAX_FRAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg

__all__ = ("CODES", "PYTHON_MAPS", "RUNTIMES", "SCRATCH_SIZE", "PythonStackEmitter")

RUNTIMES = "pyruntimes"  # hash: process ID (u32) → see usdt/cpython/runtime.py
CODES = "pycodes"  # hash: process ID, first line (u32), code object, line table (u64) → its copy
_ZEROS = "pyzeros"  # array of one entry: what new entries of other maps are made of
# Bytes of an entry of a map of stacks
_LARGEST_STACK = 8 + SLOT_SIZE * MAX_FRAMES
#: The maps that the code uses.
PYTHON_MAPS = (
    MapSpec(MapType.HASH, 4, ENTRY_SIZE, 1 << 12, RUNTIMES),
    MapSpec(MapType.HASH, 24, COPY_SIZE, 1 << 13, CODES),
    MapSpec(MapType.ARRAY, 4, max(COPY_SIZE, _LARGEST_STACK), 1, _ZEROS),
)
_MAX_THREADS = 512  # threads and interpreters that are looked at
_NOEXIST = 1  # BPF_NOEXIST
_PAGE = 4096
_FIRST_C_OWNER = 3  # from this owner on, a frame belongs to C code
_TAGS = -8  # a reference to a code object may have flags in its low bits

# Scratch space, as offsets from its base
_SAVED, _THREAD_ID, _LINK, _THREAD = 0, 8, 16, 24
_KEY, _KEY_LINE, _CODE, _TABLE = 32, 36, 40, 48
_WORD, _PREVIOUS, _OWNER, _COUNT, _COPY = 56, 64, 72, 80, 88
_FIRST, _HASH, _TABLE_ADDRESS = 96, 104, 112
SCRATCH_SIZE = 120
_MIX = 0x9E3779B97F4A7C15  # odd, with bits everywhere


class PythonStackEmitter:
    """An emitter of the code that walks the Python frames of the current thread.

    Args:
        asm: the assembler.
        base: offset from r10 of ``SCRATCH_SIZE`` bytes that the code may use.
        frames: the greatest number of slots.
        keep: whether r8 has a value that is needed afterwards.
    """

    def __init__(self, asm: Assembler, base: int, frames: int, *, keep: bool) -> None:
        self.asm = asm
        self._keep = keep
        self.frames = frames
        self._base = base

    def record(self, register: Reg, offset: int) -> None:
        """Emit code that writes the slots from ``register + offset`` on.

        It leaves the number before the slots in r0.
        """
        done = self.asm.new_label("python")
        if self._keep:
            self.asm.store(*self._at(_SAVED), R8)
        self._find(done)
        self._walk_frames(lambda: self._store_slot(lambda: self.asm.mov(R1, register), offset))
        self.asm.label(done)
        if self._keep:
            self.asm.load(R8, *self._at(_SAVED))

    def keep_by_hash(self, stacks: str, lost: str) -> None:
        """Emit code that leaves a hash of the stack in r0, or a negative reason why it is none.

        The map ``stacks`` has the slots, behind the number before them, by the hash. A new stack is
        walked again, into its entry.

        Args:
            stacks: the name of the map.
            lost: label to jump to when the map is full.
        """
        asm = self.asm
        done, kept = asm.new_label("python"), asm.new_label("kept")
        self._find(done)
        asm.load(R1, *self._at(_PREVIOUS))
        asm.store(*self._at(_FIRST), R1)
        asm.mov(R1, self.frames)
        asm.store(*self._at(_HASH), R1)
        self._walk_frames(self._hash_slot)
        asm.load(R1, *self._at(_HASH))
        asm.alu(Alu.XOR, R1, R0)
        asm.alu(Alu.RSH, R1, 1)  # a reason is negative
        asm.store(*self._at(_HASH), R1)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, stacks, self._base + _HASH)
        asm.jump(Jump.NE, R0, 0, kept)
        self._add_zeros(stacks, _HASH, kept)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, stacks, self._base + _HASH)
        asm.jump(Jump.EQ, R0, 0, lost)
        asm.store(*self._at(_TABLE_ADDRESS), R0)
        asm.load(R1, *self._at(_FIRST))
        asm.store(*self._at(_PREVIOUS), R1)
        at_entry = self._at(_TABLE_ADDRESS)
        self._walk_frames(lambda: self._store_slot(lambda: asm.load(R1, *at_entry), 8))
        asm.load(R1, *at_entry)
        asm.store(R1, 0, R0)
        asm.label(kept)
        asm.load(R0, *self._at(_HASH))
        asm.label(done)

    def _find(self, done: str) -> None:
        # Find the innermost frame; without one, go to ``done`` with the reason in r0.
        asm = self.asm
        labels = map(asm.new_label, ("not_known", "no_thread", "idle", "unreadable"))
        not_known, no_thread, idle, unreadable = labels
        found = asm.new_label("frames")
        self._find_runtime(not_known)
        self._find_thread_id(no_thread)
        self._find_frame(found, no_thread, idle, unreadable)
        for label, reason in (
            (not_known, NOT_KNOWN),
            (no_thread, NO_THREAD),
            (idle, IDLE),
            (unreadable, UNREADABLE),
        ):
            asm.label(label)
            asm.mov(R0, reason)
            asm.goto(done)
        asm.label(found)

    def _hash_slot(self) -> None:
        asm = self.asm
        asm.load(R1, *self._at(_HASH))
        for slot, size in ((_CODE, 8), (_TABLE, 8), (_WORD, 4), (_KEY_LINE, 4)):
            asm.load(R2, *self._at(slot), size)
            asm.alu(Alu.XOR, R1, R2)
            asm.mov(R2, _MIX)
            asm.alu(Alu.MUL, R1, R2)
            asm.mov(R2, R1)
            asm.alu(Alu.RSH, R2, 29)
            asm.alu(Alu.XOR, R1, R2)
        asm.store(*self._at(_HASH), R1)

    def _store_slot(self, load_table: Callable[[], object], offset: int) -> None:
        # Store the slot in a table; ``load_table`` leaves its address in r1.
        asm = self.asm
        asm.load(R2, *self._at(_COUNT))
        asm.alu(Alu.MUL, R2, SLOT_SIZE)
        load_table()
        asm.add(R1, offset)
        asm.add(R1, R2)
        asm.load(R2, *self._at(_CODE))
        asm.store(R1, 0, R2)
        asm.load(R2, *self._at(_TABLE))
        asm.store(R1, 8, R2)
        asm.load(R2, *self._at(_WORD), 4)
        asm.store(R1, 16, R2, 4)
        asm.load(R2, *self._at(_KEY_LINE), 4)
        asm.store(R1, 20, R2, 4)

    # ------------------------------------------------------------ parts

    def _at(self, slot: int) -> tuple[Reg, int]:
        return R10, self._base + slot

    def _read(self, to: int, base: int | None, field: str, fail: str, size: int = 8) -> None:
        # Read a field of the structure whose address is in the slot ``base`` into the slot ``to``.
        # Without ``base``, the entry has the address itself.
        asm = self.asm
        asm.load(R3, R8, field_offset(field))
        if base is not None:
            asm.load(R1, *self._at(base))
            asm.add(R3, R1)
        asm.mov(R1, R10)
        asm.add(R1, self._base + to)
        asm.mov(R2, size)
        asm.call(Helper.PROBE_READ_USER)
        asm.jump(Jump.NE, R0, 0, fail)

    def _find_runtime(self, not_known: str) -> None:
        # Leave the entry of the process in r8.
        asm = self.asm
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        asm.store(*self._at(_KEY), R1, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, RUNTIMES, self._base + _KEY)
        asm.jump(Jump.EQ, R0, 0, not_known)
        asm.mov(R8, R0)

    def _find_thread_id(self, no_thread: str) -> None:
        # CPython knows a thread by its ID in the process's own PID namespace.
        asm = self.asm
        asm.load(R1, R8, field_offset("namespace_device"))
        asm.load(R2, R8, field_offset("namespace_inode"))
        asm.mov(R3, R10)
        asm.add(R3, self._base + _WORD)
        asm.mov(R4, 8)
        asm.call(Helper.GET_NS_CURRENT_PID_TGID)
        asm.jump(Jump.NE, R0, 0, no_thread)
        asm.load(R1, *self._at(_WORD), 4)
        asm.store(*self._at(_THREAD_ID), R1)

    def _find_frame(self, found: str, no_thread: str, idle: str, unreadable: str) -> None:
        # Leave the innermost frame of the thread in the slot _PREVIOUS, and go to ``found``. A
        # thread may have a state in several interpreters; the newest one with frames is used.
        asm = self.asm
        again, thread, following, ended = map(
            asm.new_label, ("thread", "is_thread", "next_thread", "no_more")
        )
        self._read(_LINK, None, "interpreters", unreadable)
        for slot in (_THREAD, _COUNT):
            asm.mov(R1, 0)
            asm.store(*self._at(slot), R1)
        # Whether a state without frames was met. The verifier must not know the value, or it would
        # follow the loop once for each.
        asm.load(R1, R8, field_offset("zero"))
        asm.store(*self._at(_OWNER), R1)
        asm.label(again)
        asm.load(R1, *self._at(_THREAD))
        asm.jump(Jump.NE, R1, 0, thread)
        asm.load(R1, *self._at(_LINK))
        asm.jump(Jump.EQ, R1, 0, ended)
        self._read(_THREAD, _LINK, "threads", unreadable)
        self._read(_LINK, _LINK, "interpreter_next", unreadable)
        asm.goto(following)
        asm.label(thread)
        self._look_at_thread(found, unreadable)
        self._read(_THREAD, _THREAD, "thread_next", unreadable)
        asm.label(following)
        asm.load(R1, *self._at(_COUNT))
        asm.add(R1, 1)
        asm.store(*self._at(_COUNT), R1)
        asm.jump(Jump.LT, R1, _MAX_THREADS, again)
        asm.label(ended)
        asm.load(R1, *self._at(_OWNER))
        asm.jump(Jump.NE, R1, 0, idle)
        asm.goto(no_thread)

    def _look_at_thread(self, found: str, unreadable: str) -> None:
        asm = self.asm
        other, direct = asm.new_label("other"), asm.new_label("direct")
        self._read(_WORD, _THREAD, "thread_id", unreadable)
        asm.load(R1, *self._at(_WORD))
        asm.load(R2, *self._at(_THREAD_ID))
        asm.jump(Jump.NE, R1, R2, other)
        self._read(_PREVIOUS, _THREAD, "frame", unreadable)
        asm.load(R1, R8, field_offset("inner_frame"))
        asm.mov(R2, NO_FIELD)
        asm.jump(Jump.EQ, R1, R2, direct)
        self._read(_PREVIOUS, _PREVIOUS, "inner_frame", unreadable)
        asm.label(direct)
        asm.load(R1, *self._at(_PREVIOUS))
        asm.jump(Jump.NE, R1, 0, found)
        asm.load(R1, *self._at(_THREAD_ID))  # the thread has a state without frames
        asm.store(*self._at(_OWNER), R1)
        asm.label(other)

    def _walk_frames(self, take: Callable[[], object]) -> None:
        # Take a slot for each frame; leave the number before the slots in r0.
        asm = self.asm
        again, broken, complete, count = map(
            asm.new_label, ("frame", "broken", "complete", "count")
        )
        asm.mov(R1, 0)
        asm.store(*self._at(_COUNT), R1)
        asm.label(again)
        asm.load(R1, *self._at(_PREVIOUS))
        asm.jump(Jump.EQ, R1, 0, complete)
        asm.store(*self._at(_LINK), R1)
        self._read_frame(broken)
        take()
        asm.load(R1, *self._at(_COUNT))
        asm.add(R1, 1)
        asm.store(*self._at(_COUNT), R1)
        asm.jump(Jump.LT, R1, self.frames, again)
        asm.load(R1, *self._at(_PREVIOUS))
        asm.jump(Jump.EQ, R1, 0, complete)
        for label, status in ((None, MORE), (broken, BROKEN), (complete, COMPLETE)):
            if label is not None:
                asm.label(label)
            asm.mov(R0, status)
            asm.goto(count)
        asm.label(count)
        asm.load(R1, *self._at(_COUNT))
        asm.alu(Alu.MUL, R1, SLOT_SIZE)
        asm.add(R0, R1)

    def _read_frame(self, broken: str) -> None:
        # Read the frame at _LINK: its slot, and the next frame.
        asm = self.asm
        of_c, no_flag, ready = map(asm.new_label, ("of_c", "no_flag", "slot"))
        asm.store(*self._at(_OWNER), 0)
        self._read(_OWNER, _LINK, "owner", broken, 1)
        asm.load(R1, R8, field_offset("is_entry"))
        asm.mov(R2, NO_FIELD)
        asm.jump(Jump.EQ, R1, R2, no_flag)
        self._read(_OWNER + 1, _LINK, "is_entry", broken, 1)
        asm.label(no_flag)
        self._read(_PREVIOUS, _LINK, "previous", broken)
        asm.load(R1, *self._at(_OWNER), 1)
        asm.jump(Jump.GE, R1, _FIRST_C_OWNER, of_c)
        self._read(_CODE, _LINK, "code", broken)
        asm.load(R1, *self._at(_CODE))
        asm.alu(Alu.AND, R1, _TAGS)
        asm.jump(Jump.EQ, R1, 0, of_c)
        asm.store(*self._at(_CODE), R1)
        self._read(_WORD, _LINK, "instruction", broken)
        self._read(_TABLE, _CODE, "line_table", broken)
        self._read(_KEY_LINE, _CODE, "line", broken, 4)
        self._pack_word()
        self._copy_code()
        asm.goto(ready)
        asm.label(of_c)
        for slot in (_CODE, _TABLE, _WORD):
            asm.store(*self._at(slot), 0)
        asm.store(*self._at(_KEY_LINE), 0, 4)
        asm.label(ready)

    def _pack_word(self) -> None:
        # The offset of the instruction in the bytecode, the owner and the flag of an entry.
        asm = self.asm
        asm.load(R1, *self._at(_WORD))
        asm.load(R2, *self._at(_CODE))
        asm.alu(Alu.SUB, R1, R2)
        asm.load(R2, R8, field_offset("bytecode"))
        asm.alu(Alu.SUB, R1, R2)
        asm.alu(Alu.AND, R1, (1 << OFFSET_BITS) - 1)
        asm.load(R2, *self._at(_OWNER), 1)
        asm.alu(Alu.AND, R2, OWNER_MASK)
        asm.load(R3, R10, self._base + _OWNER + 1, 1)
        asm.alu(Alu.AND, R3, 1)
        asm.alu(Alu.LSH, R3, 3)
        asm.alu(Alu.OR, R2, R3)
        asm.alu(Alu.LSH, R2, OFFSET_BITS)
        asm.alu(Alu.OR, R1, R2)
        asm.store(*self._at(_WORD), R1)

    def _copy_code(self) -> None:
        # Copy the code object, unless a program has. Only one program adds the entry, and entries
        # are never removed, so it may be filled in place; a full map is no error.
        asm = self.asm
        done = asm.new_label("copied")
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, CODES, self._base + _KEY)
        asm.jump(Jump.NE, R0, 0, done)
        self._add_zeros(CODES, _KEY, done)
        asm.jump(Jump.NE, R0, 0, done)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, CODES, self._base + _KEY)
        asm.jump(Jump.EQ, R0, 0, done)
        asm.store(*self._at(_COPY), R0)
        self._copy_object("qualname", QUALNAME_AT, QUALNAME_SIZE, done)
        self._copy_object("filename", FILENAME_AT, FILENAME_SIZE, done)
        self._copy_object("line_table", TABLE_AT, TABLE_SIZE, done)
        asm.load(R1, *self._at(_COPY))
        asm.store(R1, READY, 1)
        asm.label(done)

    def _add_zeros(self, name: str, key: int, fail: str) -> None:
        # Add an entry of zeros to a map; leave the result in r0.
        asm = self.asm
        asm.store(*self._at(_COPY), 0)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, _ZEROS, self._base + _COPY)
        asm.jump(Jump.EQ, R0, 0, fail)
        asm.mov(R3, R0)
        emit_map_key(asm, name, self._base + key)
        asm.mov(R4, _NOEXIST)
        asm.call(Helper.MAP_UPDATE_ELEM)

    def _copy_object(self, field: str, at: int, size: int, fail: str) -> None:
        # Copy the start of an object that the code object refers to; if the memory after it is
        # absent, up to the end of the page, which has all of the object.
        asm = self.asm
        whole = asm.new_label("whole")
        self._read(_LINK, _CODE, field, fail)
        asm.load(R1, *self._at(_COPY))
        asm.add(R1, at)
        asm.mov(R2, size)
        asm.load(R3, *self._at(_LINK))
        asm.call(Helper.PROBE_READ_USER)
        asm.jump(Jump.EQ, R0, 0, whole)
        asm.load(R3, *self._at(_LINK))
        asm.mov(R1, R3)
        asm.alu(Alu.AND, R1, _PAGE - 1)
        asm.mov(R2, _PAGE)
        asm.alu(Alu.SUB, R2, R1)
        asm.jump(Jump.GT, R2, size, whole)
        asm.load(R1, *self._at(_COPY))
        asm.add(R1, at)
        asm.call(Helper.PROBE_READ_USER)
        asm.label(whole)
