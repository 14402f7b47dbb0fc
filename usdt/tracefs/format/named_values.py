"""Fields whose values have names: the flags and symbols of a ``print fmt``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.tracefs.format.expression import NameTable, format_named, parse_arguments, string_literal

if TYPE_CHECKING:
    from usdt.tracefs.format.fields import EventFormat

__all__ = ("Flags", "Symbols", "named_fields", "split_print_fmt")

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@frozen
class Flags:
    """Bits with names, joined by a separator; other bits are shown in hexadecimal."""

    table: NameTable

    def show(self, value: int) -> str:
        """Format a value, ``O_RDONLY|O_CLOEXEC``."""
        return format_named(self.table, value) or ""


@frozen
class Symbols:
    """Values with names; other values are shown in hexadecimal."""

    table: NameTable

    def show(self, value: int) -> str:
        """Format a value, ``NOT_SPECIFIED``."""
        return format_named(self.table, value) or ""


def named_fields(form: EventFormat) -> dict[str, Flags | Symbols]:
    """Return field → its names, for fields that are formatted by name, perhaps with a cast."""
    found: dict[str, Flags | Symbols] = {}
    _, rest = split_print_fmt(form.print_fmt)
    for call in parse_arguments(rest):
        for named in call.named:
            if named.field is not None and named.names:
                made = Flags(named) if named.kind == "flags" else Symbols(named)
                found.setdefault(named.field, made)
    return found


def split_print_fmt(text: str) -> tuple[str, str]:
    """Split into the format string, of which adjacent literals are joined, and its arguments."""
    head, rest = "", text.lstrip()
    while match := _LITERAL.match(rest):
        head += string_literal(match[0])
        rest = rest[match.end() :].lstrip()
    return head, rest[1:] if rest[:1] == "," else ""
