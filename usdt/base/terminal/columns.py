"""Columns that text takes on a terminal, and text cut to them.

East Asian characters take two columns, combining marks none. Escape sequences of colours take none,
and stay when a text is cut.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("columns", "cut", "fitted", "padded")

_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_CUT = "…"


def columns(text: str) -> int:
    """Return the number of columns that a text takes."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int) -> str:
    """Return a text that takes at most ``width`` columns; one that is cut ends in ``…``."""
    if columns(text) <= width:
        return text
    room = width - len(_CUT)
    kept: list[str] = []
    for part in _COLOUR.split(text):
        if part.startswith("\x1b"):
            kept.append(part)
            continue
        for character in part if room >= 0 else ():
            room -= _width(character)
            if room < 0:
                kept.append(_CUT if width > 0 else "")
                break
            kept.append(character)
    return "".join(kept)


def padded(text: str, width: int) -> str:
    """Return a text of exactly ``width`` columns: cut, or with blanks behind it."""
    taken = columns(text)
    if taken > width:
        text = cut(text, width)
        taken = columns(text)
    return text + " " * (width - taken)


def fitted(widths: Sequence[int], room: int, least: int = 8) -> list[int]:
    """Return the widths of columns that fit together; the widest are narrowed first.

    Args:
        widths: what each column would like to have.
        room: what all have together.
        least: no column is narrowed below this, not even if the room is too small.
    """
    found = [*widths]
    while (excess := sum(found) - room) > 0 and (widest := max(found, default=0)) > least:
        wide = [index for index, width in enumerate(found) if width == widest]
        below = max([least, *(width for width in found if width < widest)])
        for index in wide:
            found[index] = max(below, widest - -(-excess // len(wide)))
    return found


@functools.lru_cache(maxsize=1024)
def _width(character: str) -> int:
    import unicodedata  # noqa: PLC0415 - most texts are ASCII

    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
