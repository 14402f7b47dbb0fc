"""Whether what is shown needs symbols of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.compiler.record.columns import (
    StackColumn,
    StackCopyColumn,
    StructColumn,
    StructListColumn,
    SymbolColumn,
)
from usdt.engine.language.tree import Call, Name, StackKind, stack_of, walk

if TYPE_CHECKING:
    from usdt.engine.compiler.record.columns import Column
    from usdt.engine.language.tree import ProbeText

__all__ = ("needs_user_symbols", "shows_user_stacks", "wants_user_symbols")


def needs_user_symbols(column: Column, *, structures: bool) -> bool:
    """Return whether a column can be shown only with symbols of processes."""
    match column:
        case StackColumn() | StackCopyColumn():
            return column.kind is not StackKind.KERNEL
        case SymbolColumn():
            return column.kind.stack is StackKind.USER
        case StructColumn():
            return structures and not column.kernel
        case StructListColumn():
            return structures
    return False


def shows_user_stacks(request: ProbeText) -> bool:
    """Return whether a probe's items show stacks of processes."""
    stacks = (stack_of(item.expression) for item in request.items)
    return any(stack is not None and stack[0] is StackKind.USER for stack in stacks)


def wants_user_symbols(request: ProbeText) -> bool:
    """Return whether a probe's items show symbols of processes: ``ustack``, ``usym()``, ``caller``.

    The ``caller`` of a kernel function is none.
    """
    nodes = [node for item in request.items for node in walk(item.expression)]
    return shows_user_stacks(request) or any(
        (isinstance(node, Name) and node.name == "caller" and request.kind == "uprobe")
        or (isinstance(node, Call) and node.function == "usym")
        for node in nodes
    )
