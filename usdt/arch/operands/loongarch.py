"""Operands of LoongArch, as gcc and clang print them.

12  -1                               constants
$r4  $a0  $sp                        registers
$f0  $fa0  $vr1  $xr1                registers that struct pt_regs does not have
[$r3,16]  $r3,16  [$r4]  16($r3)     memory; in brackets also without sigils, [sp, 16]
[$r4,$r5]  $r4,$r5                   with an index
$r12,%pc_lo12(sv)                    the low 12 bits of a symbol's address
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.operands.grammar import LinearAddress, excerpt, integer, value_type
from usdt.arch.operands.load_store import Cpu, Relocation, numbered, relocated

if TYPE_CHECKING:
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("fetch", "parse_operand", "value_type")

# LoongArch ELF psABI, "Register Convention".
NAMES = (
    *("zero", "ra", "tp", "sp"),
    *(*numbered("a", range(8)), *numbered("t", range(9))),
    *("u0", "fp", *numbered("s", range(9))),
)
LOONGARCH = Cpu(
    names={
        **{name: f"r{n}" for n, name in enumerate(NAMES) if n},
        **{f"r{n}": f"r{n}" for n in range(1, 32)},
        "v0": "r4",
        "v1": "r5",
        "s9": "r22",
    },
    ip="era",
    zero=frozenset({"zero", "r0"}),
    unsaved=frozenset(
        (
            *(*numbered("f", range(32)), *numbered("fa", range(8)), *numbered("ft", range(16))),
            *(*numbered("fs", range(8)), *numbered("vr", range(32)), *numbered("xr", range(32))),
            *numbered("fcc", range(8)),
        )
    ),
    relocations={
        "pc_lo12": Relocation(),
        "abs_lo12": Relocation(),
    },
)
fetch = LOONGARCH.fetch


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    number = integer(body)
    if number is not None:
        return spec.constant(number)
    if body.startswith("[") and body.endswith("]"):
        return address(spec, ",".join(map(with_sigil, body[1:-1].split(","))))
    if body.startswith("$"):
        return address(spec, body) if "," in body else LOONGARCH.register(spec, body[1:])
    if body.endswith(")"):
        head, opening, base = body[:-1].rpartition("(")
        if not opening or not base.startswith("$"):
            return spec.unknown(f"{excerpt(body)} names no base register")
        return LOONGARCH.memory(spec, relocated(head), base[1:])
    return LOONGARCH.symbol(spec, body)


def with_sigil(part: str) -> str:
    """Return a part of an address in brackets; a register's name gets its ``$``."""
    name = part.strip(" ")
    return f"${name}" if name in LOONGARCH.names or name in LOONGARCH.zero else part


def address(spec: ArgSpec, text: str) -> Operand:
    """Parse ``$base``, ``$base,offset`` or ``$base,$index``."""
    base, *rest = [part.strip(" ") for part in text.split(",")]
    if not base.startswith("$") or len(rest) > 1:
        return spec.unknown(f"{excerpt(text)} is not a register with an offset or index")
    if rest and rest[0].startswith("$"):
        return LOONGARCH.memory(spec, LinearAddress(), base[1:], rest[0][1:])
    return LOONGARCH.memory(spec, relocated(rest[0]) if rest else LinearAddress(), base[1:])
