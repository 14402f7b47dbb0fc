"""Values that were cut when they were recorded, as Python objects."""

from __future__ import annotations

from typing import Any

__all__ = ("TruncatedList", "TruncatedStr")


class TruncatedStr(str):
    """A string of which only the beginning was recorded."""

    __slots__ = ()


class TruncatedList(list[Any]):
    """A list of which only the first elements were recorded."""
