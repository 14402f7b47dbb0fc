"""Operands of arm64, as gcc and clang print them (with ``#`` before numbers or without).

12  -1  #5                        constants
x0  w0  sp  xzr                   registers
v0  d8  s1                        registers that struct pt_regs does not have
[x0]  [sp, 16]  [x0, -8]          memory; the base x31 is sp, as in the instruction's bits
[x1, x3]  [x0, x1, lsl 3]         with an index, [x0, w1, sxtw 2] with one of 32 bits
[x6, #:lo12:sym]                  the low 12 bits of a symbol's address
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.operands.grammar import LinearAddress, excerpt, integer, parse_linear, value_type
from usdt.arch.operands.load_store import Cpu, Relocation, numbered
from usdt.base.frozen import replace

if TYPE_CHECKING:
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("fetch", "parse_operand", "value_type")

WIDE = numbered("x", range(31))
NARROW = numbered("w", range(31))
ARM64 = Cpu(
    names={
        **{name: name for name in WIDE},
        **dict(zip(NARROW, WIDE, strict=True)),
        "fp": "x29",
        "lr": "x30",
        "sp": "sp",
        "wsp": "sp",
    },
    ip="pc",
    zero=frozenset({"xzr", "wzr"}),
    narrow=dict.fromkeys((*NARROW, "wsp"), 4),
    unsaved=frozenset(name for letter in "vqdshbz" for name in numbered(letter, range(32)))
    | frozenset(numbered("p", range(16))),
    relocations={"lo12": Relocation()},
)
fetch = ARM64.fetch

MAX_SHIFT = 4


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    if body.startswith("["):
        return memory(spec)
    number = integer(body.removeprefix("#"))
    if number is not None:
        return spec.constant(number)
    if body.isalnum() and (body in ARM64.names or body in ARM64.zero or body in ARM64.unsaved):
        return ARM64.register(spec, body)
    return ARM64.symbol(spec, body.removeprefix("#"))


def memory(spec: ArgSpec) -> Operand:
    """Parse ``[base]``, ``[base, offset]``, ``[base, index]``, ``[base, index, extension]``."""
    if not spec.body.endswith("]"):
        return spec.unknown(f"{excerpt(spec.body)} is not an address, or changes its base register")
    base, *rest = [part.strip(" ") for part in spec.body[1:-1].split(",")]
    base = "sp" if base == "x31" else base
    if not rest:
        return ARM64.memory(spec, LinearAddress(), base)
    if rest[0] in ARM64.names or rest[0] in ARM64.zero:
        return indexed(spec, base, rest)
    if len(rest) > 1:
        return spec.unknown(f"{excerpt(spec.body)} has too many parts")
    return ARM64.memory(spec, offset(rest[0].removeprefix("#")), base)


def offset(text: str) -> LinearAddress:
    """Parse a number or ``:relocation:symbol``."""
    if not text.startswith(":"):
        return parse_linear(text)
    name, colon, rest = text[1:].partition(":")
    total = parse_linear(rest)
    if not colon or not name or total.error is not None or total.relocation is not None:
        return LinearAddress(error=f"{excerpt(text)}: unknown relocation")
    return replace(total, relocation=name)


def indexed(spec: ArgSpec, base: str, rest: list[str]) -> Operand:
    """Parse an index and its shift or extension, if any."""
    index, *change = rest
    narrow = index in ARM64.narrow
    if not change:
        return ARM64.memory(spec, LinearAddress(), base, index)
    kind, _, amount = change[0].partition(" ")
    shift = integer(amount.strip(" ").removeprefix("#") or "0")
    kinds = ("uxtw", "sxtw") if narrow else ("lsl", "sxtx", "uxtx")
    if len(change) > 1 or kind not in kinds or shift is None or not 0 <= shift <= MAX_SHIFT:
        return spec.unknown(
            f"{excerpt(spec.body)}: {excerpt(', '.join(change))} is not an extension"
        )
    return ARM64.memory(
        spec, LinearAddress(), base, index, scale=1 << shift, extend=kind if narrow else None
    )
