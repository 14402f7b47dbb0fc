"""Operands of s390x (and of 31-bit s390), as gcc and clang print them.

    12  -1                       constants
    %r2                          general registers
    %f0  %v24  %a1               registers that struct pt_regs does not have
    168(%r15)  (%r2)             memory: displacement(base)
    0(%r5,%r4)                   displacement(index,base)

Register 0 in an address means the number 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.operands.grammar import excerpt, integer, parse_linear, value_type
from usdt.arch.operands.load_store import Cpu, numbered

if TYPE_CHECKING:
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("fetch", "parse_operand", "value_type")

# ELF ABI, s390x Supplement 1.6, table 1.2. r12 and r13 have no other names.
S390 = Cpu(
    names={name: name for name in numbered("r", range(16))},
    ip="pswa",
    base_zero=frozenset({"r0"}),
    unsaved=frozenset(
        (
            *(*numbered("f", range(16)), *numbered("v", range(32))),
            *(*numbered("a", range(16)), *numbered("c", range(16))),
        )
    ),
)
fetch = S390.fetch


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    number = integer(body)
    if number is not None:
        return spec.constant(number)
    if body.startswith("%"):
        return S390.register(spec, body[1:])
    opening = body.rfind("(")
    if opening < 0 or not body.endswith(")"):
        return spec.unknown(
            f"{excerpt(body)} is neither a number, a register nor an address in registers"
        )
    registers = [name.strip(" ") for name in body[opening + 1 : -1].split(",")]
    if len(registers) > 2 or any(not name.startswith("%") for name in registers):
        return spec.unknown(f"{excerpt(body)} has no registers that {spec.machine} adds")
    *index, base = [name[1:] for name in registers]
    total = parse_linear(body[:opening] or "0")
    return S390.memory(spec, total, base, index[0] if index else None)
