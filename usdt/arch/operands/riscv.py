"""Operands of RISC-V, 32 and 64 bits, as gcc prints them.

12  -1                    constants
a0  s11  x10              registers
fa0  f10  v8              registers that struct pt_regs does not have
-24(s0)  (sp)             memory
%lo(sv+8)(a5)             the low 12 bits of a symbol's address
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.operands.grammar import excerpt, integer, value_type
from usdt.arch.operands.load_store import Cpu, Relocation, numbered, relocated

if TYPE_CHECKING:
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("fetch", "parse_operand", "value_type")

# RISC-V ABIs Specification, "Integer Register Convention": x1 to x31.
SAVED = (
    *("ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *numbered("a", range(8)),
    *(*numbered("s", range(2, 12)), *numbered("t", range(3, 7))),
)
RISCV = Cpu(
    names={
        **{name: name for name in SAVED},
        **dict(zip(numbered("x", range(1, 32)), SAVED, strict=True)),
        "fp": "s0",
    },
    ip="pc",
    zero=frozenset({"zero", "x0"}),
    unsaved=frozenset(
        (
            *(*numbered("f", range(32)), *numbered("ft", range(12)), *numbered("fs", range(12))),
            *(*numbered("fa", range(8)), *numbered("v", range(32))),
        )
    ),
    relocations={"lo": Relocation()},
)
fetch = RISCV.fetch


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    number = integer(body)
    if number is not None:
        return spec.constant(number)
    if body.endswith(")"):
        head, opening, base = body[:-1].rpartition("(")
        if not opening or not base:
            return spec.unknown(f"{excerpt(body)} names no base register")
        return RISCV.memory(spec, relocated(head), base.strip(" "))
    if body in RISCV.names or body in RISCV.zero or body in RISCV.unsaved:
        return RISCV.register(spec, body)
    return RISCV.symbol(spec, body)
