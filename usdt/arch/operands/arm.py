"""Operands of 32-bit ARM, both instruction sets, as gcc and clang print them.

    #5  #-1  #2.5e+0  #-Inf  5             constants
    #sym  #.LANCHOR1+300  sv+8             the address of a symbol
    r0  ip  fp  sp  lr                     registers
    s0  d8  q1                             registers that struct pt_regs does not have
    [r0]  [fp, #-12]  [r2, r0, lsl #2]     memory

The address of a Thumb function has its lowest bit set, as in symbol tables.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.arch.operands.grammar import LinearAddress, excerpt, integer, parse_linear, value_type
from usdt.arch.operands.load_store import Cpu, numbered

if TYPE_CHECKING:
    from usdt.arch.operands.grammar import ArgSpec, Operand

__all__ = ("fetch", "parse_operand", "value_type")

ALIASES = {"sb": "r9", "sl": "r10", "fp": "r11", "ip": "r12", "r13": "sp", "r14": "lr", "r15": "pc"}
# Procedure Call Standard for the Arm Architecture, table 2.
ARM = Cpu(
    names={
        **{name: name for name in (*numbered("r", range(13)), "sp", "lr", "pc")},
        **ALIASES,
        **dict(zip(numbered("a", range(1, 5)), numbered("r", range(4)), strict=True)),
        **dict(zip(numbered("v", range(1, 9)), numbered("r", range(4, 12)), strict=True)),
    },
    ip="pc",
    unsaved=frozenset(
        (
            *(*numbered("s", range(32)), *numbered("d", range(32)), *numbered("q", range(16))),
            *(*numbered("wr", range(16)), *numbered("wcgr", range(4)), *numbered("f", range(8))),
        )
    ),
)
fetch = ARM.fetch

MAX_SHIFT = 31
FLOATS = {4: "<f", 8: "<d"}
# gcc writes a number with this many digits or more only if it has truncated the rest. They are
# enough for any float, but too few for a double.
ROUNDED_DIGITS = 11
DECIMAL = frozenset("0123456789.eE+-")
# How gcc's real_to_decimal() writes values that are not numbers.
NO_NUMBERS = {"Inf": "inf", "QNaN": "nan", "SNaN": "nan"}
SUBTRACTED = "a subtracted index is not supported"


def parse_operand(spec: ArgSpec) -> Operand:
    """Parse the text after the size; see :class:`usdt.arch.operands.Arch`."""
    body = spec.body
    if body.startswith("["):
        return memory(spec)
    text = body.removeprefix("#")
    number = integer(text)
    if number is not None:
        return spec.constant(number)
    if body.isalnum() and (body in ARM.names or body in ARM.unsaved):
        return ARM.register(spec, body)
    bits = decimal(spec, text)
    if bits is None:
        return ARM.symbol(spec, text)
    digits = sum(map(str.isdigit, text.partition("e")[0]))
    exact = spec.size == 4 or digits < ROUNDED_DIGITS
    return spec.constant(bits, None if exact else f"the compiler wrote a rounded number, {text}")


def decimal(spec: ArgSpec, text: str) -> int | None:
    """Return the bits of a floating-point constant; None for any other text."""
    layout = FLOATS.get(spec.size) if spec.type == "float" else None
    sign, name = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    text = sign + NO_NUMBERS.get(name, name)
    if layout is None or len(text) > 64 or not (name in NO_NUMBERS or DECIMAL.issuperset(text)):
        return None
    try:
        packed = struct.pack(layout, float(text))
    except (ValueError, OverflowError):
        return None
    return int.from_bytes(packed, "little")


def memory(spec: ArgSpec) -> Operand:
    """Parse ``[base]``, ``[base, #offset]``, ``[base, index]``, ``[base, index, lsl #n]``."""
    if not spec.body.endswith("]"):
        return spec.unknown(f"{excerpt(spec.body)} is not an address, or changes its base register")
    base, *rest = [part.strip(" ") for part in spec.body[1:-1].split(",")]
    error = "its address is relative to the instruction" if base in ("pc", "r15") else None
    if not rest:
        return ARM.memory(spec, LinearAddress(), base, error=error)
    index = rest[0].removeprefix("-").removeprefix("+")
    if index in ARM.names:
        error = error or (SUBTRACTED if rest[0].startswith("-") else None)
        return indexed(spec, base, index, rest[1:], error)
    if len(rest) > 1:
        return spec.unknown(f"{excerpt(spec.body)} has too many parts")
    return ARM.memory(spec, parse_linear(rest[0].removeprefix("#")), base, error=error)


def indexed(spec: ArgSpec, base: str, index: str, change: list[str], error: str | None) -> Operand:
    """Parse how an index is shifted."""
    if not change:
        return ARM.memory(spec, LinearAddress(), base, index, error=error)
    kind, _, amount = change[0].partition(" ")
    shift = integer(amount.strip(" ").removeprefix("#"))
    known = kind in ("lsl", "lsr", "asr", "ror") and shift is not None
    if len(change) > 1 or not known or shift is None or not 0 <= shift <= MAX_SHIFT:
        return spec.unknown(f"{excerpt(spec.body)}: {excerpt(', '.join(change))} is not a shift")
    if kind != "lsl" and shift:
        return ARM.memory(
            spec, LinearAddress(), base, index, error=f"an index shifted by {kind} is not supported"
        )
    return ARM.memory(spec, LinearAddress(), base, index, scale=1 << shift, error=error)
