"""Probes of the kernel, as the engine's registry loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kprobe.counters import COUNTER_KINDS, attach_point
from kprobe.tracepoints.provider import attach as attach_events
from usdt.base.errors import ProbeNotFound, TracingError
from usdt.base.frozen import replace
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
        if session.by_tracefs:
            _check_tracefs(requests)
        counters = [request for request in requests if request.kind in COUNTER_KINDS]
        for request in counters:
            _attach_counter(session, request)
        others = (*_FUNCTIONS, *COUNTER_KINDS)
        events = [request for request in requests if request.kind not in others]
        made = attach_events(
            session, events, keys, counts=counts, calls=options.calls, missing=options.missing
        )
        made = replace(made, sites=made.sites + len(counters))
        functions = [request for request in requests if request.kind in _FUNCTIONS]
        if not functions:
            return made
        from kprobe.functions.attach import FunctionAttacher  # noqa: PLC0415 - only for functions
        from kprobe.functions.attach_methods import NoAttachMethod  # noqa: PLC0415
        from kprobe.functions.hit_order import in_attach_order  # noqa: PLC0415

        forced = KprobeMethod(options.via) if options.via in frozenset(KprobeMethod) else None
        source = FunctionAttacher(
            session, counts=counts, both_ends=options.both_ends, forced=forced
        )
        for request in in_attach_order(functions, keys, forced):
            items = [*request.items, *keys]
            names = {name for item in items for name in names_in(item.expression)}
            try:
                source.attach(request, names, keys)
            except (ProbeNotFound, NoAttachMethod) as err:
                error = _other_of_the_name(request, err)
                if options.missing is None or not isinstance(error, ProbeNotFound):
                    raise error from err
                options.missing(request, error)
        return AttachResult(made.sites + source.points, (*made.notices, *source.notices))

    def defined_event(self, request: ProbeText) -> ProbeText | None:
        """Return a probe on an event that somebody defined; see the protocol.

        A tracepoint or a function of the kernel hides an event of its name.
        """
        from kprobe.tracepoints.catalog import defined_events, tracepoints_named  # noqa: PLC0415

        group, name = request.provider or "*", request.name
        if request.kind == "tracepoint":
            found = defined_events(group, name)
            return request if found and not tracepoints_named(group, name) else None
        if request.kind != "kprobe":
            return None
        if "/" in name:  # GROUP/EVENT, as kprobe event writes it
            group, _, name = name.partition("/")
        if not defined_events(group, name):
            return None
        from kprobe.functions.prototypes import current_functions  # noqa: PLC0415 - reads symbols

        if current_functions().named(request.provider, name):
            return None
        return replace(request, kind="tracepoint", provider=group, name=name)


def _attach_counter(session: BpfSession, request: ProbeText) -> None:
    failures = session.attach(request, [attach_point(request)])
    if failures:
        raise failures[0].error


PROVIDER = KernelProbeProvider()


def _check_tracefs(requests: Sequence[ProbeText]) -> None:
    for request in requests:
        if request.kind != "tracepoint":
            raise TracingError(
                f"{request.kind}:{request.pattern} cannot be read through tracefs, which --via "
                "tracefs or an event that somebody defined requires; trace it in a run of its own"
            )


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
    if found:
        return type(error)(f"{error}; there is tracepoint:{found}")
    if PROVIDER.defined_event(request):
        return type(error)(f"{error}; somebody defined an event of this name: only trace reads it")
    return error
