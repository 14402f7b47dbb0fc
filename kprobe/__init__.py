"""Probes of the kernel, and the kernel's types, from Python alone.

    import kprobe

    with kprobe.attach("tracepoint:sched:sched_process_exec(filename)") as events:
        for event in events:
            print(event.pid, event.args["filename"])

    kprobe.types()["struct list_head"].render(data)

Names are loaded when they are first used: importing the package is cheap.
"""

from __future__ import annotations

from usdt.base.lazy_exports import lazy_exports
from usdt.base.version import VERSION

TYPE_CHECKING = False  # importing typing takes 5 ms, in which ^C would show a traceback
if TYPE_CHECKING:
    from kprobe import events
    from kprobe.api import Session, attach, spans
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
    from usdt.engine.aggregate.values import Value
    from usdt.engine.api.aggregates import Aggregate, Histogram
    from usdt.engine.api.events import Events
    from usdt.engine.api.programs import ProgramMaps, RunningProgram, run
    from usdt.engine.output.formatters.event_records import Event, EventValue, Span
    from usdt.engine.programs.output.objects import ProgramEvent

__version__ = VERSION

__all__ = (
    "Aggregate",
    "BtfError",
    "DataType",
    "Event",
    "EventValue",
    "Events",
    "Histogram",
    "LanguageError",
    "NotSupported",
    "ProbeNotFound",
    "ProgramEvent",
    "ProgramMaps",
    "RunningProgram",
    "Session",
    "Span",
    "SyscallError",
    "TargetError",
    "TracingError",
    "Types",
    "Unreadable",
    "Value",
    "attach",
    "events",
    "run",
    "spans",
    "types",
)

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "kprobe.api": ("Session", "attach", "spans"),
        "kprobe.datatypes": ("DataType", "Types", "types"),
        "kprobe.events": (),
        "usdt.arch.locations": ("Unreadable",),
        "usdt.base.errors": (
            "BtfError",
            "LanguageError",
            "NotSupported",
            "ProbeNotFound",
            "SyscallError",
            "TargetError",
            "TracingError",
        ),
        "usdt.engine.aggregate.values": ("Value",),
        "usdt.engine.api.aggregates": ("Aggregate", "Histogram"),
        "usdt.engine.api.events": ("Events",),
        "usdt.engine.api.programs": ("ProgramMaps", "RunningProgram", "run"),
        "usdt.engine.output.formatters.event_records": ("Event", "EventValue", "Span"),
        "usdt.engine.programs.output.objects": ("ProgramEvent",),
    },
)
