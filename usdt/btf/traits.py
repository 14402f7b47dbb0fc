"""What people mean by a type: text, flags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.btf.format import Encoding, Kind
from usdt.btf.types import FunctionProto, Int, Pointer, Void

if TYPE_CHECKING:
    from usdt.btf.reader import Btf
    from usdt.btf.types import Enum, Type

__all__ = ("flag_names", "has_code", "is_char")

_LEAST_FLAGS = 2


def is_char(found: Type) -> bool:
    """Whether elements of a type make a string: ``char``, not any small integer."""
    if not isinstance(found, Int) or found.size != 1:
        return False
    return bool(found.encoding & Encoding.CHAR) or found.name == "char"


def has_code(btf: Btf) -> bool:
    """Whether any pointer's target is a function, or nothing known."""
    for number in btf.ids(Kind.PTR):
        found = btf.type(number)
        if isinstance(found, Pointer):
            target = btf.resolve(found.type_id)
            if isinstance(target, FunctionProto | Void):
                return True
    return False


def flag_names(found: Enum) -> dict[int, str] | None:
    """Bit → enumerator, of an enumeration whose values are made to be joined by ``|``."""
    bits: dict[int, str] = {}
    for one in found.values:
        if one.value > 0 and not one.value & (one.value - 1):
            bits.setdefault(one.value, one.name)
    every = sum(bits)
    others = [one.value for one in found.values if one.value not in bits and one.value]
    if len(bits) <= _LEAST_FLAGS or any(value < 0 or value & ~every for value in others):
        return None
    # 1, 2, 4 and their sums, and not 1, 2, 3, 4, 5 in a row.
    return bits if len(others) < len(bits) else None
