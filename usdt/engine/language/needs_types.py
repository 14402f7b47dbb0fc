"""Detection of items that need debug information, which is not read for other items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.language.error_numbers import ERROR_NUMBERS
from usdt.engine.language.tree import (
    ALL_ARGUMENTS,
    BUILTINS,
    RESULT_OF_BPFTRACE,
    Cast,
    Member,
    Name,
    names_in,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.language.tree import Item

__all__ = ("needs_members", "needs_types", "untyped_names")


def untyped_names(items: Sequence[Item]) -> list[str]:
    """Return the names in ``items`` that only debug information can explain.

    They are in the order of their first use, each once.
    """
    names = [name for item in items for name in names_in(item.expression)]
    return [
        name
        for name in dict.fromkeys(names)
        if name not in BUILTINS
        and name not in ("return", RESULT_OF_BPFTRACE, ALL_ARGUMENTS)
        and name not in ERROR_NUMBERS
        and not (name.startswith("arg") and name[3:].isdigit())
    ]


def needs_types(items: Sequence[Item]) -> bool:
    """Return True if ``items`` cannot be resolved without debug information or symbols."""
    if untyped_names(items) or needs_members(items):
        return True
    nodes = (node for item in items for node in walk(item.expression))
    return any(isinstance(node, Name) and node.name == ALL_ARGUMENTS for node in nodes)


def needs_members(items: Sequence[Item]) -> bool:
    """Return True if ``items`` have members, or casts to types of the program."""
    return any(
        isinstance(node, Member) or (isinstance(node, Cast) and not node.type.built_in)
        for item in items
        for node in walk(item.expression)
    )
