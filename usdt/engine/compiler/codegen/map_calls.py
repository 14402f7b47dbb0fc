"""Calls of the helpers that take a map and a key on the BPF stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf.asm.insn import R1, R2, R10
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT

if TYPE_CHECKING:
    from usdt.bpf._uapi import Helper
    from usdt.bpf.asm.assembler import Assembler

__all__ = ("emit_map_call", "emit_map_key")


def emit_map_key(asm: Assembler, name: str, slot: int = KEY_SLOT) -> None:
    """Put the map ``name`` into r1 and the address of the key in ``slot`` into r2."""
    asm.load_map(R1, name)
    asm.mov(R2, R10)
    asm.add(R2, slot)


def emit_map_call(asm: Assembler, helper: Helper, name: str, slot: int = KEY_SLOT) -> None:
    """Call a helper on the map ``name`` with the key in ``slot``; its other arguments are set."""
    emit_map_key(asm, name, slot)
    asm.call(helper)
