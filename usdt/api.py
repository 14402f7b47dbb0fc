"""The Python interface: list_probes(), attach() and the events it gives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Self

from tracing.forms import Event, EventForm
from tracing.language import parse_probe
from tracing.session import DEFAULT_BUFFER, Session
from tracing.stacks import StackResolver, wants_user_symbols
from usdt.files import find_probes
from usdt.tracer import GRACE, Targets, Tracer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from tracing.codegen import Filter
    from tracing.language.tree import ProbeText
    from tracing.session import Lost
    from tracing.stacks import UserSymbols
    from usdt.probes import Probe

__all__ = ("Events", "attach", "list_probes")

_PORTION = 10_000  # events that poll() collects at most before it returns
_LOOK = 0.5  # seconds between two looks whether an iteration should end


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
    from usdt.points import matching  # noqa: PLC0415 - with the symbols' machinery

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
    on_event: Callable[[Event], object] | None = None,
) -> Events:
    """Attach to probes; events are then in the returned object.

    Args:
        probes: each ``provider:name``, ``PATH:provider:name``, with items in parentheses:
            ``"python:gc__start(arg0)"``, ``"postgresql:query__start(str(arg0), pid != 1)"``.
        pid: a process or several. Without it, and without ``command`` and ``everything``, the
            probes name their files and every process that runs them is traced.
        command: words of a command to start and trace; it runs when attach() returns.
        everything: trace every process.
        follow: the children of ``pid`` and ``command`` as well, those there are and those to come.
        buffer: bytes of ring buffer.
        max_string: bytes that str() keeps of a string.
        patience: seconds to wait for a library that has a probe which is nowhere yet.
        on_event: called by :meth:`Events.run` with each event.

    Raises:
        LanguageError: a probe or an item cannot be understood.
        ProbeNotFound: no such probe; the message names the nearest.
        TargetError: no such process or file.
        SyscallError: the kernel refuses; EPERM without CAP_BPF and CAP_PERFMON.
    """
    pids = (pid,) if isinstance(pid, int) else tuple(pid or ())
    requests = [parse_probe(text) for text in probes]
    stacks = StackResolver(_symbols)
    stacks.wanted = any(map(wants_user_symbols, requests))
    stacks.begin(())
    if command is None:
        targets = Targets(pids, None, everything, follow)
        with contextlib.ExitStack() as stack:
            stack.callback(stacks.close)
            tracer = _tracer(
                requests, targets, stacks, buffer=buffer, max_string=max_string, patience=patience
            )
            stack.pop_all()
        return Events(tracer, on_event, stacks.close, lambda: stacks.observe(()))
    from usdt.spawn import Spawned  # noqa: PLC0415 - only for commands

    with contextlib.ExitStack() as stack:
        stack.callback(stacks.close)
        spawned = stack.enter_context(Spawned(list(command)))
        tracer = _tracer(
            requests,
            Targets((), spawned, follow=follow),
            stacks,
            buffer=buffer,
            max_string=max_string,
            patience=patience,
        )
        stack.callback(tracer.close)
        spawned.release()
        stack.pop_all()

    def release() -> None:
        spawned.close()
        stacks.close()

    return Events(tracer, on_event, release, lambda: stacks.observe(()))


def _symbols() -> UserSymbols:
    from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks

    return Symbolizer(noting=True)


def _tracer(
    requests: list[ProbeText],
    targets: Targets,
    stacks: StackResolver,
    *,
    buffer: int,
    max_string: int,
    patience: float | None,
) -> Tracer:
    def session(accept: Filter) -> Session:
        return Session(EventForm(stacks), accept=accept, buffer=buffer, max_string=max_string)

    return Tracer(requests, targets, session, patience=patience)


class Events:
    """The events of attached probes; a context manager, an iterator and an async iterator.

    Iteration ends when everything that was traced has ended, or after close() in another
    thread. Events are in the order in which they were recorded.

    Attributes:
        lost: hits that were not delivered so far, for want of room.
    """

    def __init__(
        self,
        tracer: Tracer,
        on_event: Callable[[Event], object] | None = None,
        release: Callable[[], None] = lambda: None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._tracer = tracer
        self._on_event = on_event
        self._release = release
        self._look = look  # at what processes have mapped, if stacks are shown
        self._ready: deque[Event] = deque()
        self._stopped = False
        self._closed = False
        self._rest: Iterator[list[Event]] | None = None  # what is left when all has ended
        self._over = False  # nothing is left
        self._busy = threading.RLock()  # held while the kernel's objects are in use
        self._waiting = False  # by a thread that holds it
        self._final: list[Lost] = []

    @property
    def lost(self) -> int:
        """Hits that found no room in the ring buffer; raise ``buffer`` if there are any."""
        return sum(item.lost for item in self.losses)

    @property
    def losses(self) -> list[Lost]:
        """The same for each probe that lost something."""
        with self._busy:
            return self._final if self._closed else self._tracer.lost()

    @property
    def ended(self) -> bool:
        """Whether everything that was traced has ended, and every event has been taken."""
        return self._over or self._stopped

    @property
    def notices(self) -> list[str]:
        """What came up meanwhile, in words: libraries found later, children that were not followed.

        What could not be followed is known once all events have been taken.
        """
        return list(self._tracer.notices)

    def poll(self, timeout: float = 0.0) -> list[Event]:
        """Every event that is there; waits up to ``timeout`` seconds for the first.

        An empty list means that none came in time, or that all has ended. Of a flood it is
        a portion of some ten thousand.
        """
        self._fill(timeout)
        known = 0
        while known < len(self._ready) < _PORTION:
            known = len(self._ready)
            self._take(0.0)
        found = list(self._ready)
        self._ready.clear()
        return found

    def _fill(self, timeout: float) -> bool:
        # Wait until events are ready; whether there are any, or may be later.
        deadline = time.monotonic() + timeout
        while not (self._ready or self._stopped or self._over):
            self._take(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline:
                break
        if self._stopped:
            self.close()  # what a signal handler could not do while we waited
        return bool(self._ready) or not (self._stopped or self._over)

    def _take(self, timeout: float) -> None:
        # One batch, if it comes in time, into what is ready.
        with self._busy:
            self._waiting = True
            try:
                self._ready.extend(self._batch(timeout))
            finally:
                self._waiting = False

    def _batch(self, timeout: float) -> list[Event]:
        if self._rest is None and not self._closed:
            self._look()
            found = self._tracer.poll(timeout)
            if self._tracer.ended:
                self._rest = self._tracer.drain()
            return found
        batch = None if self._closed or self._rest is None else next(self._rest, None)
        self._over = batch is None
        return batch or []

    def run(self, timeout: float | None = None) -> int:
        """Call ``on_event`` for each event until all has ended, close(), or ``timeout`` seconds.

        Returns:
            how many events there were.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        number = 0
        while not self._stopped:
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left < 0:
                break
            events = self.poll(left)
            number += len(events)
            if self._on_event is not None:
                for event in events:
                    self._on_event(event)
            if not events and self._over:
                break
        return number

    def finish(self) -> list[Event]:
        """Detach; every event that is left. Nothing comes after that."""
        with self._busy:
            left = list(self._ready)
            self._ready.clear()
            if self._rest is None and not self._closed:
                self._rest = self._tracer.drain()
            while not self._over:
                left += self._batch(0.0)
        return left

    def close(self) -> None:
        """Detach and free everything; from any thread or signal handler, again is fine.

        A poll() or an iteration in another thread ends.
        """
        self._stopped = True
        self._tracer.wake()
        with self._busy:
            # A signal handler comes here while its own thread waits: woken, that closes itself.
            if not self._closed and not self._waiting:
                self._closed = True
                self._final = self._tracer.lost()
                self._tracer.close()
                self._release()

    def __iter__(self) -> Iterator[Event]:
        while not self._stopped and self._fill(_LOOK):
            while self._ready and not self._stopped:
                yield self._ready.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        import asyncio  # noqa: PLC0415 - slow to import

        loop = asyncio.get_running_loop()
        while not self._stopped and await loop.run_in_executor(None, self._fill, _LOOK):
            while self._ready and not self._stopped:
                yield self._ready.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
