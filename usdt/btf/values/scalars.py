"""Format numbers as C's printf does, enumerators and characters."""

from __future__ import annotations

import json
import math
import os
import struct
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from usdt.base.frozen import frozen
from usdt.btf.format import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.btf.reader import Btf
    from usdt.btf.types import Enum

    ByteOrder: TypeAlias = Literal["little", "big"]

__all__ = (
    "EnumTable",
    "Scalar",
    "byte_order",
    "character_texts",
    "double_text",
    "escaped_string",
    "flags_text",
    "float_text",
    "libbpf_enum_table",
    "literal",
    "sign_extended",
    "struct_mark",
    "substituted",
    "wide_text",
)

_FORMATS = {"little": {4: "<f", 8: "<d"}, "big": {4: ">f", 8: ">d"}}
_PRINTABLE = range(0x20, 0x7F)


@frozen
class Scalar:
    """How generated code reads and shows numbers of a type.

    Attributes:
        code: ``struct`` format of one number.
        text: replacement field of an f-string, for a variable ``@v`` at offset ``@q``; "" if
            such numbers cannot be shown.
        nonzero: condition on ``@v`` that is true unless the number is 0.
    """

    code: str
    text: str
    nonzero: str


def byte_order(btf: Btf) -> ByteOrder:
    """Return the data's byte order as :meth:`int.from_bytes` takes it."""
    return "little" if btf.order == "little" else "big"


def struct_mark(btf: Btf) -> str:
    """Return the data's byte order as :mod:`struct` writes it."""
    return "<" if btf.order == "little" else ">"


def sign_extended(value: int, bits: int) -> int:
    """Return the low ``bits`` bits of a number as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def wide_text(raw: bytes, order: ByteOrder) -> str:
    """Return bytes as one hexadecimal number."""
    return f"{int.from_bytes(raw, order):#x}"


def double_text(value: float) -> str:
    """Return a number as C's ``%f``: unlike Python's, it shows the sign of a NaN."""
    if value != value:  # noqa: PLR0124 - a NaN
        return "-nan" if math.copysign(1, value) < 0 else "nan"
    return f"{value:f}"


def float_text(raw: bytes, order: ByteOrder) -> str:
    """Return 4 or 8 bytes as ``%f``, 16 bytes as ``%Lf`` of this CPU's ``long double``."""
    layout = _FORMATS[order].get(len(raw))
    if layout is not None:
        return double_text(struct.unpack(layout, raw)[0])
    number = int.from_bytes(raw, order)
    if os.uname().machine in ("x86_64", "i386", "i486", "i586", "i686"):
        return _extended_text(number & (1 << 80) - 1, 64)
    fraction, exponent = number & (1 << 112) - 1, number >> 112 & 0x7FFF
    implicit = 1 << 112 if exponent else 0
    return _extended_text((number >> 112) << 113 | implicit | fraction, 113)


def _extended_text(number: int, width: int) -> str:
    # The number has a sign, 15 bits of exponent and `width` bits of mantissa with an integer bit.
    mantissa = number & (1 << width) - 1
    exponent = number >> width & 0x7FFF
    sign = "-" if number >> (width + 15) & 1 else ""
    normal = mantissa >> (width - 1)
    if exponent == 0x7FFF and normal:
        return sign + ("nan" if mantissa & (1 << (width - 1)) - 1 else "inf")
    if exponent and not normal:
        return sign + "nan"  # x87 has no such number
    value = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - 16383 - (width - 1))
    whole = round(value * 10**6)
    return f"{sign}{whole // 10**6}.{whole % 10**6:06d}"


class EnumTable(dict[int, Any]):
    """Value → enumerator: of two names for one value, the first.

    Args:
        found: the enumeration.
        other: returns what is shown of a value without a name.
        quoted: whether names are JSON strings, with quotes.
    """

    def __init__(self, found: Enum, other: Callable[[int], Any], *, quoted: bool = False) -> None:
        super().__init__()
        self._other = other
        for one in found.values:
            self.setdefault(one.value, json.dumps(one.name) if quoted else one.name)

    def __missing__(self, value: int) -> Any:
        return self._other(value)


def libbpf_enum_table(found: Enum) -> EnumTable:
    """Return the table that shows values without a name as libbpf prints them.

    Enumerators of an unsigned 32-bit enumeration with the highest bit set match nothing: they come
    from BTF that did not record the sign of enumerations.
    """
    wide = found.kind == Kind.ENUM64
    suffix = ("LL" if found.signed else "ULL") if wide else ""
    table = EnumTable(found, lambda value: f"{value}{suffix}")
    if not wide and not found.signed:
        for value in [value for value in table if value >= 1 << 31]:
            del table[value]
    return table


def flags_text(flags: dict[int, str], value: int) -> str:
    """Return the names of the bits of a value joined by ``|``, the other bits as a number."""
    names = [name for bit, name in flags.items() if value & bit]
    rest = value & ~sum(bit for bit in flags if value & bit)
    return "|".join([*names, f"{rest:#x}"] if rest else names)


def character_texts(*, signed: bool) -> list[str]:
    """Return byte → ``'c'`` if it is printable in the C locale, otherwise its number."""
    texts = [str(sign_extended(byte, 8) if signed else byte) for byte in range(256)]
    for byte in _PRINTABLE:
        texts[byte] = f"'{chr(byte)}'"
    return texts


def escaped_string(raw: bytes) -> str:
    r"""Return bytes in double quotes; ``\xNN`` for bytes that are not printable; quotes stay."""
    return '"' + "".join(chr(c) if c in _PRINTABLE else f"\\x{c:02x}" for c in raw) + '"'


def literal(text: str) -> str:
    """Return the source of a text inside a double-quoted f-string."""
    return json.dumps(text)[1:-1].replace("{", "{{").replace("}", "}}")


def substituted(text: str, var: str, position: str) -> str:
    """Return the text or condition of a :class:`Scalar` for a variable and an offset."""
    return text.replace("@v", var).replace("@q", position)
