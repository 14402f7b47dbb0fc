"""printf() of programs: a format and values → text, as C and bpftrace do it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from usdt.engine.programs.check.formats import Conversion, conversions
from usdt.engine.programs.output.values import escaped, shown
from usdt.engine.programs.types import IntegerType, StringType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.programs.output.values import Symbols
    from usdt.engine.programs.types import Type

__all__ = ("Formatter",)

_BITS = {"hh": 8, "h": 16, "": 32, "l": 64, "ll": 64, "j": 64, "z": 64, "t": 64}


class Formatter:
    """printf() of one format.

    Args:
        text: the format.
        types: the types of its values, which fit it.
        symbols: the names of addresses and the like.
    """

    def __init__(self, text: str, types: Sequence[Type], symbols: Symbols) -> None:
        *wanted, last = conversions(text)
        parts = []
        self._changes: list[tuple[int, Callable[[Any], str | int]]] = []
        for index, (conversion, kind) in enumerate(zip(wanted, types, strict=True)):
            parts.append(conversion.before.replace("%", "%%"))
            if _is_pythons(conversion, kind):
                letter = "s" if conversion.letter == "s" else "d"
                parts.append(f"%{conversion.flags}{conversion.width}{letter}")
                if isinstance(kind, IntegerType) and (cut := _cut(conversion, kind)) is not None:
                    self._changes.append((index, cut))
            else:
                change = functools.partial(_converted, conversion, kind, symbols=symbols)
                parts.append("%s")
                self._changes.append((index, change))
        self._template = "".join(parts) + last.before.replace("%", "%%")

    def __call__(self, values: Sequence[Any]) -> str:
        """Return the text of values."""
        if self._changes:
            values = [*values]
            for index, change in self._changes:
                values[index] = change(values[index])
        return self._template % tuple(values)


def _cut(conversion: Conversion, kind: IntegerType) -> Callable[[int], int] | None:
    # What makes a number one of the bits of a conversion; None where all numbers of a type are.
    bits = _BITS[conversion.size]
    if conversion.letter == "u":
        return None if kind.size * 8 <= bits else (lambda value: value & (1 << bits) - 1)
    if kind.size * 8 < bits or (kind.signed and kind.size * 8 == bits):
        return None
    half = 1 << bits - 1
    whole = (1 << bits) - 1
    return lambda value: (value + half & whole) - half


def _is_pythons(conversion: Conversion, kind: Type) -> bool:
    # Whether Python's own formatting does the same; it is ten times as fast.
    if conversion.precision is not None or conversion.flags not in ("", "-"):
        return False
    if conversion.letter == "s":
        return isinstance(kind, StringType)
    if not isinstance(kind, IntegerType) or conversion.size in ("h", "hh"):
        return False
    if conversion.letter in ("d", "i"):
        return True
    return conversion.letter == "u" and not kind.signed


def _converted(conversion: Conversion, kind: Type, value: Any, symbols: Symbols) -> str:
    letter = conversion.letter
    if letter in ("r", "rx", "rh"):
        if letter == "r":
            made = escaped(value)
        elif letter == "rh":
            made = " ".join(f"{byte:02x}" for byte in value)
        else:
            made = "".join(f"\\x{byte:02x}" for byte in value)
        return _padded(made, conversion)
    if letter == "s":
        made = shown(kind, value, symbols)
        if conversion.precision is not None:
            made = made[: int(conversion.precision or 0)]
        return _padded(made, conversion)
    if letter == "gr":
        return _padded(symbols.allocation_flags(int(value)), conversion)
    return _number(conversion, int(value))


def _number(conversion: Conversion, value: int) -> str:
    letter = conversion.letter
    if letter == "c":
        return _padded(chr(value & 0xFF), conversion)
    if letter == "p":
        return _padded(hex(value & (1 << 64) - 1), conversion)
    size = conversion.size
    bits = _BITS[size]  # without a size an int: C cuts the number to it, and so does bpftrace
    if letter in "di":
        value &= (1 << bits) - 1
        value -= (1 << bits) if value >> (bits - 1) else 0
    else:
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
