"""The Python interface to probes of the kernel: attach() and Session."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from usdt.engine.api.attach import GRACE, Whom, open_events, pids_of
from usdt.engine.api.sessions import AnySession
from usdt.engine.runtime.session import DEFAULT_BUFFER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.api.events import Events
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters import Event

__all__ = ("Session", "attach")


def attach(
    *probes: str,
    pid: int | Iterable[int] | None = None,
    command: Sequence[str] | None = None,
    follow: bool = False,
    buffer: int = DEFAULT_BUFFER,
    max_string: int = 128,
    patience: float | None = GRACE,
    lines: bool = False,
    on_event: Callable[[Event], object] | None = None,
) -> Events:
    """Attach to probes of the kernel; events are then in the returned object.

    Args:
        probes: each ``tracepoint:GROUP:NAME``, ``rawtp:NAME``, ``syscall:NAME`` or the name of a
            function of the kernel, with items in parentheses: fields and arguments by name,
            ``"syscall:openat(str(filename), return)"``. Probes of files (``usdt:``, ``uprobe:``)
            may be among them.
        pid: a process or several; without it and ``command``, all of them.
        command: words of a command to start and trace; it runs when attach() returns.
        follow: the children of ``pid`` and ``command`` as well, those there are and those to come.
        buffer: bytes of ring buffer.
        max_string: bytes that str() keeps of a string.
        patience: as :func:`usdt.attach` has it, for probes of files.
        lines: as :func:`usdt.attach` has it, for user stacks.
        on_event: called by :meth:`Events.run` with each event.

    Raises:
        LanguageError: a probe or an item cannot be understood, or names no field.
        ProbeNotFound: no such probe; the message names the nearest.
        NotSupported: the kernel lacks what it takes.
        TargetError: no such process or file.
        SyscallError: the kernel refuses; EPERM without CAP_BPF and CAP_PERFMON.

    Example:
        >>> with kprobe.attach("tracepoint:sched:sched_process_exec(filename)") as events:
        ...     for event in events:
        ...         print(event.pid, event.args["filename"])
    """
    words = None if command is None else tuple(command)
    whom = Whom("kprobe", pids_of(pid), words, follow=follow, patience=patience, lines=lines)
    return open_events(probes, whom, buffer=buffer, max_string=max_string, on_event=on_event)


class Session(AnySession):
    """Probes of the kernel and aggregations; a context manager.

    Args:
        pid: a process or several; without it, all of them.
        everything: of probes of files among them: every process.
        follow: children of ``pid`` as well.
        buffer: bytes of each ring buffer of events.
        max_string: bytes that str() keeps of a string.
        patience: as :class:`usdt.Session` has it.

    Raises:
        TracingError: from its methods, as :func:`kprobe.attach` has it.

    Example:
        >>> with kprobe.Session(pid=1234) as session:
        ...     times = session.latency("syscall:read", "syscall:read(return >= 0)")
        ...     session.run(10)
        >>> [value.average for value in times.values()]
        [1520.4]
    """

    kind: ClassVar[ProbeKind] = "kprobe"
