"""``kprobe.attach`` and ``kprobe.Session``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from usdt.engine.api import sessions
from usdt.engine.api.attach import open_events, parse_probes, target_options, trace_options
from usdt.engine.compiler.limits import DEFAULT_BACKLOG, DEFAULT_STRING
from usdt.engine.run.options import LIBRARY_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.api.events import Events
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters import Event

__all__ = ("Session", "attach")


def attach(
    *probes: str,
    pid: int | Iterable[int] | None = None,
    command: str | Sequence[str] | None = None,
    user: str | None = None,
    follow: bool = False,
    buffer: int | None = None,
    backlog: int = DEFAULT_BACKLOG,
    max_string: int = DEFAULT_STRING,
    library_timeout: float | None = LIBRARY_TIMEOUT,
    lines: bool = False,
    on_event: Callable[[Event], object] | None = None,
) -> Events:
    """Attach to probes of the kernel and return their events.

    Args:
        probes: each ``tracepoint:GROUP:NAME``, ``rawtp:NAME``, ``syscall:NAME`` or the name of a
            function of the kernel, with items in parentheses: fields and arguments by name,
            ``"syscall:openat(str(filename), return)"``. Probes of files (``usdt:``, ``uprobe:``)
            may be among them.
        pid: trace one process or several; without it and ``command``, all processes.
        command: a command to start and trace: its words, or a string that is split as by a shell.
            It runs when attach() returns, and is ended by SIGTERM when the events are closed.
        user: the user that ``command`` runs as, by name or number; by default that of this process.
        follow: also trace existing and future children of ``pid`` and ``command``.
        buffer: bytes of the ring buffer; None: 8 MiB, or 64 MiB with user stacks.
        backlog: bytes of hits that are kept in memory until they are taken; hits that then do not
            fit ``buffer`` are counted as lost.
        max_string: bytes that str() keeps of a string.
        library_timeout: for probes of files, as in :func:`usdt.attach`.
        lines: for user stacks, as in :func:`usdt.attach`.
        on_event: called by :meth:`Events.run` with each event.

    Raises:
        LanguageError: a probe or an item is not valid, or names no field.
        ProbeNotFound: there is no such probe; the message names the closest.
        NotSupported: the kernel lacks a feature that a probe needs.
        TargetError: there is no such process or file.
        SyscallError: the kernel refuses; EPERM without CAP_BPF and CAP_PERFMON.
        TypeError: an argument has a wrong type.

    Example:
        >>> with kprobe.attach("tracepoint:sched:sched_process_exec(filename)") as events:
        ...     for event in events:
        ...         print(event.pid, event.args["filename"])
    """
    targets = target_options(
        pid=pid, command=command, user=user, follow=follow, library_timeout=library_timeout
    )
    requests = parse_probes(probes, "kprobe")
    options = trace_options(buffer=buffer, backlog=backlog, max_string=max_string)
    return open_events(requests, targets, options, lines=lines, on_event=on_event)


class Session(sessions.Session):
    """Probes of the kernel and aggregations; a context manager. See :class:`usdt.Session`.

    Raises:
        TracingError: from its methods, as from :func:`kprobe.attach`.

    Example:
        >>> with kprobe.Session(pid=1234) as session:
        ...     times = session.latency("syscall:read", "syscall:read(return >= 0)")
        ...     session.run(10)
        >>> [value.average for value in times.values()]
        [1520.4]
    """

    kind: ClassVar[ProbeKind] = "kprobe"  # of a probe that names none
