"""Escape multi-line text for a terminal."""

from __future__ import annotations

import re

from usdt.base.text import printable

__all__ = ("escaped_lines",)

_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")


def escaped_lines(text: str) -> str:
    """Escape characters that are unsafe for a terminal; keep tabs and line ends."""
    if not _UNUSUAL.search(text):
        return text
    lines = ("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return "\n".join(lines)
