"""Probes of the kernel, and the kernel's types, from Python alone.

    import kprobe

    with kprobe.attach("tracepoint:sched:sched_process_exec(filename)") as events:
        for event in events:
            print(event.pid, event.args["filename"])

    kprobe.types()["struct list_head"].render(data)

Names are loaded when they are first used: importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kprobe import events
    from kprobe.api import Session, attach
    from kprobe.datatypes import DataType, Types, types
    from usdt.arch.locations import Unreadable
    from usdt.base.errors import (
        BtfError,
        LanguageError,
        NotSupported,
        ProbeNotFound,
        SyscallError,
        TargetError,
        TracingError,
    )
    from usdt.engine.api.aggregates import Aggregate, Histogram
    from usdt.engine.api.events import Events
    from usdt.engine.output.formatters import Event

_HOMES = {
    "Aggregate": "usdt.engine.api.aggregates",
    "BtfError": "usdt.base.errors",
    "DataType": "kprobe.datatypes",
    "Event": "usdt.engine.output.formatters",
    "Events": "usdt.engine.api.events",
    "Histogram": "usdt.engine.api.aggregates",
    "LanguageError": "usdt.base.errors",
    "NotSupported": "usdt.base.errors",
    "ProbeNotFound": "usdt.base.errors",
    "Session": "kprobe.api",
    "SyscallError": "usdt.base.errors",
    "TargetError": "usdt.base.errors",
    "TracingError": "usdt.base.errors",
    "Types": "kprobe.datatypes",
    "Unreadable": "usdt.arch.locations",
    "attach": "kprobe.api",
    "types": "kprobe.datatypes",
}

__all__ = (
    "Aggregate",
    "BtfError",
    "DataType",
    "Event",
    "Events",
    "Histogram",
    "LanguageError",
    "NotSupported",
    "ProbeNotFound",
    "Session",
    "SyscallError",
    "TargetError",
    "TracingError",
    "Types",
    "Unreadable",
    "attach",
    "events",
    "types",
)


def __getattr__(name: str) -> Any:
    if name == "events":
        return import_module("kprobe.events")
    if name not in _HOMES:
        raise AttributeError(f"module 'kprobe' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
