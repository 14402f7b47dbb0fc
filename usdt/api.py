"""The Python interface: list_probes() and attach()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.api.attach import GRACE, Whom, open_events, pids_of
from usdt.engine.api.events import Events
from usdt.engine.language import parse_probe
from usdt.engine.runtime.session import DEFAULT_BUFFER
from usdt.targets.listing_files import find_probes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.output.formatters import Event
    from usdt.probes.probe import Probe

__all__ = ("Events", "attach", "list_probes")


def list_probes(
    target: str | None = None, *, pid: int | None = None, pattern: str = "*:*"
) -> list[Probe]:
    """The USDT probes of a file, or of every file a process has mapped.

    Args:
        target: a path, a library as the loader knows it (``libc``), or a program on PATH.
        pid: a process; with ``target`` as well, that file of the process.
        pattern: ``provider:name`` with ``*`` and ``?``.

    Raises:
        TargetError: no such file or process.
        ElfError: the file is not ELF.

    Example:
        >>> [probe.full_name for probe in usdt.list_probes("/usr/bin/python3.11")]
        ['python:audit', 'python:function__entry', …]
    """
    targets = [target] if target is not None else []
    files = find_probes(targets, pids=[pid] if pid is not None else [])
    request = parse_probe(pattern)
    from usdt.probes.sites import matching  # noqa: PLC0415 - with the symbols' machinery

    return [probe for file in files for probe in matching(request, file.probes)]


def attach(
    *probes: str,
    pid: int | Iterable[int] | None = None,
    command: Sequence[str] | None = None,
    everything: bool = False,
    follow: bool = False,
    buffer: int = DEFAULT_BUFFER,
    max_string: int = 128,
    patience: float | None = GRACE,
    lines: bool = False,
    on_event: Callable[[Event], object] | None = None,
) -> Events:
    """Attach to probes; events are then in the returned object.

    Args:
        probes: each ``provider:name``, ``PATH:provider:name`` or ``uprobe:PATH:function``, with
            items in parentheses: ``"postgresql:query__start(str(arg0), pid != 1)"``. Probes of
            the kernel (``tracepoint:``, ``syscall:``, …) may be among them.
        pid: a process or several. Without it, and without ``command`` and ``everything``, the
            probes name their files and every process that runs them is traced.
        command: words of a command to start and trace; it runs when attach() returns.
        everything: trace every process.
        follow: the children of ``pid`` and ``command`` as well, those there are and those to come.
        buffer: bytes of ring buffer.
        max_string: bytes that str() keeps of a string.
        patience: seconds to wait for a library that has a probe which is nowhere yet; None
            waits as long as the processes live.
        lines: frames of stacks have their source lines, and inlined functions are frames.
        on_event: called by :meth:`Events.run` with each event.

    Raises:
        LanguageError: a probe or an item cannot be understood.
        ProbeNotFound: no such probe; the message names the nearest.
        TargetError: no such process or file.
        SyscallError: the kernel refuses; EPERM without CAP_BPF and CAP_PERFMON.

    Example:
        >>> with usdt.attach("python:gc__start(arg0)", pid=1234) as events:
        ...     for event in events:
        ...         print(event.time, event.args["arg0"])
    """
    words = None if command is None else tuple(command)
    whom = Whom("usdt", pids_of(pid), words, everything, follow, patience, lines)
    return open_events(probes, whom, buffer=buffer, max_string=max_string, on_event=on_event)
