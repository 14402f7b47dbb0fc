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
    from bpf.errors import (
        BtfError,
        LanguageError,
        NotSupported,
        ProbeNotFound,
        SyscallError,
        TargetError,
        TracingError,
    )
    from kprobe import events
    from kprobe.api import Session, attach
    from kprobe.datatypes import DataType, Types, types
    from tracing.api.aggregates import Aggregate, Histogram
    from tracing.api.events import Events
    from tracing.forms import Event
    from tracing.values import Unreadable

_HOMES = {
    "Aggregate": "tracing.api.aggregates",
    "BtfError": "bpf.errors",
    "DataType": "kprobe.datatypes",
    "Event": "tracing.forms",
    "Events": "tracing.api.events",
    "Histogram": "tracing.api.aggregates",
    "LanguageError": "bpf.errors",
    "NotSupported": "bpf.errors",
    "ProbeNotFound": "bpf.errors",
    "Session": "kprobe.api",
    "SyscallError": "bpf.errors",
    "TargetError": "bpf.errors",
    "TracingError": "bpf.errors",
    "Types": "kprobe.datatypes",
    "Unreadable": "tracing.values",
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
