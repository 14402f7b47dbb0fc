"""USDT probes and uprobes of any process, from Python alone.

    import usdt

    for probe in usdt.list_probes("/usr/bin/python3.11"):
        print(probe.provider, probe.name, len(probe.sites))

    with usdt.attach("python:gc__start(arg0)", pid=1234) as events:
        for event in events:
            print(event.time, event.pid, event.args)

``usdt.Session`` has many probes and aggregations, ``usdt.Provider`` makes probes of this program,
``usdt.testing`` tests them, ``usdt.Manager`` and ``usdt.bcc`` attach programs of others.

Names are loaded when they are first used: importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from usdt import bcc, testing
    from usdt.api import attach, list_probes
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
    from usdt.engine.api.aggregates import Aggregate, Histogram
    from usdt.engine.api.events import Events
    from usdt.engine.api.sessions import Session
    from usdt.engine.output.formatters import Event
    from usdt.libbpf.manager import Attachment, Manager
    from usdt.probes.argspec import Operand
    from usdt.probes.probe import Probe, Site
    from usdt.provider import Provider, ProviderError

_HOMES = {
    "Aggregate": "usdt.engine.api.aggregates",
    "Attachment": "usdt.libbpf.manager",
    "ElfError": "usdt.base.errors",
    "Event": "usdt.engine.output.formatters",
    "Events": "usdt.engine.api.events",
    "Histogram": "usdt.engine.api.aggregates",
    "LanguageError": "usdt.base.errors",
    "Manager": "usdt.libbpf.manager",
    "NotSupported": "usdt.base.errors",
    "Operand": "usdt.probes.argspec",
    "Probe": "usdt.probes.probe",
    "ProbeNotFound": "usdt.base.errors",
    "Provider": "usdt.provider",
    "ProviderError": "usdt.provider",
    "Session": "usdt.engine.api.sessions",
    "Site": "usdt.probes.probe",
    "SyscallError": "usdt.base.errors",
    "TargetError": "usdt.base.errors",
    "TracingError": "usdt.base.errors",
    "Unreadable": "usdt.arch.locations",
    "attach": "usdt.api",
    "list_probes": "usdt.api",
}

__all__ = (
    "Aggregate",
    "Attachment",
    "ElfError",
    "Event",
    "Events",
    "Histogram",
    "LanguageError",
    "Manager",
    "NotSupported",
    "Operand",
    "Probe",
    "ProbeNotFound",
    "Provider",
    "ProviderError",
    "Session",
    "Site",
    "SyscallError",
    "TargetError",
    "TracingError",
    "Unreadable",
    "attach",
    "bcc",
    "list_probes",
    "testing",
)


def __getattr__(name: str) -> Any:
    if name in ("bcc", "testing"):
        return import_module(f"usdt.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'usdt' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
