"""Code that finds the Python frames of the current thread.

    runtimes     process → where its frames are: an entry of :mod:`usdt.cpython.runtime`
    threads      the thread state with the ID of this thread, and with frames
    frames       from the innermost outwards: a slot of :mod:`usdt.cpython.stack_record` for each

The loops are those of bpf_loop(), which the verifier follows only a few times (Linux 5.17), and
otherwise loops of the program, which it follows to their end.

Registers: r9 pid_tgid; r8 is saved if it is needed, r6 and r7 are preserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.assembler import CodeTooLarge
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R8, R9, R10, Alu, Jump
from usdt.bpf.features import have_loops
from usdt.cpython.runtime import field_offset
from usdt.cpython.stack_record import (
    COMPLETE,
    MORE,
    NO_THREAD,
    NOT_KNOWN,
    SLOT_SIZE,
    UNREADABLE,
)
from usdt.engine.compiler.codegen.python_frames import (
    COUNT,
    ENTRY,
    FIRST,
    FOUND,
    HASH,
    KEY,
    LINK,
    PREVIOUS,
    RUNTIMES,
    SAVED,
    STATUS,
    TABLE,
    THREAD,
    THREAD_ID,
    WORD,
    Scratch,
    emit_frame,
    emit_hash,
    emit_store,
    emit_thread,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg

__all__ = ("STEP_STACK", "PythonStackEmitter")

#: Bytes of the BPF stack that a step needs; the program and its steps share 512.
STEP_STACK = 32
# Threads and interpreters that are looked at: by bpf_loop(), and by a loop of the program
_MOST_THREADS, _THREADS = 1 << 14, 512
# Instructions of a program after which no further walk begins: some 50 walks, and 3. The verifier
# follows a million: 9,000 and 190,000 for each walk.
_MOST_CODE, _LEAST_CODE = 6000, 1200


class PythonStackEmitter:
    """An emitter of the code that walks the Python frames of the current thread.

    Args:
        asm: the assembler.
        base: offset from r10 of ``SCRATCH_SIZE`` bytes that the code may use.
        frames: the greatest number of slots.
        keep: whether r8 has a value that is needed afterwards.
        loops: whether the kernel has bpf_loop(); None asks it.

    Raises:
        CodeTooLarge: the program has so many walks that the verifier would give up.
    """

    def __init__(
        self, asm: Assembler, base: int, frames: int, *, keep: bool, loops: bool | None = None
    ) -> None:
        self.asm = asm
        self.frames = frames
        self._keep = keep
        self._loops = have_loops() if loops is None else loops
        if len(asm) > (_MOST_CODE if self._loops else _LEAST_CODE):
            raise CodeTooLarge(
                f"a program of {len(asm)} instructions has no room for Python stacks"
            )
        self._scratch = Scratch(asm, R10, base)

    def record(self, register: Reg, offset: int) -> None:
        """Emit code that writes the slots from ``register + offset`` on.

        It leaves the number before the slots in r0.
        """
        asm, scratch = self.asm, self._scratch
        done = asm.new_label("python")
        if self._keep:
            asm.store(*scratch.at(SAVED), R8)
        self._find(done)
        asm.mov(R1, register)
        asm.add(R1, offset)
        asm.store(*scratch.at(TABLE), R1)
        self._walk_frames("store", self._store)
        asm.label(done)
        if self._keep:
            asm.load(R8, *scratch.at(SAVED))

    def keep_by_hash(self, stacks: str, lost: str) -> None:
        """Emit code that leaves a hash of the stack in r0, or a negative reason why it is none.

        The map ``stacks`` has the slots, behind the number before them, by the hash. A new stack is
        walked again, into its entry.

        Args:
            stacks: the name of the map.
            lost: label to jump to when the map is full.
        """
        asm, scratch = self.asm, self._scratch
        done, kept = asm.new_label("python"), asm.new_label("kept")
        self._find(done)
        asm.load(R1, *scratch.at(PREVIOUS))
        asm.store(*scratch.at(FIRST), R1)
        scratch.set(HASH, self.frames)
        self._walk_frames("hash", lambda step, _: emit_hash(step))
        asm.load(R1, *scratch.at(HASH))
        asm.alu(Alu.XOR, R1, R0)
        asm.alu(Alu.RSH, R1, 1)  # a reason is negative
        asm.store(*scratch.at(HASH), R1)
        scratch.look_up(stacks, HASH)
        asm.jump(Jump.NE, R0, 0, kept)
        scratch.add_zeros(stacks, HASH, kept)
        scratch.look_up(stacks, HASH)
        asm.jump(Jump.EQ, R0, 0, lost)
        asm.add(R0, 8)
        asm.store(*scratch.at(TABLE), R0)
        asm.load(R1, *scratch.at(FIRST))
        asm.store(*scratch.at(PREVIOUS), R1)
        self._walk_frames("store", self._store)
        asm.load(R1, *scratch.at(TABLE))
        asm.store(R1, -8, R0)
        asm.label(kept)
        asm.load(R0, *scratch.at(HASH))
        asm.label(done)

    # ------------------------------------------------------------ parts

    def _store(self, step: Scratch, stop: str) -> None:
        emit_store(step, self.frames, stop)

    def _find(self, done: str) -> None:
        # Find the innermost frame; without one, go to ``done`` with the reason in r0.
        asm, scratch = self.asm, self._scratch
        failed, found = asm.new_label("failed"), asm.new_label("found")
        scratch.set(STATUS, NOT_KNOWN)
        self._find_runtime(failed)
        scratch.set(STATUS, NO_THREAD)
        self._find_thread_id(failed)
        scratch.set(STATUS, UNREADABLE)
        scratch.read(LINK, None, "interpreters", failed)
        scratch.set(STATUS, NO_THREAD)
        scratch.set(THREAD, 0)
        most = _MOST_THREADS if self._loops else _THREADS
        self._loop("python thread", most, emit_thread)
        asm.label(failed)
        asm.load(R0, *scratch.at(STATUS))
        asm.jump(Jump.EQ, R0, FOUND, found)
        asm.goto(done)
        asm.label(found)

    def _find_runtime(self, failed: str) -> None:
        # Leave the entry of the process in r8.
        asm, scratch = self.asm, self._scratch
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        asm.store(*scratch.at(KEY), R1, 4)
        scratch.look_up(RUNTIMES, KEY)
        asm.jump(Jump.EQ, R0, 0, failed)
        asm.mov(R8, R0)
        asm.store(*scratch.at(ENTRY), R8)

    def _find_thread_id(self, failed: str) -> None:
        # CPython knows a thread by its ID in the process's own PID namespace.
        asm, scratch = self.asm, self._scratch
        asm.load(R1, R8, field_offset("namespace_device"))
        asm.load(R2, R8, field_offset("namespace_inode"))
        scratch.address(R3, WORD)
        asm.mov(R4, 8)
        asm.call(Helper.GET_NS_CURRENT_PID_TGID)
        asm.jump(Jump.NE, R0, 0, failed)
        asm.load(R1, *scratch.at(WORD), 4)
        asm.store(*scratch.at(THREAD_ID), R1)

    def _walk_frames(self, name: str, take: Callable[[Scratch, str], object]) -> None:
        # Take a slot for each frame; leave the number before the slots in r0.
        asm, scratch = self.asm, self._scratch
        whole = asm.new_label("whole")

        def step(at: Scratch, stop: str) -> None:
            emit_frame(at, stop)
            take(at, stop)

        scratch.set(STATUS, MORE)
        scratch.set(COUNT, 0)
        self._loop(f"python {name} {self.frames}", self.frames, step)
        asm.load(R0, *scratch.at(STATUS))
        asm.jump(Jump.NE, R0, MORE, whole)
        asm.load(R1, *scratch.at(PREVIOUS))
        asm.jump(Jump.NE, R1, 0, whole)
        asm.mov(R0, COMPLETE)
        asm.label(whole)
        asm.load(R1, *scratch.at(COUNT))
        asm.alu(Alu.MUL, R1, SLOT_SIZE)
        asm.add(R0, R1)

    def _loop(self, name: str, times: int, step: Callable[[Scratch, str], object]) -> None:
        asm, scratch = self.asm, self._scratch
        if self._loops:
            asm.function(name, lambda at: _function(at, step))
            asm.mov(R1, times)
            asm.load_function(R2, name)
            scratch.address(R3, 0)
            asm.mov(R4, 0)
            asm.call(Helper.LOOP)
            return
        again, stop = asm.new_label("again"), asm.new_label("stop")
        scratch.set(COUNT, 0)
        asm.label(again)
        step(scratch, stop)
        asm.load(R1, *scratch.at(COUNT))
        asm.add(R1, 1)
        asm.store(*scratch.at(COUNT), R1)
        asm.jump(Jump.LT, R1, times, again)
        asm.label(stop)


def _function(asm: Assembler, step: Callable[[Scratch, str], object]) -> None:
    # A step as a function of the number of the call (r1) and the scratch space (r2), which returns
    # 1 to stop.
    stop = asm.new_label("stop")
    scratch = Scratch(asm, R6)
    asm.mov(R6, R2)
    asm.store(*scratch.at(COUNT), R1)
    asm.load(R8, *scratch.at(ENTRY))
    step(scratch, stop)
    asm.load(R1, *scratch.at(COUNT))
    asm.add(R1, 1)
    asm.store(*scratch.at(COUNT), R1)
    asm.mov(R0, 0)
    asm.exit()
    asm.label(stop)
    asm.mov(R0, 1)
    asm.exit()
