"""Functions that attach probes of any kind for Python callers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from usdt.engine.api.events import Events
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters import EventFormatter
from usdt.engine.output.stacks import StackResolver, wants_user_symbols
from usdt.engine.run.attach import attach_probes
from usdt.engine.run.options import TargetOptions
from usdt.engine.run.registry import target_provider
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeKind, ProbeText
    from usdt.engine.output.formatters import Event
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.run.options import TraceOptions

__all__ = ("open_events", "parse_probes", "symbolizer", "target_options")


def target_options(
    *,
    pid: int | Iterable[int] | None,
    command: Sequence[str] | None = None,
    all_processes: bool = False,
    follow: bool = False,
    library_timeout: float | None,
) -> TargetOptions:
    """Return the parameters that public functions have in common as one record."""
    return TargetOptions(
        (pid,) if isinstance(pid, int) else tuple(pid or ()),
        None if command is None else tuple(command),
        all_processes,
        follow,
        library_timeout,
    )


def parse_probes(probes: Iterable[str], kind: ProbeKind) -> list[ProbeText]:
    """Parse probes; a probe that names no kind has ``kind``.

    Raises:
        LanguageError: a probe is not valid.
    """
    return [parse_probe(text, default=kind) for text in probes]


def symbolizer() -> UserSymbols:
    """Return a symbolizer for addresses of processes."""
    return target_provider().symbolizer()


def open_events(
    requests: Sequence[ProbeText],
    targets: TargetOptions,
    options: TraceOptions,
    *,
    lines: bool,
    on_event: Callable[[Event], object] | None = None,
) -> Events:
    """Attach probes, let the command of ``targets`` run, and return the events.

    Args:
        requests: the probes.
        targets: the processes to trace.
        options: what to record.
        lines: whether frames of user stacks have source lines.
        on_event: called by :meth:`Events.run`.

    Raises:
        TracingError: a probe cannot be attached, or a process does not exist.
    """
    stacks = StackResolver(symbolizer, lines=lines)
    stacks.wanted = any(map(wants_user_symbols, requests))
    stacks.begin(())

    def session(tasks: TaskFilter) -> RingBufferSession:
        return RingBufferSession(
            EventFormatter(stacks),
            accept=tasks,
            buffer=options.buffer,
            max_string=options.max_string,
        )

    with contextlib.ExitStack() as stack:
        stack.callback(stacks.close)
        attached = attach_probes(stack, targets, requests, session, options)
        if attached.command is not None:
            attached.command.release()
        release = stack.pop_all().close
    return Events(attached.targets, release, on_event, lambda: stacks.observe(()))
