"""Probes of any kind, attached for Python callers as the commands attach them."""

from __future__ import annotations

import contextlib
import shlex
from importlib import import_module
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.api.events import Events
from usdt.engine.language import parse_probe
from usdt.engine.output.formatters import EventFormatter
from usdt.engine.output.stacks import StackResolver, wants_user_symbols
from usdt.engine.run.registry import start_mixed
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeKind, ProbeText
    from usdt.engine.output.formatters import Event
    from usdt.engine.output.stacks import UserSymbols
    from usdt.engine.run.started import Started
    from usdt.engine.runtime.session import BpfSession

__all__ = ("GRACE", "Whom", "open_events", "parse_all", "pids_of", "start", "user_symbols")

GRACE = 5.0  # seconds that a process has to load a library with the probe that was asked for


@frozen
class Whom:
    """Whom to trace, as ``attach()`` and ``RingBufferSession`` take it; see there.

    Attributes:
        default: the kind of a probe that names none.
    """

    default: ProbeKind
    pids: tuple[int, ...] = ()
    command: tuple[str, ...] | None = None
    everything: bool = False
    follow: bool = False
    patience: float | None = GRACE
    lines: bool = False

    def options(self, **more: Any) -> dict[str, Any]:
        """The same in the words of a command line."""
        return {
            "pids": self.pids,
            "command": None if self.command is None else shlex.join(self.command),
            "everything": self.everything,
            "follow": self.follow,
            "duration": None,
            "patience": self.patience,
            **more,
        }


def pids_of(pid: int | Iterable[int] | None) -> tuple[int, ...]:
    """One process, several or none."""
    return (pid,) if isinstance(pid, int) else tuple(pid or ())


def parse_all(whom: Whom, probes: Iterable[str]) -> list[ProbeText]:
    """Probes as the user wrote them.

    Raises:
        LanguageError: one cannot be understood.
    """
    return [parse_probe(text, default=whom.default) for text in probes]


def start(
    stack: contextlib.ExitStack,
    whom: Whom,
    requests: Sequence[ProbeText],
    session: Callable[[TaskFilter], BpfSession],
    **options: Any,
) -> Started:
    """Attach probes to one session; ``stack`` undoes it. What is started does not run yet."""
    return start_mixed(stack, whom.options(**options), requests, session)


def user_symbols() -> UserSymbols:
    """Names for addresses of processes: files and processes are the other room's business."""
    found: UserSymbols = import_module("usdt.symbolize").Symbolizer(track_mappings=True)
    return found


def open_events(
    probes: Iterable[str],
    whom: Whom,
    *,
    buffer: int,
    max_string: int,
    on_event: Callable[[Event], object] | None = None,
) -> Events:
    """What ``usdt.attach()`` and ``kprobe.attach()`` do."""
    requests = parse_all(whom, probes)
    stacks = StackResolver(user_symbols, lines=whom.lines)
    stacks.wanted = any(map(wants_user_symbols, requests))
    stacks.begin(())

    def session(accept: TaskFilter) -> RingBufferSession:
        return RingBufferSession(
            EventFormatter(stacks), accept=accept, buffer=buffer, max_string=max_string
        )

    with contextlib.ExitStack() as stack:
        stack.callback(stacks.close)
        started = start(stack, whom, requests, session)
        if started.command is not None:
            started.command.release()
        release = stack.pop_all().close
    return Events(started.tracing, release, on_event, lambda: stacks.observe(()))
