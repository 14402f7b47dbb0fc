"""Walks through typed programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.programs import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("parts",)


def parts(*nodes: object) -> Iterator[object]:
    """Yield statements and values, and all that is in them."""
    ahead = [*nodes]
    while ahead:
        node = ahead.pop()
        if isinstance(node, tuple):
            ahead += node
            continue
        yield node
        if type(node).__module__ == typed.__name__:
            ahead += [getattr(node, name) for name in type(node).__match_args__]  # type: ignore[attr-defined]
