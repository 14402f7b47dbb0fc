"""Probes of the kernel, of every kind → points of a session, attached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kprobe.tracepoints.provider import AttachResult
from kprobe.tracepoints.provider import attach as attach_events
from usdt.base.errors import ProbeNotFound, TracingError
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.language.tree import names_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.session import BpfSession

__all__ = ("AttachResult", "attach")

_FUNCTIONS = ("kprobe", "fentry")


def attach(
    session: BpfSession,
    requests: Sequence[ProbeText],
    keys: Sequence[Item] = (),
    *,
    counts: bool,
    via: str | None = None,
) -> AttachResult:
    """Attach probes of the kernel.

    Args:
        session: to attach to.
        requests: of the kinds ``kprobe``, ``fentry``, ``tracepoint``, ``rawtp`` and ``syscall``.
        keys: items of ``--by`` and ``--key``.
        counts: whether a probe without items shows nothing, as when hits are counted.
        via: ``--via``; a way that functions of the kernel do not have is for others.

    Raises:
        ProbeNotFound: no such probe.
        TracingError: a probe matched several places and none could be attached.
    """
    events = [request for request in requests if request.kind not in _FUNCTIONS]
    made = attach_events(session, events, keys, counts=counts)
    functions = [request for request in requests if request.kind in _FUNCTIONS]
    if not functions:
        return made
    from kprobe.functions.attach import FunctionAttacher  # noqa: PLC0415 - only for functions
    from kprobe.functions.attach_methods import NoAttachMethod  # noqa: PLC0415

    forced = KprobeMethod(via) if via in frozenset(KprobeMethod) else None
    source = FunctionAttacher(session, counts=counts, forced=forced)
    for request in functions:
        items = [*request.items, *keys]
        names = {name for item in items for name in names_in(item.expression)}
        try:
            source.attach(request, names, keys)
        except (ProbeNotFound, NoAttachMethod) as err:
            raise _event_of_the_name(request, err) from err
    return AttachResult(made.points + source.points, (*made.notices, *source.notices))


def _event_of_the_name(request: ProbeText, error: TracingError) -> TracingError:
    # A tracepoint without its kind's word is taken for a function.
    from kprobe.tracepoints.catalog import events  # noqa: PLC0415 - only for this message

    wanted = f"{request.provider}:{request.name}"
    try:
        named = {event.full_name: event.full_name for event in events()}
        named |= {event.name: f"*:{event.name}" for event in events()}
    except TracingError:
        return error
    found = named.get(wanted, named.get(request.name, ""))
    return type(error)(f"{error}; there is tracepoint:{found}") if found else error
