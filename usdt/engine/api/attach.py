"""Functions that attach probes of any kind for Python callers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.engine.api.events import Events
from usdt.engine.compiler.limits import DEFAULT_STACK, UNWIND_METHODS
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters.event import EventFormatter
from usdt.engine.output.stacks import StackResolver
from usdt.engine.output.symbol_needs import wants_user_symbols
from usdt.engine.run.attach import (
    attach_probes,
    session_settings,
    tracefs_session,
    with_defined_events,
)
from usdt.engine.run.options import (
    SERVERS_NEEDED,
    TRACEFS,
    SymbolOptions,
    TargetOptions,
    TraceOptions,
    debuginfod_servers,
    split_command,
)
from usdt.engine.run.registry import target_provider
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.cgroups.selection import CgroupChoice
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.compiler.limits import UnwindMethod
    from usdt.engine.language.tree import ProbeKind, ProbeText
    from usdt.engine.output.formatters.event_records import Event
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.run.attach import AttachedProbes
    from usdt.engine.runtime.session import BpfSession

__all__ = (
    "CgroupOptions",
    "StackNames",
    "attach_and_release",
    "open_events",
    "parse_probes",
    "stack_names",
    "target_options",
    "trace_options",
)


class CgroupOptions(TypedDict, total=False):
    """Whom to trace by cgroup: each is a name, or several."""

    container: str | Iterable[str]
    pod: str | Iterable[str]
    unit: str | Iterable[str]
    cgroup: str | Iterable[str]


def target_options(
    *,
    pid: int | Iterable[int] | None,
    command: str | Sequence[str] | None = None,
    user: str | None = None,
    all_processes: bool = False,
    follow: bool = False,
    library_timeout: float | None,
    **cgroups: Unpack[CgroupOptions],
) -> TargetOptions:
    """Return the parameters that public functions have in common as one record.

    Raises:
        TypeError: an argument has a wrong type.
        TargetError: ``command`` is a string that a shell could not split, there is a ``user``
            without a ``command``, or a ``command`` with a cgroup.
    """
    choices = _cgroup_choices(**cgroups)
    if choices and command is not None:
        raise TargetError(
            f"{choices[0].option}: a command starts in the cgroup of this process; leave it out"
        )
    if user is not None and not isinstance(user, str):
        raise TypeError(f"user {user!r}: expected the name of a user, a string")
    if user is not None and command is None:
        raise TargetError(f"user {user}: there is no command to run as this user; give command=")
    return TargetOptions(
        _process_ids(pid),
        _words(command),
        all_processes,
        follow,
        library_timeout,
        user,
        choices,
    )


def trace_options(
    *,
    buffer: int | None,
    backlog: int,
    max_string: int,
    unwind: UnwindMethod = "auto",
    stack_bytes: int = DEFAULT_STACK,
) -> TraceOptions:
    """Return the sizes, and the method of unwinding, that public functions have as one record.

    Raises:
        TypeError: a size is not an integer.
        ValueError: there is no such method.
    """
    if unwind not in UNWIND_METHODS:
        raise ValueError(f"unwind {unwind!r}: expected one of {', '.join(UNWIND_METHODS)}")
    sizes = {
        "buffer": buffer,
        "backlog": backlog,
        "max_string": max_string,
        "stack_bytes": stack_bytes,
    }
    for name, size in sizes.items():
        if name == "buffer" and size is None:
            continue
        if not isinstance(size, int) or isinstance(size, bool):
            raise TypeError(f"{name} {size!r}: expected a number of bytes, an integer")
    return TraceOptions(buffer, max_string, backlog=backlog, unwind=unwind, stack_bytes=stack_bytes)


def parse_probes(probes: Iterable[str], kind: ProbeKind) -> list[ProbeText]:
    """Parse probes; a probe that names no kind has ``kind``.

    Raises:
        LanguageError: a probe is not valid.
        TypeError: a probe is not a string.
    """
    probes = tuple(probes)
    for text in probes:
        if not isinstance(text, str):
            raise TypeError(f"probe {text!r}: expected a string, as in 'provider:name(arg0)'")
    return [parse_probe(text, default=kind) for text in probes]


def _cgroup_choices(
    *,
    container: str | Iterable[str] = (),
    pod: str | Iterable[str] = (),
    unit: str | Iterable[str] = (),
    cgroup: str | Iterable[str] = (),
) -> tuple[CgroupChoice, ...]:
    from usdt.cgroups.selection import CgroupChoice  # noqa: PLC0415 - few programs need it

    return (
        *(CgroupChoice("container", name) for name in _names("container", container)),
        *(CgroupChoice("pod", name) for name in _names("pod", pod)),
        *(CgroupChoice("unit", name) for name in _names("unit", unit)),
        *(CgroupChoice("cgroup", name) for name in _names("cgroup", cgroup)),
    )


def _names(what: str, given: object) -> tuple[str, ...]:
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
    names: tuple[str, ...] = tuple(given) if several else (given,)  # type: ignore[arg-type, assignment]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what} {name!r}: expected a name, a string")
    return names


def _process_ids(pid: int | Iterable[int] | None) -> tuple[int, ...]:
    if pid is None:
        return ()
    several = isinstance(pid, Iterable) and not isinstance(pid, (str, bytes))
    numbers: tuple[int, ...] = tuple(pid) if several else (pid,)  # type: ignore[arg-type, assignment]
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"pid {number!r}: expected the ID of a process, an integer")
    return numbers


def _words(command: object) -> tuple[str, ...] | None:
    if command is None:
        return None
    if isinstance(command, str):
        return split_command(command)
    words = tuple(command) if isinstance(command, Iterable) else (command,)
    if isinstance(command, bytes) or not all(isinstance(word, str) for word in words):
        raise TypeError(f"command {command!r}: expected a string, or a list of strings")
    return words


@frozen
class StackNames:
    """Where the names of user stacks come from.

    Attributes:
        lines: whether frames have source lines.
        jit_map: whether Java virtual machines write their perf maps.
        sources: where symbols come from.
    """

    lines: bool
    jit_map: bool
    sources: SymbolOptions

    def resolver(self, *, users: bool = True) -> StackResolver:
        """Return what resolves stacks; without ``users`` it has no names of user stacks."""
        return StackResolver(self._symbolizer if users else None, lines=self.lines)

    def _symbolizer(self) -> UserSymbols:
        return target_provider().symbolizer(self.sources, jit_map=self.jit_map)


def stack_names(
    *, lines: bool, jit_map: bool, symbols: Iterable[str], debuginfod: bool
) -> StackNames:
    """Return the parameters about names in stacks that public functions have as one record.

    Raises:
        TargetError: a directory does not exist, or the environment names no server.
        TypeError: ``symbols`` is not a list of strings.
    """
    directories = tuple(symbols)
    if isinstance(symbols, str) or not all(isinstance(name, str) for name in directories):
        raise TypeError(f"symbols {symbols!r}: expected a list of directories, strings")
    for directory in directories:
        if not Path(directory).is_dir():
            raise TargetError(f"symbols {directory}: no such directory")
    servers = debuginfod_servers() if debuginfod else ()
    if debuginfod and not servers:
        raise TargetError(f"debuginfod needs {SERVERS_NEEDED}")
    return StackNames(lines, jit_map, SymbolOptions(directories, servers))


def open_events(
    requests: Sequence[ProbeText],
    targets: TargetOptions,
    options: TraceOptions,
    names: StackNames,
    *,
    on_event: Callable[[Event], object] | None = None,
) -> Events[Event]:
    """Attach probes, let the command of ``targets`` run, and return the events.

    Args:
        requests: the probes.
        targets: the processes to trace.
        options: what to record.
        names: where names of user stacks come from.
        on_event: called by :meth:`Events.run`.

    Raises:
        TracingError: a probe cannot be attached, or a process does not exist.
    """
    stacks = names.resolver()

    requests, options = with_defined_events(requests, options)

    def session(tasks: TaskFilter) -> BpfSession:
        form = EventFormatter(stacks)
        if options.via == TRACEFS:
            return tracefs_session(form, tasks, options)
        return RingBufferSession(
            form,
            **session_settings(options, requests, tasks),
        )

    attached, release = attach_and_release(stacks, targets, requests, session, options)
    return Events(attached.targets, release, on_event, lambda: stacks.observe(()))


def attach_and_release(
    stacks: StackResolver,
    targets: TargetOptions,
    requests: Sequence[ProbeText],
    session: Callable[[TaskFilter], BpfSession],
    options: TraceOptions,
) -> tuple[AttachedProbes, Callable[[], None]]:
    """Attach probes and let the command of ``targets`` run.

    Args:
        stacks: resolves the stacks; closed with the probes.
        targets: the processes to trace.
        requests: the probes.
        session: makes the session that traces these processes.
        options: how to attach.

    Returns:
        What is attached, and the function that detaches it and frees everything.

    Raises:
        TracingError: a probe cannot be attached, or a process does not exist.
    """
    stacks.wanted = any(map(wants_user_symbols, requests))
    stacks.begin(())
    with contextlib.ExitStack() as stack:
        stack.callback(stacks.close)
        attached = attach_probes(stack, targets, requests, session, options)
        attached.release()
        return attached, stack.pop_all().close
