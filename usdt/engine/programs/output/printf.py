"""printf() of programs: a format and values → text, as C and bpftrace do it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from usdt.engine.programs.check.formats import Conversion, conversions
from usdt.engine.programs.output.values import escaped, shown
from usdt.engine.programs.types import IntegerType, ShownAs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.programs.output.values import Symbols
    from usdt.engine.programs.types import Type

__all__ = ("format_values",)

_BITS = {"hh": 8, "h": 16, "": 32, "l": 64, "ll": 64, "j": 64, "z": 64, "t": 64}


def format_values(text: str, types: Sequence[Type], values: Sequence[Any], symbols: Symbols) -> str:
    """Return the text of a format whose values fit it."""
    *wanted, last = _parsed(text)
    parts = []
    for conversion, kind, value in zip(wanted, types, values, strict=True):
        parts += [conversion.before, _converted(conversion, kind, value, symbols)]
    return "".join((*parts, last.before))


@functools.cache
def _parsed(text: str) -> list[Conversion]:
    return conversions(text)


def _converted(conversion: Conversion, kind: Type, value: Any, symbols: Symbols) -> str:
    letter = conversion.letter
    if letter in ("r", "rx", "rh"):
        if letter == "r":
            made = escaped(value)
        elif letter == "rh":
            made = "".join(f"{byte:02x}" for byte in value)
        else:
            made = "".join(f"\\x{byte:02x}" for byte in value)
        return _padded(made, conversion)
    if letter == "s":
        made = shown(kind, value, symbols)
        if conversion.precision is not None:
            made = made[: int(conversion.precision or 0)]
        return _padded(made, conversion)
    return _number(conversion, kind, int(value))


def _number(conversion: Conversion, kind: Type, value: int) -> str:
    letter = conversion.letter
    if letter == "c":
        return _padded(chr(value & 0xFF), conversion)
    if letter == "p":
        return _padded(hex(value & (1 << 64) - 1), conversion)
    size = conversion.size
    # Without a size the value has that of its type, where C would cut it to an int.
    bits = _BITS[size] if size in ("hh", "h") else 64
    if letter in "di":
        value &= (1 << bits) - 1
        value -= (1 << bits) if value >> (bits - 1) else 0
    else:
        narrow = isinstance(kind, IntegerType) and kind.size < 8 and kind.shown is ShownAs.NUMBER
        if value < 0 and narrow and isinstance(kind, IntegerType):
            bits = min(bits, kind.size * 8)
        value &= (1 << bits) - 1
    flags = conversion.flags
    digits = {"x": f"{abs(value):x}", "X": f"{abs(value):X}", "o": f"{abs(value):o}"}.get(
        letter, str(abs(value))
    )
    if conversion.precision is not None:
        digits = digits.rjust(int(conversion.precision or 0), "0")
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    if letter not in "di":
        sign = ""
    if "#" in flags and value:
        sign += {"x": "0x", "X": "0X", "o": "0"}.get(letter, "")
    width = int(conversion.width or 0)
    if "0" in flags and "-" not in flags and conversion.precision is None:
        return sign + digits.rjust(width - len(sign), "0")
    return _padded(sign + digits, conversion)


def _padded(text: str, conversion: Conversion) -> str:
    width = int(conversion.width or 0)
    return text.ljust(width) if "-" in conversion.flags else text.rjust(width)
