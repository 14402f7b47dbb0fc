"""Probes of the kernel, as the engine's registry loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kprobe.tracepoints.provider import attach as attach_events
from usdt.base.errors import ProbeNotFound, TracingError
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.language.tree import names_in
from usdt.engine.run.protocols import AttachResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.options import TraceOptions
    from usdt.engine.runtime.session import BpfSession

__all__ = ("PROVIDER", "KernelProbeProvider")

_FUNCTIONS = ("kprobe", "fentry")


class KernelProbeProvider:
    """Functions, tracepoints, raw tracepoints and system calls of the kernel."""

    def attach(
        self, session: BpfSession, requests: Sequence[ProbeText], options: TraceOptions
    ) -> AttachResult:
        """Attach the kernel's probes; see :class:`usdt.engine.run.protocols.ProbeProvider`.

        Raises:
            ProbeNotFound: no such probe.
            TracingError: a probe matches several sites, and none can be attached.
        """
        keys, counts = options.keys, options.aggregated
        events = [request for request in requests if request.kind not in _FUNCTIONS]
        made = attach_events(session, events, keys, counts=counts, calls=options.calls)
        functions = [request for request in requests if request.kind in _FUNCTIONS]
        if not functions:
            return made
        from kprobe.functions.attach import FunctionAttacher  # noqa: PLC0415 - only for functions
        from kprobe.functions.attach_methods import NoAttachMethod  # noqa: PLC0415

        forced = KprobeMethod(options.via) if options.via in frozenset(KprobeMethod) else None
        source = FunctionAttacher(session, counts=counts, forced=forced)
        for request in functions:
            items = [*request.items, *keys]
            names = {name for item in items for name in names_in(item.expression)}
            try:
                source.attach(request, names, keys)
            except (ProbeNotFound, NoAttachMethod) as err:
                raise _other_of_the_name(request, err) from err
        return AttachResult(made.sites + source.points, (*made.notices, *source.notices))


PROVIDER = KernelProbeProvider()


def _other_of_the_name(request: ProbeText, error: TracingError) -> TracingError:
    # A name without its kind is taken for a function: name the system call or the tracepoint.
    from kprobe.tracepoints.catalog import events  # noqa: PLC0415 - only for this message
    from kprobe.tracepoints.syscall_numbers import numbers  # noqa: PLC0415

    if request.name in numbers() and not request.provider:
        return type(error)(f"{error}; there is syscall:{request.name}")
    wanted = f"{request.provider}:{request.name}"
    try:
        named = {event.full_name: event.full_name for event in events()}
        named |= {event.name: f"*:{event.name}" for event in events()}
    except TracingError:
        return error
    found = named.get(wanted, named.get(request.name, ""))
    return type(error)(f"{error}; there is tracepoint:{found}") if found else error
