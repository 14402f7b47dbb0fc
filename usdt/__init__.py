"""USDT probes and uprobes of any process, from Python alone.

    import usdt

    for probe in usdt.list_probes("/usr/bin/python3.11"):
        print(probe.provider, probe.name, len(probe.sites))

    with usdt.attach("python:gc__start(arg0)", pid=1234) as events:
        for event in events:
            print(event.time, event.pid, event.args)

``usdt.Session`` has many probes and aggregations, ``usdt.Provider`` makes probes of this program,
``usdt.testing`` tests them. ``usdt.attach_program``, ``usdt.Manager`` and ``usdt.bcc`` attach BPF
programs that you or others made.

Names are loaded when they are first used: importing the package is cheap.
"""

from __future__ import annotations

from usdt.base.lazy_exports import lazy_exports
from usdt.base.version import VERSION

TYPE_CHECKING = False  # importing typing takes 5 ms, in which ^C would show a traceback
if TYPE_CHECKING:
    from usdt import bcc, testing
    from usdt.api import attach, list_probes, spans
    from usdt.arch.locations import Unreadable
    from usdt.base.errors import (
        ElfError,
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
    from usdt.engine.api.sessions import Session
    from usdt.engine.output.formatters.event_records import Event, EventValue, Span
    from usdt.engine.output.truncated import (
        TruncatedDict,
        TruncatedHex,
        TruncatedInt,
        TruncatedList,
        TruncatedStr,
    )
    from usdt.engine.programs.output.objects import ProgramEvent
    from usdt.libbpf.manager import Attachment, Manager
    from usdt.libbpf.program_links import ProgramLink, attach_program
    from usdt.probes.argspec import Operand
    from usdt.probes.probe import Probe, Site
    from usdt.provider import Provider, ProviderError

__version__ = VERSION

__all__ = (
    "Aggregate",
    "Attachment",
    "ElfError",
    "Event",
    "EventValue",
    "Events",
    "Histogram",
    "LanguageError",
    "Manager",
    "NotSupported",
    "Operand",
    "Probe",
    "ProbeNotFound",
    "ProgramEvent",
    "ProgramLink",
    "ProgramMaps",
    "Provider",
    "ProviderError",
    "RunningProgram",
    "Session",
    "Site",
    "Span",
    "SyscallError",
    "TargetError",
    "TracingError",
    "TruncatedDict",
    "TruncatedHex",
    "TruncatedInt",
    "TruncatedList",
    "TruncatedStr",
    "Unreadable",
    "Value",
    "attach",
    "attach_program",
    "bcc",
    "list_probes",
    "run",
    "spans",
    "testing",
)

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "usdt.api": ("attach", "list_probes", "spans"),
        "usdt.arch.locations": ("Unreadable",),
        "usdt.base.errors": (
            "ElfError",
            "LanguageError",
            "NotSupported",
            "ProbeNotFound",
            "SyscallError",
            "TargetError",
            "TracingError",
        ),
        "usdt.bcc": (),
        "usdt.engine.aggregate.values": ("Value",),
        "usdt.engine.api.aggregates": ("Aggregate", "Histogram"),
        "usdt.engine.api.events": ("Events",),
        "usdt.engine.api.programs": ("ProgramMaps", "RunningProgram", "run"),
        "usdt.engine.api.sessions": ("Session",),
        "usdt.engine.output.formatters.event_records": ("Event", "EventValue", "Span"),
        "usdt.engine.output.truncated": (
            *("TruncatedDict", "TruncatedHex", "TruncatedInt", "TruncatedList", "TruncatedStr"),
        ),
        "usdt.engine.programs.output.objects": ("ProgramEvent",),
        "usdt.libbpf.manager": ("Attachment", "Manager"),
        "usdt.libbpf.program_links": ("ProgramLink", "attach_program"),
        "usdt.probes.argspec": ("Operand",),
        "usdt.probes.probe": ("Probe", "Site"),
        "usdt.provider": ("Provider", "ProviderError"),
        "usdt.testing": (),
    },
)
