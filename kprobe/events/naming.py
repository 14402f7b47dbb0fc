"""Complete the names of events, as the kernel names an event without a name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kprobe.events.values import Definition, FileOffset, KernelAddress, KernelSymbol
from usdt.base.frozen import replace

if TYPE_CHECKING:
    from kprobe.events.values import Argument, ProbePoint

__all__ = ("default_group", "named", "renamed")

_GROUPS = {"p": "kprobes", "r": "kprobes", "e": "eprobes", "f": "fprobes", "t": "tracepoints"}
_MAX_NAME = 63


def default_group(definition: Definition) -> str:
    """Return the group of an event whose definition has none."""
    if isinstance(definition.probe_point, FileOffset):
        return "uprobes"
    return _GROUPS[definition.kind]


def named(definition: Definition) -> Definition:
    """Return the definition with a group and an event name; missing ones are the kernel's."""
    group = definition.group or default_group(definition)
    return renamed(definition, group, definition.event or _event(definition))


def renamed(definition: Definition, group: str, event: str, *more: Argument) -> Definition:
    """Return the definition with another name, and with ``more`` arguments added."""
    arguments = (*definition.arguments, *more)
    return replace(definition, arguments=arguments, group=group, event=event)


def _event(definition: Definition) -> str:
    name = _of_probe_point(definition.probe_point, definition.kind, returns=definition.returns)
    return re.sub(r"\W", "_", name, flags=re.ASCII)[:_MAX_NAME]


def _of_probe_point(probe_point: ProbePoint, kind: str, *, returns: bool) -> str:
    if isinstance(probe_point, FileOffset):
        base = re.split(r"[._-]", probe_point.path.rpartition("/")[2])[0]
        return f"p_{base}_{probe_point.offset:#x}"
    if isinstance(probe_point, KernelAddress):
        return f"{kind}_{probe_point.address:#x}"
    if kind == "f":
        return f"{probe_point}__{'exit' if returns else 'entry'}"
    if isinstance(probe_point, KernelSymbol):
        return f"{kind}_{probe_point.symbol}_{probe_point.offset}"
    return str(probe_point).partition(".")[2] or str(probe_point)
