"""Code that matches starts and ends: a stack of the starts in progress for each key.

The starts of a key form a stack because functions may be recursive. Its latest 16 are kept: a start
at depth d has entry d mod 16, and an end empties the entry of its start. An end that finds the
entry empty is that of a start which a deeper one replaced. So starts without an end, as a function
that fails may leave them, never keep later pairs from being measured. The depth and the entries
change atomically if the kernel supports it, as threads may share a key. A key is removed with its
last start.

If the key is the thread, an array comes first: a thread takes its place there, if it is free, with
its first start, and leaves it with its last. While another thread has the place, its starts are in
the hash map.

Starts and ends are ignored until both are attached, and again before the first is detached: a gate
is open only in between. Otherwise a start whose end is not attached yet would stay in progress.

Register use: r7 time or number of a group, r8 address, then number of a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R7, R8, R10, Alu, Jump
from usdt.engine.aggregate.codegen.values import ZEROS
from usdt.engine.aggregate.keys import HEADER
from usdt.engine.compiler.codegen.expressions import KEY_SLOT, READ_SLOT
from usdt.engine.compiler.codegen.map_calls import emit_fetch_add, emit_map_call, emit_thread_place
from usdt.engine.compiler.codegen.model import EXIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.aggregate.codegen.keys import KeyEmitter

__all__ = (
    "COUNTS",
    "GATE",
    "NESTED",
    "PLACES",
    "STARTS",
    "THREADS",
    "TOO_DEEP",
    "UNMATCHED",
    "UNPAIRED",
    "PairEmitter",
    "start_size",
)

STARTS = "starts"  # hash by the pair's key: u64 depth, then u64 time, or time and group, of each
PLACES = "places"  # array: a value of STARTS, then u64 the thread that has the place, or 0
UNPAIRED = "odd"  # array of two entries: u64 ends without a start, u64 ends of a replaced start
UNMATCHED, TOO_DEEP = 0, 8  # offsets in the entry COUNTS
COUNTS, GATE = range(2)  # entries of UNPAIRED; GATE: u64 that is not 0 while the gate is open
THREADS = 1 << 11  # entries of PLACES
NESTED = 16  # maximum starts kept for one key; a power of two
_TIME, _GROUP = 8, 16  # offsets in a value, of its first start
_NOEXIST = 1  # BPF_NOEXIST


def start_size(*, grouped: bool) -> int:
    """Return the size of a value of STARTS; ``grouped``: with the group of each start."""
    return 8 + (16 if grouped else 8) * NESTED


class PairEmitter:
    """An emitter of the code of starts and ends.

    Args:
        asm: the assembler.
        key: the emitter of the key that matches a start to its end.
        grouped: whether a start keeps the number of a group.
        atomics: whether the kernel has atomic instructions that return the previous value.
        places: whether there is the map PLACES: the key is the thread, and there are atomics.
        lost: label to jump to when there is no space for a start.
    """

    def __init__(
        self,
        asm: Assembler,
        key: KeyEmitter,
        *,
        grouped: bool,
        atomics: bool,
        places: bool,
        lost: str,
    ) -> None:
        self.asm = asm
        self.key = key
        self.grouped = grouped
        self.atomics = atomics
        self.places = places
        self.owner = start_size(grouped=grouped)  # offset in an entry of PLACES
        self.lost = lost
        self.unmatched = asm.new_label("unmatched")
        self.replaced = asm.new_label("replaced")

    def start(self, find_group: Callable[[], None] | None) -> None:
        """Emit the code of a start.

        Args:
            find_group: emits the code that leaves the number of the start's group in r7; None
                without groups.
        """
        asm = self.asm
        self._pass_gate()
        if find_group is not None:
            find_group()
        nested = asm.new_label("nested")
        self.key.write(0, intervals=False)
        if self.places:
            self._take_place(nested)
        self._find()
        asm.jump(Jump.NE, R0, 0, nested)
        self._make()
        self._find()  # made here, or by another thread meanwhile
        asm.jump(Jump.EQ, R0, 0, self.lost)
        asm.label(nested)
        asm.mov(R8, R0)
        asm.call(Helper.KTIME_GET_NS)
        asm.store(R10, READ_SLOT, R0)
        emit_fetch_add(asm, R8, 1, atomics=self.atomics)
        self._add_place(R1)
        asm.load(R1, R10, READ_SLOT)
        asm.store(R8, _TIME, R1)
        if self.grouped:
            asm.store(R8, _GROUP, R7)
        asm.goto(EXIT)

    def end(self) -> None:
        """Emit the code that leaves the time since the last start in r7, and its group in r8."""
        asm = self.asm
        taken, measured, found = map(asm.new_label, ("taken", "measured", "found"))
        self._pass_gate()
        asm.call(Helper.KTIME_GET_NS)
        asm.mov(R7, R0)
        self.key.write(0, intervals=False)
        if self.places:
            self._find_place(found)
        self._find()
        asm.jump(Jump.EQ, R0, 0, self.unmatched)
        asm.label(found)
        asm.mov(R8, R0)
        emit_fetch_add(asm, R8, -1, atomics=self.atomics)
        asm.jump(Jump.SGT, R1, 0, taken)
        emit_fetch_add(asm, R8, 1, atomics=self.atomics)
        asm.goto(self.unmatched)
        asm.label(taken)
        asm.mov(R2, R1)
        asm.add(R2, -1)
        self._add_place(R2)
        self._take_start()
        if self.grouped:
            asm.load(R8, R8, _GROUP)
        asm.jump(Jump.NE, R1, 1, measured)
        if self.places:
            hashed = asm.new_label("hashed")
            asm.load(R1, R10, READ_SLOT)
            asm.jump(Jump.EQ, R1, 0, hashed)
            asm.store(R1, self.owner, 0)
            asm.goto(measured)
            asm.label(hashed)
        emit_map_call(asm, Helper.MAP_DELETE_ELEM, STARTS, self.key.base)
        asm.label(measured)
        asm.load(R3, R10, KEY_SLOT)
        asm.jump(Jump.EQ, R3, 0, self.replaced)
        asm.alu(Alu.SUB, R7, R3)

    def count_unpaired(self) -> None:
        """Emit the code, behind that of the end, that counts an end without a start."""
        self._count(self.unmatched, UNMATCHED)
        self._count(self.replaced, TOO_DEEP)

    def _pass_gate(self) -> None:
        self._find_unpaired(GATE)
        self.asm.load(R1, R0, 0)
        self.asm.jump(Jump.EQ, R1, 0, EXIT)

    def _find(self) -> None:
        emit_map_call(self.asm, Helper.MAP_LOOKUP_ELEM, STARTS, self.key.base)

    def _take_place(self, taken: str) -> None:
        # Leaves the address of the thread's place in r0 and goes to ``taken``, if it can have it.
        asm = self.asm
        hashed = asm.new_label("hashed")
        self._place(hashed)
        asm.jump(Jump.EQ, R1, R8, taken)
        asm.jump(Jump.NE, R1, 0, hashed)
        asm.mov(R3, R0)
        asm.mov(R0, 0)
        asm.compare_exchange(R3, self.owner, R8)
        asm.jump(Jump.NE, R0, 0, hashed)
        asm.mov(R0, R3)
        asm.goto(taken)
        asm.label(hashed)

    def _find_place(self, found: str) -> None:
        # Leaves the address of the thread's place in r0 and goes to ``found``, if it has it. The
        # address is in READ_SLOT, too, which is 0 otherwise.
        asm = self.asm
        hashed = asm.new_label("hashed")
        self._place(hashed)
        asm.store(R10, READ_SLOT, R0)
        asm.jump(Jump.EQ, R1, R8, found)
        asm.label(hashed)
        asm.store(R10, READ_SLOT, 0)

    def _place(self, missing: str) -> None:
        # Leaves the address of the thread's place in r0, who has it in r1, and the thread in r8.
        self.asm.load(R8, R10, self.key.base + HEADER.size)
        emit_thread_place(self.asm, R8, PLACES, THREADS, missing)
        self.asm.load(R1, R0, self.owner)

    def _make(self) -> None:
        # Makes an entry; without groups it has its first start already.
        asm = self.asm
        if self.grouped:
            asm.store(R10, KEY_SLOT, 0, 4)
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, ZEROS)
            asm.jump(Jump.EQ, R0, 0, self.lost)  # never taken: array entries always exist
            asm.mov(R3, R0)
        else:
            free = self.key.free
            asm.call(Helper.KTIME_GET_NS)
            asm.store(R10, free, 1)
            asm.store(R10, free + _TIME, R0)
            for index in range(1, NESTED):
                asm.store(R10, free + _TIME + 8 * index, 0)
            asm.mov(R3, R10)
            asm.add(R3, free)
        asm.mov(R4, _NOEXIST)
        emit_map_call(asm, Helper.MAP_UPDATE_ELEM, STARTS, self.key.base)
        if not self.grouped:
            asm.jump(Jump.EQ, R0, 0, EXIT)

    def _take_start(self) -> None:
        # Moves the time of the start at r8 to KEY_SLOT, and leaves 0 there.
        asm = self.asm
        if self.atomics and not self.places:  # a thread's starts are its own
            asm.mov(R3, 0)
            asm.exchange(R8, _TIME, R3)
        else:
            asm.load(R3, R8, _TIME)
            asm.store(R8, _TIME, 0)
        asm.store(R10, KEY_SLOT, R3)

    def _add_place(self, index: Reg) -> None:
        # Adds the offset of a start, of which ``index`` are below it, to the address in r8.
        self.asm.alu(Alu.AND, index, NESTED - 1)
        self.asm.alu(Alu.LSH, index, 4 if self.grouped else 3)
        self.asm.add(R8, index)

    def _count(self, label: str, counter: int) -> None:
        asm = self.asm
        asm.label(label)
        self._find_unpaired(COUNTS)
        asm.mov(R1, 1)
        asm.atomic_add(R0, counter, R1)
        asm.goto(EXIT)

    def _find_unpaired(self, entry: int) -> None:
        # Leaves the address of an entry of UNPAIRED in r0.
        self.asm.store(R10, KEY_SLOT, entry, 4)
        emit_map_call(self.asm, Helper.MAP_LOOKUP_ELEM, UNPAIRED)
        self.asm.jump(Jump.EQ, R0, 0, EXIT)
