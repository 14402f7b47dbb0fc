"""Probes of several kinds in one session, whatever command they were given to.

The fronts do not know each other. Which kind is whose stands here, by name: a front is imported
when a probe of its kind is given.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from usdt.engine.run.started import Started

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.started import Tracing
    from usdt.engine.runtime.session import BpfSession, Lost

__all__ = ("KERNEL_KINDS", "front_of", "start_mixed")

KERNEL_KINDS = frozenset(("kprobe", "tracepoint", "rawtp", "syscall", "fentry"))
_FILES, _KERNEL = "usdt.cli.front", "kprobe.cli.front"


def front_of(kind: str) -> Any:
    """The front that probes of a kind belong to."""
    return import_module(_KERNEL if kind in KERNEL_KINDS else _FILES).FRONT


def start_mixed(
    stack: contextlib.ExitStack,
    options: dict[str, Any],
    requests: Sequence[ProbeText],
    session: Callable[[TaskFilter], BpfSession],
) -> Started:
    """Attach probes of files and of the kernel to one session.

    Whom to trace, what ``-c`` starts and when all of it has ended is the same for both, and the
    front of files knows it: it makes the session, and the kernel's probes join.
    """
    kernel = [request for request in requests if request.kind in KERNEL_KINDS]
    files = [request for request in requests if request.kind not in KERNEL_KINDS]
    base = front_of("usdt")
    if not kernel:
        alone: Started = base.start(stack, options, requests, session)
        return alone
    joined: list[Any] = []

    def made(accept: TaskFilter) -> BpfSession:
        one = session(accept)
        try:
            joined.append(front_of("tracepoint").attach(one, kernel, options))
        except BaseException:
            one.close()
            raise
        return one

    whom = options if files else {**options, "everything": False}
    started = base.start(stack, whom, files, made)
    return Started(_Mixed(started.tracing, joined[0]), started.command)


class _Mixed:
    # What the front of files traces, and what of the kernel has joined it.
    def __init__(self, tracing: Tracing, joined: Any) -> None:
        self._tracing = tracing
        self._points = joined.points
        self.notices = tracing.notices
        self.notices += joined.notices

    @property
    def ended(self) -> bool:
        return self._tracing.ended

    @ended.setter
    def ended(self, value: bool) -> None:
        self._tracing.ended = value

    @property
    def attach_log(self) -> list[str]:
        return self._tracing.attach_log

    @property
    def listings(self) -> list[str]:
        return self._tracing.listings

    @property
    def attached(self) -> int:
        return self._tracing.attached + int(self._points)

    def poll(self, timeout: float) -> list[Any]:
        return self._tracing.poll(timeout)

    def drain(self) -> Iterator[list[Any]]:
        yield from self._tracing.drain()

    def lost(self) -> list[Lost]:
        return self._tracing.lost()

    def wake(self) -> None:
        self._tracing.wake()
