"""Steps of a walk over Python's threads and frames: one thread, one frame.

A step is a piece of a loop, or a function that bpf_loop() calls. Its variables are in scratch space
on the stack of the program. All memory that it reads is that of the traced process and may hold
anything: a read that fails ends the walk.

Registers: r8 is the entry of the process in ``RUNTIMES``; the others are scratch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper, MapType
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R8, R10, Alu, Jump
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
    OFFSET_BITS,
    OWNER_MASK,
    SLOT_SIZE,
    UNREADABLE,
)
from usdt.engine.language.tree import MAX_FRAMES

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg

__all__ = (
    "CODES",
    "COUNT",
    "ENTRY",
    "FIRST",
    "FOUND",
    "HASH",
    "KEY",
    "LINK",
    "PREVIOUS",
    "PYTHON_MAPS",
    "RUNTIMES",
    "SAVED",
    "SCRATCH_SIZE",
    "STATUS",
    "TABLE",
    "THREAD",
    "THREAD_ID",
    "WORD",
    "Scratch",
    "emit_frame",
    "emit_hash",
    "emit_store",
    "emit_thread",
)

RUNTIMES = "pyruntimes"  # hash: process ID (u32) → see usdt/cpython/runtime.py
CODES = "pycodes"  # hash: process ID, first line (u32), code object, content (u64) → its copy
_ZEROS = "pyzeros"  # array of one entry: what new entries of other maps are made of
# Bytes of an entry of a map of stacks
_LARGEST_STACK = 8 + SLOT_SIZE * MAX_FRAMES
#: The maps that the code uses.
PYTHON_MAPS = (
    MapSpec(MapType.HASH, 4, ENTRY_SIZE, 1 << 12, RUNTIMES),
    MapSpec(MapType.HASH, 24, COPY_SIZE, 1 << 13, CODES),
    MapSpec(MapType.ARRAY, 4, max(COPY_SIZE, _LARGEST_STACK), 1, _ZEROS),
)
FOUND = 1  # the status of a search that has found a frame
_NOEXIST = 1  # BPF_NOEXIST
_PAGE = 4096
_FIRST_C_OWNER = 3  # from this owner on, a frame belongs to C code
_TAGS = -8  # a reference to a code object may have flags in its low bits
_MIX = 0x9E3779B97F4A7C15  # odd, with bits everywhere

# Variables in the scratch space
SAVED, THREAD_ID, LINK, THREAD = 0, 8, 16, 24
KEY, _KEY_LINE, _CODE, _LINES = 32, 36, 40, 48
WORD, PREVIOUS, _OWNER, COUNT, _COPY = 56, 64, 72, 80, 88
FIRST, HASH, TABLE, STATUS, ENTRY = 96, 104, 112, 120, 128
SCRATCH_SIZE = 136


class Scratch:
    """Variables at a register, and calls of helpers with them.

    Args:
        asm: the assembler.
        register: r10 in the program; in a step, a register that is preserved.
        base: offset of the first variable from it.
    """

    def __init__(self, asm: Assembler, register: Reg = R10, base: int = 0) -> None:
        self.asm = asm
        self._register = register
        self._base = base

    def at(self, slot: int) -> tuple[Reg, int]:
        """Return register and offset of a variable."""
        return self._register, self._base + slot

    def address(self, to: Reg, slot: int) -> None:
        """Emit code that leaves the address of a variable in a register."""
        self.asm.mov(to, self._register)
        self.asm.add(to, self._base + slot)

    def set(self, slot: int, value: int) -> None:
        """Emit code that sets a variable to a number."""
        self.asm.mov(R1, value)
        self.asm.store(*self.at(slot), R1)

    def read(self, to: int, base: int | None, field: str, fail: str, size: int = 8) -> None:
        """Emit code that reads a field of a structure of the process into a variable.

        Args:
            to: the variable.
            base: the variable that has the address of the structure; None: the entry of the process
                has the address of the field.
            field: the field's name in the entry.
            fail: label to jump to if the memory cannot be read.
            size: bytes.
        """
        asm = self.asm
        asm.load(R3, R8, field_offset(field))
        if base is not None:
            asm.load(R1, *self.at(base))
            asm.add(R3, R1)
        self.address(R1, to)
        asm.mov(R2, size)
        asm.call(Helper.PROBE_READ_USER)
        asm.jump(Jump.NE, R0, 0, fail)

    def look_up(self, name: str, key: int) -> None:
        """Emit a lookup in a map; the key is a variable."""
        self.asm.load_map(R1, name)
        self.address(R2, key)
        self.asm.call(Helper.MAP_LOOKUP_ELEM)

    def add_zeros(self, name: str, key: int, fail: str) -> None:
        """Emit code that adds an entry of zeros to a map and leaves the result in r0."""
        asm = self.asm
        asm.store(*self.at(_COPY), 0)
        self.look_up(_ZEROS, _COPY)
        asm.jump(Jump.EQ, R0, 0, fail)
        asm.mov(R3, R0)
        asm.load_map(R1, name)
        self.address(R2, key)
        asm.mov(R4, _NOEXIST)
        asm.call(Helper.MAP_UPDATE_ELEM)


def emit_thread(scratch: Scratch, stop: str) -> None:
    """Emit the step that looks at one thread state, or goes on to the next interpreter.

    It leaves ``FOUND`` or a reason in ``STATUS`` and goes to ``stop``, with the innermost frame in
    ``PREVIOUS``. A thread may have a state in several interpreters; the newest one with frames is
    used.
    """
    asm = scratch.asm
    thread, following, unreadable = map(asm.new_label, ("is_thread", "next", "unreadable"))
    asm.load(R1, *scratch.at(THREAD))
    asm.jump(Jump.NE, R1, 0, thread)
    asm.load(R1, *scratch.at(LINK))
    asm.jump(Jump.EQ, R1, 0, stop)
    scratch.read(THREAD, LINK, "threads", unreadable)
    scratch.read(LINK, LINK, "interpreter_next", unreadable)
    asm.goto(following)
    asm.label(unreadable)
    scratch.set(STATUS, UNREADABLE)
    asm.goto(stop)
    asm.label(thread)
    _look_at_thread(scratch, unreadable, stop)
    scratch.read(THREAD, THREAD, "thread_next", unreadable)
    asm.label(following)


def _look_at_thread(scratch: Scratch, unreadable: str, stop: str) -> None:
    asm = scratch.asm
    other, direct, idle = map(asm.new_label, ("other", "direct", "idle"))
    scratch.read(WORD, THREAD, "thread_id", unreadable)
    asm.load(R1, *scratch.at(WORD))
    asm.load(R2, *scratch.at(THREAD_ID))
    asm.jump(Jump.NE, R1, R2, other)
    scratch.read(PREVIOUS, THREAD, "frame", unreadable)
    asm.load(R1, R8, field_offset("inner_frame"))
    asm.mov(R2, NO_FIELD)
    asm.jump(Jump.EQ, R1, R2, direct)
    scratch.read(PREVIOUS, PREVIOUS, "inner_frame", unreadable)
    asm.label(direct)
    asm.load(R1, *scratch.at(PREVIOUS))
    asm.jump(Jump.EQ, R1, 0, idle)
    scratch.set(STATUS, FOUND)
    asm.goto(stop)
    asm.label(idle)
    scratch.set(STATUS, IDLE)  # another interpreter may have frames
    asm.label(other)


def emit_frame(scratch: Scratch, stop: str) -> None:
    """Emit the step that reads the frame at ``PREVIOUS``: its slot, and the next frame.

    Without a frame it leaves ``COMPLETE`` or ``BROKEN`` in ``STATUS`` and goes to ``stop``.
    """
    asm = scratch.asm
    of_c, no_flag, ready, broken, more = map(
        asm.new_label, ("of_c", "no_flag", "slot", "broken", "more")
    )
    asm.load(R1, *scratch.at(PREVIOUS))
    asm.store(*scratch.at(LINK), R1)
    asm.jump(Jump.NE, R1, 0, more)
    scratch.set(STATUS, COMPLETE)
    asm.goto(stop)
    asm.label(broken)
    scratch.set(STATUS, BROKEN)
    asm.goto(stop)
    asm.label(more)
    asm.store(*scratch.at(_OWNER), 0)
    scratch.read(_OWNER, LINK, "owner", broken, 1)
    asm.load(R1, R8, field_offset("is_entry"))
    asm.mov(R2, NO_FIELD)
    asm.jump(Jump.EQ, R1, R2, no_flag)
    scratch.read(_OWNER + 1, LINK, "is_entry", broken, 1)
    asm.label(no_flag)
    scratch.read(PREVIOUS, LINK, "previous", broken)
    asm.load(R1, *scratch.at(_OWNER), 1)
    asm.jump(Jump.GE, R1, _FIRST_C_OWNER, of_c)
    scratch.read(_CODE, LINK, "code", broken)
    asm.load(R1, *scratch.at(_CODE))
    asm.alu(Alu.AND, R1, _TAGS)
    asm.jump(Jump.EQ, R1, 0, of_c)
    asm.store(*scratch.at(_CODE), R1)
    scratch.read(WORD, LINK, "instruction", broken)
    scratch.read(_LINES, _CODE, "line_table", broken)
    scratch.read(_KEY_LINE, _CODE, "line", broken, 4)
    scratch.read(LINK, _CODE, "qualname", broken)
    scratch.read(LINK, LINK, "string_hash", broken)
    asm.load(R1, *scratch.at(_LINES))
    asm.load(R2, *scratch.at(LINK))
    asm.alu(Alu.XOR, R1, R2)
    asm.store(*scratch.at(_LINES), R1)
    _pack_word(scratch)
    _copy_code(scratch)
    asm.goto(ready)
    asm.label(of_c)
    for slot in (_CODE, _LINES, WORD):
        asm.store(*scratch.at(slot), 0)
    asm.store(*scratch.at(_KEY_LINE), 0, 4)
    asm.label(ready)


def _pack_word(scratch: Scratch) -> None:
    # The offset of the instruction in the bytecode, the owner and the flag of an entry.
    asm = scratch.asm
    asm.load(R1, *scratch.at(WORD))
    asm.load(R2, *scratch.at(_CODE))
    asm.alu(Alu.SUB, R1, R2)
    asm.load(R2, R8, field_offset("bytecode"))
    asm.alu(Alu.SUB, R1, R2)
    asm.alu(Alu.AND, R1, (1 << OFFSET_BITS) - 1)
    asm.load(R2, *scratch.at(_OWNER), 1)
    asm.alu(Alu.AND, R2, OWNER_MASK)
    asm.load(R3, *scratch.at(_OWNER + 1), 1)
    asm.alu(Alu.AND, R3, 1)
    asm.alu(Alu.LSH, R3, 3)
    asm.alu(Alu.OR, R2, R3)
    asm.alu(Alu.LSH, R2, OFFSET_BITS)
    asm.alu(Alu.OR, R1, R2)
    asm.store(*scratch.at(WORD), R1)


def _copy_code(scratch: Scratch) -> None:
    # Copy the code object, unless a program has. Only one program adds the entry, and entries are
    # never removed, so it may be filled in place; a full map is no error.
    asm = scratch.asm
    done = asm.new_label("copied")
    scratch.look_up(CODES, KEY)
    asm.jump(Jump.NE, R0, 0, done)
    scratch.add_zeros(CODES, KEY, done)
    asm.jump(Jump.NE, R0, 0, done)
    scratch.look_up(CODES, KEY)
    asm.jump(Jump.EQ, R0, 0, done)
    asm.store(*scratch.at(_COPY), R0)
    _copy_object(scratch, "qualname", QUALNAME_AT, QUALNAME_SIZE, done)
    _copy_object(scratch, "filename", FILENAME_AT, FILENAME_SIZE, done)
    _copy_object(scratch, "line_table", TABLE_AT, TABLE_SIZE, done)
    asm.load(R1, *scratch.at(_COPY))
    asm.store(R1, READY, 1)
    asm.label(done)


def _copy_object(scratch: Scratch, field: str, at: int, size: int, fail: str) -> None:
    # Copy the start of an object that the code object refers to; if the memory after it is absent,
    # up to the end of the page, which has all of the object.
    asm = scratch.asm
    whole = asm.new_label("whole")
    scratch.read(LINK, _CODE, field, fail)
    asm.load(R1, *scratch.at(_COPY))
    asm.add(R1, at)
    asm.mov(R2, size)
    asm.load(R3, *scratch.at(LINK))
    asm.call(Helper.PROBE_READ_USER)
    asm.jump(Jump.EQ, R0, 0, whole)
    asm.load(R3, *scratch.at(LINK))
    asm.mov(R1, R3)
    asm.alu(Alu.AND, R1, _PAGE - 1)
    asm.mov(R2, _PAGE)
    asm.alu(Alu.SUB, R2, R1)
    asm.jump(Jump.GT, R2, size, whole)
    asm.load(R1, *scratch.at(_COPY))
    asm.add(R1, at)
    asm.call(Helper.PROBE_READ_USER)
    asm.label(whole)


def emit_store(scratch: Scratch, frames: int, stop: str) -> None:
    """Emit code that stores the slot as number ``COUNT`` in the table at ``TABLE``."""
    asm = scratch.asm
    asm.load(R2, *scratch.at(COUNT))
    asm.jump(Jump.GE, R2, frames, stop)  # never taken: the verifier does not know
    asm.alu(Alu.MUL, R2, SLOT_SIZE)
    asm.load(R1, *scratch.at(TABLE))
    asm.add(R1, R2)
    for offset, slot, size in ((0, _CODE, 8), (8, _LINES, 8), (16, WORD, 4), (20, _KEY_LINE, 4)):
        asm.load(R2, *scratch.at(slot), size)
        asm.store(R1, offset, R2, size)


def emit_hash(scratch: Scratch) -> None:
    """Emit code that adds the slot to ``HASH``."""
    asm = scratch.asm
    asm.load(R1, *scratch.at(HASH))
    for slot, size in ((_CODE, 8), (_LINES, 8), (WORD, 4), (_KEY_LINE, 4)):
        asm.load(R2, *scratch.at(slot), size)
        asm.alu(Alu.XOR, R1, R2)
        asm.mov(R2, _MIX)
        asm.alu(Alu.MUL, R1, R2)
        asm.mov(R2, R1)
        asm.alu(Alu.RSH, R2, 29)
        asm.alu(Alu.XOR, R1, R2)
    asm.store(*scratch.at(HASH), R1)
