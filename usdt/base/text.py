"""Text for people: characters that are safe on a terminal, and names that were probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("closest", "encoded", "most_alike", "plural", "printable", "printable_lines")

_MAX_COMPARED = 128  # names; difflib is slow
_SHORT = 8  # letters


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
        known: the names that exist; a hundred thousand take a tenth of a second.
        cutoff: the least similarity, from 0 to 1.
    """
    import difflib  # noqa: PLC0415 - only for a message

    names = list(known)
    if len(names) > _MAX_COMPARED:
        # The similarity is twice the letters in common by the letters of both.
        least, most = len(wanted) * cutoff / (2 - cutoff), len(wanted) * (2 - cutoff) / cutoff
        names = most_alike(wanted, (one for one in names if least <= len(one) <= most))
    return next(iter(difflib.get_close_matches(wanted, names, 1, cutoff)), "")


def most_alike(wanted: str, names: Iterable[str], most: int = _MAX_COMPARED) -> list[str]:
    """Return the ``most`` names with the most pairs of letters in common with ``wanted``.

    Of a short name single letters count as well: "agr0" has no pair in common with "arg0".
    """
    import heapq  # noqa: PLC0415 - only for a message
    from itertools import chain  # noqa: PLC0415
    from operator import add  # noqa: PLC0415

    pairs = set(map(add, wanted, wanted[1:]))
    if len(wanted) < _SHORT:
        parts = pairs.union(wanted)
        shared = ((len(parts.intersection(chain(n, map(add, n, n[1:])))), n) for n in names)
    else:
        shared = ((len(pairs.intersection(map(add, n, n[1:]))), n) for n in names)
    rated = ((count / (len(wanted) + len(name)), name) for count, name in shared if count)
    return [name for _, name in heapq.nlargest(most, rated)]
