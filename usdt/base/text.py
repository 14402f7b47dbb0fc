"""Text for people: characters that are safe on a terminal, and names that were probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("closest", "encoded", "plural", "printable", "printable_lines")

_MAX_NAMES = 5000  # that are compared; difflib is slow


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 event``, ``2 events``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def printable(text: str) -> str:
    r"""Return ``text`` safe for one line of a terminal.

    Characters that are not printable are escaped as in Python: ``\n``, ``\x1b``, ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def printable_lines(text: str) -> str:
    """Return ``text`` safe for a terminal; keep tabs and line ends."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    lines = ("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return "\n".join(lines)


def encoded(name: str) -> bytes:
    """Return a name as bytes of a file, also a name that no file can have (a lone surrogate)."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")


def closest(wanted: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name among ``known`` that is most like ``wanted``, or "" if none is.

    Args:
        wanted: what was asked for, perhaps misspelt.
        known: the names that exist, the most likely first: only the first 5000 are compared.
        cutoff: the least similarity, from 0 to 1.
    """
    import difflib  # noqa: PLC0415 - only for a message
    from itertools import islice  # noqa: PLC0415

    return next(iter(difflib.get_close_matches(wanted, islice(known, _MAX_NAMES), 1, cutoff)), "")
