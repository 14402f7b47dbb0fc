"""``kprobe.attach``, ``kprobe.spans`` and ``kprobe.Session``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Unpack

from usdt.engine.api import sessions
from usdt.engine.api.attach import (
    open_events,
    parse_probes,
    stack_names,
    target_options,
    trace_options,
)
from usdt.engine.api.spans import open_spans, spec_of
from usdt.engine.compiler.limits import DEFAULT_BACKLOG, DEFAULT_STACK, DEFAULT_STRING
from usdt.engine.run.options import LIBRARY_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.api.attach import CgroupOptions
    from usdt.engine.api.events import Events
    from usdt.engine.compiler.limits import UnwindMethod
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters.event_records import Event, Span

__all__ = ("Session", "attach", "spans")


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
    unwind: UnwindMethod = "auto",
    stack_bytes: int = DEFAULT_STACK,
    jit_map: bool = False,
    symbols: Iterable[str] = (),
    debuginfod: bool = False,
    on_event: Callable[[Event], object] | None = None,
    **cgroups: Unpack[CgroupOptions],
) -> Events[Event]:
    """Attach to probes of the kernel and return their events.

    Args:
        probes: each ``tracepoint:GROUP:NAME``, ``rawtp:NAME``, ``syscall:NAME`` or the name of a
            function of the kernel, with items in parentheses: fields and arguments by name,
            ``"syscall:openat(str(filename), return)"``. Without items, a function is one event, at
            its entry. Probes of files (``usdt:``, ``uprobe:``)
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
        unwind: how user stacks are unwound: ``auto``, ``dwarf`` (by unwind tables) or ``fp`` (by
            frame pointers).
        stack_bytes: bytes of each user stack that are copied, to unwind it by unwind tables.
        jit_map: let Java virtual machines write their perf maps, for names in user stacks.
        symbols: directories in which the files of user stacks are found by build ID.
        debuginfod: whether to ask the servers of the environment's ``DEBUGINFOD_URLS`` for them.
        on_event: called by :meth:`Events.run` with each event.
        cgroups: ``container``, ``pod``, ``unit`` or ``cgroup``: trace only in these, each a name or
            several, as --container, --pod, --unit and --cgroup do. Without ``pid`` they are the
            targets.

    Raises:
        LanguageError: a probe or an item is not valid, or names no field.
        ProbeNotFound: there is no such probe; the message names the closest.
        NotSupported: the kernel lacks a feature that a probe needs.
        TargetError: there is no such process or file.
        SyscallError: the kernel refuses; EPERM without CAP_BPF and CAP_PERFMON.
        TypeError: an argument has a wrong type.

    Examples:
        >>> with kprobe.attach("tracepoint:sched:sched_process_exec(filename)") as events:
        ...     for event in events:
        ...         print(event.pid, event.args["filename"])
    """
    targets = target_options(
        pid=pid,
        command=command,
        user=user,
        follow=follow,
        library_timeout=library_timeout,
        **cgroups,
    )
    requests = parse_probes(probes, "kprobe")
    options = trace_options(
        buffer=buffer,
        backlog=backlog,
        max_string=max_string,
        unwind=unwind,
        stack_bytes=stack_bytes,
    )
    names = stack_names(lines=lines, jit_map=jit_map, symbols=symbols, debuginfod=debuginfod)
    return open_events(requests, targets, options, names, on_event=on_event)


def spans(
    start: str,
    end: str | None = None,
    *,
    key: str | None = None,
    end_key: str | None = None,
    slower: str | float = 0,
    max_open: int = 10240,
    pid: int | Iterable[int] | None = None,
    command: str | Sequence[str] | None = None,
    user: str | None = None,
    follow: bool = False,
    buffer: int | None = None,
    backlog: int = DEFAULT_BACKLOG,
    max_string: int = DEFAULT_STRING,
    library_timeout: float | None = LIBRARY_TIMEOUT,
    lines: bool = False,
    unwind: UnwindMethod = "auto",
    stack_bytes: int = DEFAULT_STACK,
    jit_map: bool = False,
    symbols: Iterable[str] = (),
    debuginfod: bool = False,
    **cgroups: Unpack[CgroupOptions],
) -> Events[Span]:
    """Return calls of a function, or pairs of probes, with their duration.

    The result is a context manager and an iterator of :class:`Span`, as :func:`attach` returns
    one of events.

    Args:
        start: a function or system call; or the probe that begins a span. Its items are taken then.
        end: the probe that ends it, whose items are taken at the end; None: the call's return.
        key: expressions that pair a start with its end, separated by commas; by default the thread.
        end_key: the key at the end, if it differs from ``key``.
        slower: deliver only spans of at least this duration: ``"10ms"``, or seconds.
        max_open: the number of spans that have not ended that are kept.
        pid: trace one process or several, as for :func:`attach`.
        command: a command to start and trace; it ends with the spans.
        user: the user that ``command`` runs as.
        follow: also trace existing and future children of ``pid`` and ``command``.
        buffer: bytes of the ring buffer; None: 8 MiB, or 64 MiB with user stacks.
        backlog: bytes of spans that are kept in memory until they are taken.
        max_string: bytes that str() keeps of a string.
        library_timeout: as for :func:`attach`.
        lines: for user stacks, as for :func:`attach`.
        unwind: how user stacks are unwound: ``auto``, ``dwarf`` (by unwind tables) or ``fp`` (by
            frame pointers).
        stack_bytes: bytes of each user stack that are copied, to unwind it by unwind tables.
        jit_map: let Java virtual machines write their perf maps, for names in user stacks.
        symbols: directories in which the files of user stacks are found by build ID.
        debuginfod: whether to ask the servers of the environment's ``DEBUGINFOD_URLS`` for them.
        cgroups: trace only in these, as for :func:`attach`.

    Raises:
        LanguageError: a probe, an item or a key is not valid.
        TracingError: as from :func:`attach`; or ``slower`` is no duration.
        TypeError: an argument has a wrong type.

    Examples:
        >>> for span in kprobe.spans("syscall:openat(filename, return)", slower="1ms"):
        ...     print(span.start, span.duration, span.args, span.end_args)
    """
    spec = spec_of("kprobe", start, end, key=key, end_key=end_key, slower=slower, max_open=max_open)
    targets = target_options(
        pid=pid,
        command=command,
        user=user,
        follow=follow,
        library_timeout=library_timeout,
        **cgroups,
    )
    options = trace_options(
        buffer=buffer,
        backlog=backlog,
        max_string=max_string,
        unwind=unwind,
        stack_bytes=stack_bytes,
    )
    names = stack_names(lines=lines, jit_map=jit_map, symbols=symbols, debuginfod=debuginfod)
    return open_spans(spec, targets, options, names)


class Session(sessions.Session):
    """Probes of the kernel and aggregations; a context manager. See :class:`usdt.Session`.

    Raises:
        TracingError: from its methods, as from :func:`kprobe.attach`.

    Examples:
        >>> with kprobe.Session(pid=1234) as session:
        ...     times = session.latency("syscall:read", "syscall:read(return >= 0)")
        ...     session.run(10)
        >>> [value.average for value in times.values()]
        [1520.4]
    """

    kind: ClassVar[ProbeKind] = "kprobe"  # of a probe that names none
