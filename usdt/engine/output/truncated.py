"""Values that were cut when they were recorded, as Python objects."""

from __future__ import annotations

from typing import Any

__all__ = ("TruncatedInt", "TruncatedList", "TruncatedStr")


class TruncatedInt(int):
    """A number of which only the low part is known."""

    __slots__ = ()


class TruncatedStr(str):
    """A string of which only the beginning was recorded."""

    __slots__ = ()


class TruncatedList(list[Any]):
    """A list of which only the first elements were recorded."""
