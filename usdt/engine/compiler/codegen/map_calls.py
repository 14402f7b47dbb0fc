"""Code for map keys on the BPF stack, and for helper calls with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R10, Alu, Jump
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg

__all__ = (
    "emit_fetch_add",
    "emit_map_call",
    "emit_map_key",
    "emit_thread_place",
    "emit_unique_thread",
)


def emit_map_key(asm: Assembler, name: str, slot: int = KEY_SLOT) -> None:
    """Emit code that leaves the map ``name`` in r1 and the address of the key in ``slot`` in r2."""
    asm.load_map(R1, name)
    asm.mov(R2, R10)
    asm.add(R2, slot)


def emit_map_call(asm: Assembler, helper: Helper, name: str, slot: int = KEY_SLOT) -> None:
    """Emit a call of ``helper`` with the map ``name`` and the key in ``slot``.

    Other arguments of the helper must be in r3 to r5 already.
    """
    emit_map_key(asm, name, slot)
    asm.call(helper)


def emit_fetch_add(asm: Assembler, address: Reg, by: int, *, atomics: bool) -> None:
    """Emit code that adds to the u64 at ``address`` and leaves its previous value in r1.

    Without atomics, of which old kernels have none that return a value, another CPU may interfere.
    """
    if atomics:
        asm.mov(R1, by)
        asm.fetch_add(address, 0, R1)
        return
    asm.load(R1, address, 0)
    asm.mov(R2, R1)
    asm.add(R2, by)
    asm.store(address, 0, R2)


def emit_thread_place(asm: Assembler, thread: Reg, name: str, places: int, other: str) -> None:
    """Emit code that leaves the address of a thread's entry in an array in r0.

    Args:
        asm: the assembler.
        thread: as :func:`emit_unique_thread` leaves it; kept if it is r6 to r9.
        name: the array.
        places: its number of entries, a power of two. Several threads share one.
        other: a label to which the code never goes: the verifier does not know that.
    """
    asm.mov(R1, thread)
    asm.alu(Alu.RSH, R1, 32)
    asm.add(R1, thread)
    asm.alu(Alu.AND, R1, places - 1)
    asm.store(R10, KEY_SLOT, R1, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, name)
    asm.jump(Jump.EQ, R0, 0, other)


def emit_unique_thread(asm: Assembler, thread: Reg) -> None:
    """Emit code that replaces thread ID 0 by (CPU + 1) << 32: every CPU has an idle task 0."""
    numbered = asm.new_label("thread")
    asm.jump(Jump.NE, thread, 0, numbered)
    asm.call(Helper.GET_SMP_PROCESSOR_ID)
    asm.mov(thread, R0)
    asm.add(thread, 1)
    asm.alu(Alu.LSH, thread, 32)
    asm.label(numbered)
