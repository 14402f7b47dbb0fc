"""Where a member is, where that is written as an expression: what needs no running program."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usdt.dwarf.units.forms import Encoding

__all__ = ("offset_of",)

_PLUS_UCONST = 0x23
_MOST_BYTES = 256
_MOST_STEPS = 64


def offset_of(expression: bytes, encoding: Encoding) -> int | None:
    """The offset that an expression adds to an address; None where it needs memory or registers."""
    if len(expression) > _MOST_BYTES:
        return None
    if expression[:1] == bytes((_PLUS_UCONST,)) and len(expression) == 2 and expression[1] < 0x80:
        return expression[1]  # as gcc wrote it for DWARF 2: no need for a library
    return _computed(expression, encoding)


def _computed(expression: bytes, encoding: Encoding) -> int | None:
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - seldom, and costs 50 ms
    from elftools.dwarf.dwarf_expr import DWARFExprParser  # noqa: PLC0415
    from elftools.dwarf.structs import DWARFStructs  # noqa: PLC0415

    structs = DWARFStructs(
        little_endian=encoding.byteorder == "little",
        dwarf_format=8 * encoding.offset_size,
        address_size=encoding.address_size,
        dwarf_version=encoding.version,
    )
    try:
        steps = DWARFExprParser(structs).parse_expr(expression)
    except (ELFError, KeyError, IndexError, TypeError, ValueError):
        return None
    stack = [0]  # the address of the whole
    for step in steps[:_MOST_STEPS]:
        name = step.op_name
        if name == "DW_OP_plus_uconst":
            stack[-1] += step.args[0]
        elif name.startswith(("DW_OP_const", "DW_OP_lit")):
            stack.append(step.args[0] if step.args else step.op - 0x30)
        elif name in ("DW_OP_plus", "DW_OP_minus") and len(stack) > 1:
            value = stack.pop()
            stack[-1] += value if name == "DW_OP_plus" else -value
        else:
            return None
    return stack[-1] if len(stack) == 1 and stack[0] >= 0 else None
