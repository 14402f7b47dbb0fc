"""Attach probes of all kinds to one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from usdt.base.frozen import frozen, replace
from usdt.bpf.link import UprobeMethod
from usdt.engine.compiler.limits import DEFAULT_BUFFER
from usdt.engine.run.options import TRACEFS, ring_buffer_size
from usdt.engine.run.registry import kind_of, provider_of, target_provider

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.run.options import TargetOptions, TraceOptions
    from usdt.engine.run.protocols import AttachResult, SpawnedCommand, TracedTargets
    from usdt.engine.runtime.session import BpfSession

__all__ = ("AttachedProbes", "attach_more", "attach_probes", "session_settings", "uprobe_method")


@frozen
class AttachedProbes:
    """Traced processes with their attached probes; the command waits for its release.

    Attributes:
        targets: the processes and the probes of their files.
        command: the started command, stopped until release(); None without a command.
        kernel_sites: number of attached sites in the kernel.
        session: the session that traces them.
    """

    targets: TracedTargets
    command: SpawnedCommand | None
    kernel_sites: int
    session: BpfSession

    def release(self) -> None:
        """Let the command run, if there is one."""
        if self.command is not None:
            self.session.expect(self.command.pid, self.command.files())
            self.command.release()

    @property
    def sites(self) -> int:
        """The number of attached sites."""
        return self.targets.attached + self.kernel_sites


def attach_probes(
    stack: contextlib.ExitStack,
    targets: TargetOptions,
    requests: Sequence[ProbeText],
    session: Callable[[TaskFilter], BpfSession],
    options: TraceOptions,
) -> AttachedProbes:
    """Attach probes of all kinds to one session.

    The target provider finds the processes, makes the session for them and attaches the probes of
    files. The kernel's probes are attached to the same session.

    Args:
        stack: its exit detaches the probes and frees the session.
        targets: the processes to trace.
        requests: the probes.
        session: makes the session that traces these processes.
        options: how to attach.

    Raises:
        TracingError: a probe cannot be attached, or a process does not exist.
    """
    kernel, files = _by_place(requests)
    sessions: list[BpfSession] = []
    results: list[AttachResult] = []

    def with_kernel_probes(tasks: TaskFilter) -> BpfSession:
        made = session(tasks)
        try:
            if kernel:
                results.append(_attach_kernel(made, kernel, options))
        except BaseException:
            made.close()
            raise
        sessions.append(made)
        return made

    traced, command = target_provider().trace(stack, targets, files, with_kernel_probes, options)
    for result in results:
        traced.notices += result.notices
    sites = sum(result.sites for result in results)
    return AttachedProbes(traced, command, sites, sessions[0])


def attach_more(
    attached: AttachedProbes, requests: Sequence[ProbeText], options: TraceOptions
) -> None:
    """Attach further probes to the session of others.

    Args:
        attached: what is attached.
        requests: the probes.
        options: how to attach.

    Raises:
        TracingError: a probe cannot be attached. The others stay.
    """
    kernel, files = _by_place(requests)
    if kernel:
        attached.targets.notices += _attach_kernel(attached.session, kernel, options).notices
    if files:
        attached.targets.add(files)


def _by_place(requests: Sequence[ProbeText]) -> tuple[list[ProbeText], list[ProbeText]]:
    # Probes of the kernel, and probes of files.
    kernel = [request for request in requests if kind_of(request).in_kernel]
    return kernel, [request for request in requests if not kind_of(request).in_kernel]


def _attach_kernel(
    session: BpfSession, requests: Sequence[ProbeText], options: TraceOptions
) -> AttachResult:
    return provider_of(kind_of(requests[0])).attach(session, requests, options)


def with_defined_events(
    requests: Sequence[ProbeText], options: TraceOptions
) -> tuple[tuple[ProbeText, ...], TraceOptions]:
    """Return the probes and options of a run that prints hits.

    If a probe is an event that somebody defined, all are read through tracefs, without BPF.
    """
    named = []
    found = False
    for request in requests:
        kind = kind_of(request)
        event = provider_of(kind).defined_event(request) if kind.in_kernel else None
        named.append(event or request)
        found = found or event is not None
    return tuple(named), replace(options, via=TRACEFS) if found else options


def tracefs_session(form: Formatter, tasks: TaskFilter, options: TraceOptions) -> BpfSession:
    """Make a session without BPF.

    Raises:
        TracingError: tracefs cannot be used, or cannot trace these tasks.
    """
    from usdt.engine.runtime.tracefs_backend.session import TracefsSession  # noqa: PLC0415 - only for tracefs

    session = TracefsSession(
        form,
        accept=tasks,
        buffer=options.buffer or DEFAULT_BUFFER,
        backlog=options.backlog,
        max_string=options.max_string,
    )
    return cast("BpfSession", session)  # it implements what attaching and the loop use


def session_settings(
    options: TraceOptions, requests: Sequence[ProbeText], tasks: TaskFilter
) -> dict[str, Any]:
    """Return the arguments of a session that reads ring buffers: those that options decide."""
    return {
        "accept": tasks,
        "buffer": ring_buffer_size(options, requests),
        "backlog": options.backlog,
        "max_string": options.max_string,
        "max_struct": options.max_struct,
        "via": uprobe_method(options),
        "stacks": options.stacks,
        "unwind": options.unwind,
        "stack_bytes": options.stack_bytes,
    }


def uprobe_method(options: TraceOptions) -> UprobeMethod | None:
    """Return the attach method of uprobes that the options force, or None."""
    return UprobeMethod(options.via) if options.via in frozenset(UprobeMethod) else None
