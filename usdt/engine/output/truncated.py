"""Values that were cut when they were recorded, as Python objects, and how text marks them."""

from __future__ import annotations

from typing import Any

__all__ = (
    "TruncatedDict",
    "TruncatedHex",
    "TruncatedInt",
    "TruncatedList",
    "TruncatedStr",
    "mark_of",
)


class TruncatedInt(int):
    """A number of which only the low part is known."""

    __slots__ = ()


class TruncatedDict(dict[str, Any]):
    """A structure of which only the first bytes were recorded."""

    __slots__ = ()


class TruncatedHex(str):
    """A number in hexadecimal of which only the low part is known."""

    __slots__ = ()


class TruncatedStr(str):
    """A string of which only the beginning was recorded."""

    __slots__ = ()


class TruncatedList(list[Any]):
    """A list of which only the first elements were recorded."""


def mark_of(value: object) -> str:
    """Return what follows a number or a string that was cut; "" for every other value."""
    match value:
        case TruncatedInt() | TruncatedHex():
            return " /* low part */"
        case TruncatedStr():
            return "..."
    return ""
