"""Records as text: the kernel's ``print fmt`` applied to their values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from usdt.tracefs.format.expression import parse_arguments
from usdt.tracefs.format.named_values import split_print_fmt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from usdt.tracefs.format.fields import EventFormat

__all__ = ("Printer",)

_DIRECTIVE = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d{1,9})?(?:\.(?P<precision>\*|\d{1,9}))?"
    r"(?P<length>hh|h|ll|l|L|z|t|j|q)?(?P<conversion>[diouxXcspn%])(?P<suffix>[A-Za-z0-9]*)"
)
_SUFFIXES = re.compile(r"(?:S|s|B|K|x|I[46]|i[46]|I[46]c|d|D|h|U[bBlL]?|V|a|e|M|m|MF|b|bl)")
_UNKNOWN = "?"  # an argument whose value is unknown
_SIZES = {"hh": 8, "h": 16, "": 32, "l": 64, "ll": 64, "L": 64, "q": 64, "z": 64, "t": 64, "j": 64}
_MAX_WIDTH = 4096


class Printer:
    """Formats records of one event.

    Args:
        form: the event's format.
        symbol: kernel address → name, for ``%pS`` and ``%ps``; None: show addresses in hexadecimal.
    """

    def __init__(self, form: EventFormat, symbol: Callable[[int], str] | None = None) -> None:
        self._format, rest = split_print_fmt(form.print_fmt)
        self._calls = parse_arguments(rest)
        self._symbol = symbol

    def text(self, values: Mapping[str, Any]) -> str:
        """Return a record's line, without the header that every event has."""
        arguments = iter([call.evaluate(values) for call in self._calls])

        def directive(match: re.Match[str]) -> str:
            if match["conversion"] == "%":
                return "%" + match["suffix"]
            return self._convert(match, arguments)

        return _DIRECTIVE.sub(directive, self._format)

    def _convert(self, match: re.Match[str], arguments: Any) -> str:
        flags = match["flags"]
        width = next(arguments, 0) if match["width"] == "*" else int(match["width"] or 0)
        precision: Any = match["precision"]
        if precision is not None:
            precision = next(arguments, 0) if precision == "*" else int(precision)
        value = next(arguments, None)
        suffix, tail = "", match["suffix"]
        if match["conversion"] == "p" and (found := _SUFFIXES.match(tail)):
            suffix, tail = found[0], tail[found.end() :]
        if value is None or not isinstance(width, int) or abs(width) > _MAX_WIDTH:
            return _UNKNOWN + tail
        text = self._body(match, value, precision, suffix)
        if width < 0:
            flags, width = flags + "-", -width
        return _padded(text, flags, width, precision is None) + tail

    def _body(self, match: re.Match[str], value: Any, precision: Any, suffix: str) -> str:
        conversion = match["conversion"]
        if conversion == "s":
            text = value if isinstance(value, str) else _UNKNOWN
            return text[:precision] if isinstance(precision, int) and precision >= 0 else text
        if not isinstance(value, int):
            return value if isinstance(value, str) else _UNKNOWN
        if conversion == "c":
            return chr(value & 0xFF)
        if conversion == "p":
            if suffix in ("S", "s", "B") and self._symbol is not None:
                return self._symbol(value)
            return f"{value & (1 << 64) - 1:016x}" if suffix in ("", "K") else hex(value)
        return _integer(match, value, precision)


def _integer(match: re.Match[str], value: int, precision: Any) -> str:
    conversion, flags = match["conversion"], match["flags"]
    bits = _SIZES[match["length"] or ""]
    value &= (1 << bits) - 1
    sign = ""
    if conversion in "di":
        if value >> (bits - 1):
            value, sign = (1 << bits) - value, "-"
        elif "+" in flags:
            sign = "+"
        elif " " in flags:
            sign = " "
    digits = {"o": f"{value:o}", "x": f"{value:x}", "X": f"{value:X}"}.get(conversion, str(value))
    if isinstance(precision, int) and 0 <= precision <= _MAX_WIDTH:
        digits = digits.rjust(precision, "0")
    if "#" in flags and conversion in "xX" and value:
        sign = "0" + conversion
    return sign + digits


def _padded(text: str, flags: str, width: int, plain: bool) -> str:  # noqa: FBT001
    if len(text) >= width:
        return text
    if "-" in flags:
        return text.ljust(width)
    if "0" in flags and plain:
        head = re.match(r"[-+ ]?(?:0[xX])?", text)
        cut = head.end() if head else 0
        return text[:cut] + text[cut:].rjust(width - cut, "0")
    return text.rjust(width)
