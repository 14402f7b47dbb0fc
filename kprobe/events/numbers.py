"""Parse numbers as the kernel does: kstrtoul() and similar functions (lib/kstrtox.c)."""

from __future__ import annotations

import re

__all__ = ("prefix_number", "signed", "unsigned")

_HEX = re.compile(r"0[xX][0-9a-fA-F]+", re.ASCII)
_OCTAL = re.compile(r"0[0-7]*", re.ASCII)
_DECIMAL = re.compile(r"[1-9][0-9]*", re.ASCII)
_WORD = 64  # bits of a long; definitions for 32-bit kernels are not treated differently


def unsigned(text: str, *, base: int = 0, bits: int = _WORD) -> int | None:
    """Parse an unsigned number as kstrtoul() does; None if it is invalid or too large.

    Args:
        text: decimal, 0x… or octal (leading 0), after at most one ``+``.
        base: 10 for decimal only; 0 for all three.
        bits: size of the number.
    """
    digits = text.removeprefix("+")
    if base == 10:
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 30 else None
    else:
        number, rest = prefix_number(digits)
        if rest or not digits or len(digits) > 70:
            number = None
    return number if number is not None and number < 1 << bits else None


def signed(text: str) -> int | None:
    """Parse a number with an optional sign as kstrtol() does; None if invalid or too large."""
    number = unsigned(text.removeprefix("-") if text.startswith("-") else text)
    if number is None or text.startswith("-+"):
        return None
    if text.startswith("-"):
        return -number if number <= 1 << (_WORD - 1) else None
    return number if number < 1 << (_WORD - 1) else None


def prefix_number(text: str) -> tuple[int | None, str]:
    """Return the number at the start of a text (or None), and the rest, as simple_strtoul()."""
    for pattern, base in ((_HEX, 16), (_OCTAL, 8), (_DECIMAL, 10)):
        if match := pattern.match(text):
            return int(match[0], base), text[match.end() :]
    return None, text
