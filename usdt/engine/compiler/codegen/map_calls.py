"""Code for helper calls with a map and a key on the BPF stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf.asm.insn import R1, R2, R10
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT

if TYPE_CHECKING:
    from usdt.bpf._uapi import Helper
    from usdt.bpf.asm.assembler import Assembler

__all__ = ("emit_map_call", "emit_map_key")


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
