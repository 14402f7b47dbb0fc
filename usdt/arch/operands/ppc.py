"""Operands of PowerPC, 32 and 64 bits, both byte orders, as gcc and clang print them.

    i12  i-1                     constants
    9  r9  %r9                   general registers
    0(9)  -8(31)                 memory: displacement(base)
    30,31                        base,index (without scale)
    sv@toc@l(9)                  the low part of a symbol's distance from the TOC

Register 0 as base of an address means the number 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.operands.grammar import LinearAddress, excerpt, integer, parse_linear, value_type
from usdt.arch.operands.load_store import Cpu, Relocation, numbered, signed_bits
from usdt.base.frozen import replace

if TYPE_CHECKING:
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("fetch", "parse_operand", "value_type")

PPC = Cpu(
    names={name: name for name in numbered("r", range(32))} | {"ctr": "ctr", "lr": "link"},
    ip="nip",
    base_zero=frozenset({"0"}),
    unsaved=frozenset(
        (
            *(*numbered("f", range(32)), *numbered("vs", range(64)), *numbered("v", range(32))),
            *numbered("cr", range(8)),
        )
    ),
    relocations={
        "toc@l": Relocation(),
        "l": Relocation(signed_bits(16), fixed=True),
    },
)
fetch = PPC.fetch


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    if body.startswith("i"):
        number = integer(body[1:])
        return (
            spec.unknown(f"{excerpt(body)} is not a number")
            if number is None
            else spec.constant(number)
        )
    if body.endswith(")"):
        head, opening, base = body[:-1].rpartition("(")
        if opening:
            return PPC.memory(spec, displacement(head), base_name(base))
    base, comma, index = body.partition(",")
    if comma:
        return PPC.memory(spec, LinearAddress(), base_name(base), name_of(index.strip(" ")))
    return PPC.register(spec, name_of(body))


def name_of(text: str) -> str:
    """Return a register's name; ``9`` and ``%r9`` are both r9."""
    name = text.removeprefix("%")
    return f"r{name}" if name.isascii() and name.isdigit() else name


def base_name(text: str) -> str:
    """Return a base register's name; "0" for register 0, which means the number 0."""
    name = name_of(text.strip(" "))
    return "0" if name == "r0" else name


def displacement(text: str) -> LinearAddress:
    """Parse ``-8``, ``sv@toc@l`` or ``8+sv@toc@l``."""
    head, at, relocation = text.partition("@")
    total = parse_linear(head or "0")
    if not at or total.error is not None:
        return total
    return replace(total, relocation=relocation)
