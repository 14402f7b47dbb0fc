"""Node sets: ``web[1-400],db1,@group``, read and folded by ClusterShell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from usdt.base.errors import TargetError, TracingError
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("clustershell", "expanded", "folded")

# What may be in a name: it must be an option of no program, and mean nothing to a shell.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@/-]{0,252}")
# What may be in a set: names, ranges, groups and operators. ClusterShell gives the names of groups
# to shell commands, so that nothing else may reach it.
_SET = re.compile(r"[A-Za-z0-9_.:@/,\[\]*&!^ -]{1,100000}")
_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_MOST = 100_000  # machines


def clustershell(module: str) -> Any:
    """Import a module of ClusterShell.

    Raises:
        TracingError: ClusterShell is not installed.
    """
    from importlib import import_module  # noqa: PLC0415 - only for a fleet

    try:
        return import_module(f"ClusterShell.{module}")
    except ImportError as err:
        raise TracingError(
            "usdt fleet needs ClusterShell: pip install 'usdt-toolkit[fleet]'"
        ) from err


def expanded(text: str) -> list[str]:
    """Return the names of a node set, in its order.

    Raises:
        TargetError: it cannot be read, is empty, or a name could be taken for something else.
    """
    if not _SET.fullmatch(text) or ("@" in text and "/" in text):
        raise TargetError(
            f"--nodes {printable(text)[:200]}: not a node set; write web[1-400],db1 or @group"
        )
    for low, high in _RANGE.findall(text):  # before ClusterShell makes a set of all numbers
        if max(len(low), len(high)) > len(str(_MOST)) + 2 or int(high) - int(low) > _MOST:
            raise TargetError(f"--nodes {text[:200]}: {low}-{high} is too large a range")
    module, ranges = clustershell("NodeSet"), clustershell("RangeSet")
    try:
        found = module.NodeSet(text)
        if len(found) > _MOST:
            raise TargetError(f"--nodes {text[:200]}: {len(found)} machines; at most {_MOST}")
        names = [str(name) for name in found]
    except (module.NodeSetException, ranges.RangeSetException) as err:
        raise TargetError(f"--nodes {text[:200]}: {printable(str(err))}") from err
    for name in names:
        if not _NAME.fullmatch(name):
            raise TargetError(f"--nodes: {printable(name)[:200]} is not the name of a machine")
    if not names:
        raise TargetError(f"--nodes {text[:200]}: no machine is in this set")
    return names


def folded(names: Iterable[str]) -> str:
    """Return names as one node set: ``web[1-3],db1``."""
    return str(clustershell("NodeSet").NodeSet.fromlist([*names]))
