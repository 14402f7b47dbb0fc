"""Operands of MIPS, 32 and 64 bits, both byte orders, as gcc and clang print them.

12  -1                       constants
$4  $sp  $fp                 registers
$f0  $w1                     registers that struct pt_regs does not have
8($sp)  ($4)                 memory
%got_ofst(sv)($3)            the low part of a symbol's address
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.operands.grammar import excerpt, integer, value_type
from usdt.arch.operands.load_store import Cpu, Relocation, numbered, relocated, signed_bits

if TYPE_CHECKING:
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("fetch", "parse_operand", "value_type")

# Names with the same meaning in all ABIs. (a4 to a7 of one ABI are t0 to t3 of another.)
NAMED = {
    **dict(zip(("at", "v0", "v1", "a0", "a1", "a2", "a3"), range(1, 8), strict=True)),
    **dict(zip(numbered("s", range(8)), range(16, 24), strict=True)),
    **dict(zip(("t8", "t9", "k0", "k1", "gp", "sp", "fp", "ra"), range(24, 32), strict=True)),
    "s8": 30,
}
MIPS = Cpu(
    names={
        **{f"r{n}": f"${n}" for n in range(1, 32)},
        **{name: f"${n}" for name, n in NAMED.items()},
        **{name: name for name in ("hi", "lo")},
    },
    ip="epc",
    zero=frozenset({"r0", "zero"}),
    unsaved=frozenset((*numbered("f", range(32)), *numbered("w", range(32)))),
    relocations={
        # The page address comes from the GOT, where the loader has stored its run-time value.
        "got_ofst": Relocation(signed_bits(16)),
        "lo": Relocation(signed_bits(16), fixed=True),
        "gp_rel": Relocation(signed_bits(16), origin="_gp"),
    },
)
fetch = MIPS.fetch


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    number = integer(body)
    if number is not None:
        return spec.constant(number)
    if body.startswith("$"):
        return MIPS.register(spec, name_of(body))
    if body.endswith(")"):
        head, opening, base = body[:-1].rpartition("(")
        if not opening or not base.startswith("$"):
            return spec.unknown(f"{excerpt(body)} names no base register")
        return MIPS.memory(spec, relocated(head), name_of(base))
    return MIPS.symbol(spec, body)


def name_of(text: str) -> str:
    """Return the register that ``$4`` or ``$sp`` means: r4, sp."""
    name = text[1:]
    return f"r{name}" if name.isascii() and name.isdigit() else name
