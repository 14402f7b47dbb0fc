"""Text of several lines on its way to a terminal."""

from __future__ import annotations

import re

from usdt.base.text import printable

__all__ = ("escaped_lines",)

_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")


def escaped_lines(text: str) -> str:
    """Text that does a terminal no harm; tabs and line ends stay."""
    if not _UNUSUAL.search(text):
        return text
    lines = ("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return "\n".join(lines)
