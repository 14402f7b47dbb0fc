"""Spans for Python callers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.durations import UNITS, nanoseconds
from usdt.base.errors import TracingError
from usdt.base.frozen import replace
from usdt.engine.api.attach import attach_and_release, parse_probes
from usdt.engine.api.events import Events
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.run.attach import session_settings
from usdt.engine.run.registry import kind_of
from usdt.engine.spans.session import SpanSession
from usdt.engine.spans.spec import span_spec

if TYPE_CHECKING:
    from usdt.engine.api.attach import StackNames
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters.event_records import Span
    from usdt.engine.run.options import TargetOptions, TraceOptions
    from usdt.engine.spans.spec import SpanSpec

__all__ = ("open_spans", "spec_of")


def spec_of(
    kind: ProbeKind,
    start: str,
    end: str | None,
    *,
    key: str | None,
    end_key: str | None,
    slower: str | float,
    max_open: int,
) -> SpanSpec:
    """Return the spans that the parameters of a public function ask for.

    Raises:
        LanguageError: a probe or a key is not valid.
        TracingError: ``slower`` is no duration, or the start alone has no return.
        TypeError: a probe is not a string.
    """
    requests = parse_probes([start] if end is None else [start, end], kind)
    if end is None and not kind_of(requests[0]).has_return:
        raise TracingError(f"{start} has no return: give a start and an end")
    return span_spec(
        requests[0],
        None if end is None else requests[1],
        key=key,
        end_key=end_key,
        slower=_least(slower),
        max_open=max_open,
    )


def _least(slower: str | float) -> int:
    if isinstance(slower, str):
        found = nanoseconds(slower)
        if found is None:
            raise TracingError(f"slower {slower!r} is not a duration, as '10ms' or 0.01 (seconds)")
        return found
    return round(slower * UNITS["s"])


def open_spans(
    spec: SpanSpec, targets: TargetOptions, options: TraceOptions, names: StackNames
) -> Events[Span]:
    """Attach the probes of spans, let the command of ``targets`` run, and return the spans.

    Args:
        spec: the spans.
        targets: the processes to trace.
        options: what to record.
        names: where names of user stacks come from.

    Raises:
        TracingError: a probe cannot be attached, or a process does not exist.
    """
    stacks = names.resolver()
    keys = () if spec.end is None else (*spec.key.items, *spec.end_key.items)
    options = replace(options, keys=keys, calls=spec.end is None)

    def session(tasks: TaskFilter) -> SpanSession:
        return SpanSession(
            spec=spec,
            form=EventFormatter(stacks),
            **session_settings(options, spec.requests, tasks),
        )

    attached, release = attach_and_release(stacks, targets, spec.requests, session, options)
    return Events(attached.targets, release, None, lambda: stacks.observe(()))
