"""Many probes at once: callbacks, and aggregations as Python mappings."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Self

from usdt.base.errors import TracingError
from usdt.engine.aggregate.spec import Aggregation, Log2, parse_keys, parse_linear
from usdt.engine.api.aggregates import Aggregate
from usdt.engine.api.attach import GRACE, Whom, open_events, parse_all, pids_of
from usdt.engine.runtime.session import DEFAULT_BUFFER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.api.events import Events
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters import Event

__all__ = ("AnySession",)

_PAUSE = 0.05  # seconds between two looks of run()


class AnySession:
    """What ``usdt.Session`` and ``kprobe.Session`` have in common; a context manager.

    Args:
        pid: a process or several; without it, every process that passes the probes: those that
            name their files, and those of the kernel.
        everything: every process.
        follow: children of ``pid`` as well.
        buffer: bytes of each ring buffer of events.
        max_string: bytes that str() keeps of a string.
        patience: seconds to wait for a library that has a probe which is nowhere yet.
        lines: stacks have source lines, and inlined functions are frames of their own.
    """

    kind: ClassVar[ProbeKind] = "usdt"  # of a probe that names none

    def __init__(
        self,
        *,
        pid: int | Iterable[int] | None = None,
        everything: bool = False,
        follow: bool = False,
        buffer: int = DEFAULT_BUFFER,
        max_string: int = 128,
        patience: float | None = GRACE,
        lines: bool = False,
    ) -> None:
        self._whom = Whom(self.kind, pids_of(pid), None, everything, follow, patience, lines=lines)
        self._buffer = buffer
        self._max_string = max_string
        self._aggregates: list[Aggregate] = []
        self._listeners: list[tuple[Events, Callable[[Event], object]]] = []
        self._events: list[Events] = []
        self._closed = threading.Event()

    def attach(self, *probes: str) -> Events:
        """Events of probes, to be iterated or polled; closed with the session.

        Raises:
            TracingError: as ``attach()`` of the module has it; or the session is closed.

        Example:
            >>> with session.attach("python:gc__start(arg0)") as events:
            ...     print(next(iter(events)).args["arg0"])
        """
        self._check()
        events = open_events(probes, self._whom, buffer=self._buffer, max_string=self._max_string)
        self._events.append(events)
        return events

    def on(self, probe: str, callback: Callable[[Event], object]) -> None:
        """Let run() call ``callback`` with every event of a probe.

        Raises:
            TracingError: as attach() has it.

        Example:
            >>> session.on("myapp:error(str(arg0))", lambda event: print(event.args))
        """
        self._listeners.append((self.attach(probe), callback))

    def count(self, *probes: str, by: str | None = None, max_keys: int = 10240) -> Aggregate:
        """Count hits in the kernel; predicates in parentheses choose, ``by`` divides.

        Raises:
            TracingError: as attach() has it; LanguageError for a key that is none.

        Example:
            >>> session.count("myapp:request(arg1 > 0)", by="str(arg0)")["GET /"]
            42
        """
        return self._aggregate(probes, by, max_keys)

    def stats(self, *probes: str, by: str | None = None, max_keys: int = 10240) -> Aggregate:
        """Count, sum, least and greatest of ``PROBE(EXPR)``.

        Raises:
            TracingError: as count() has it; LanguageError where there is no EXPR.

        Example:
            >>> session.stats("myapp:request(arg1)", by="comm")["myapp"].average
            512.5
        """
        return self._aggregate(probes, by, max_keys, stats=True)

    def hist(
        self,
        *probes: str,
        by: str | None = None,
        linear: str | None = None,
        max_keys: int = 10240,
    ) -> Aggregate:
        """A histogram of ``PROBE(EXPR)``: powers of two, or ``linear="LO:HI:STEP"``.

        Raises:
            TracingError: as stats() has it, or ``linear`` is no such text.

        Example:
            >>> session.hist("myapp:request(arg1)")["myapp:request"][4, 8]
            17
        """
        buckets = Log2() if linear is None else parse_linear(linear)
        return self._aggregate(probes, by, max_keys, buckets=buckets)

    def latency(
        self,
        start: str,
        end: str,
        *,
        key: str = "tid",
        end_key: str | None = None,
        by: str | None = None,
        hist: bool = False,
        linear: str | None = None,
        max_keys: int = 10240,
    ) -> Aggregate:
        """Nanoseconds from START to END: statistics, or histograms of them.

        Args:
            start: the probe where time begins, with predicates.
            end: the probe where it ends.
            key: what a start and its end have in common, ``arg0``.
            end_key: the same of END, where it is called something else there.
            by: what results are divided by, as at the start.
            hist: a :class:`Histogram` of powers of two for each key.
            linear: one of ``"LO:HI:STEP"`` nanoseconds.
            max_keys: keys that are kept.

        Raises:
            TracingError: as count() has it.

        Example:
            >>> session.latency("myapp:begin", "myapp:end", key="arg0").values()
        """
        buckets = parse_linear(linear) if linear else Log2() if hist else None
        return self._aggregate(
            (start, end),
            by,
            max_keys,
            stats=buckets is None,
            buckets=buckets,
            pair=parse_keys(key, "key"),
            pair_end=parse_keys(end_key, "end_key") or None,
            words={"key": key, "end_key": end_key},
        )

    def run(self, seconds: float | None = None) -> None:
        """Call the callbacks of on() until ``seconds`` are over, all has ended, or close()."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed.is_set():
            busy = self._dispatch()
            ended = [aggregate.look() for aggregate in self._aggregates]
            over = bool(self._whom.pids) and not busy and all(ended)
            over = over and all(events.ended for events, _ in self._listeners)
            if over or (deadline is not None and time.monotonic() >= deadline):
                break
            if not busy:
                left = _PAUSE if deadline is None else max(0.0, deadline - time.monotonic())
                self._closed.wait(min(_PAUSE, left))
        self._dispatch()

    def close(self) -> None:
        """Detach everything; from any thread, again is fine. Aggregates keep what they have."""
        self._closed.set()
        with contextlib.ExitStack() as stack:
            for aggregate in self._aggregates:
                stack.callback(aggregate.close)
            for events in self._events:
                stack.callback(events.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _aggregate(
        self,
        probes: Sequence[str],
        by: str | None,
        max_keys: int,
        *,
        words: dict[str, str | None] | None = None,
        **more: Any,
    ) -> Aggregate:
        self._check()
        requests = parse_all(self._whom, probes)
        aggregation = Aggregation(keys=parse_keys(by, "by"), max_keys=max_keys, **more)
        for request in requests:
            aggregation.check(request)
        made = Aggregate(
            aggregation,
            requests,
            self._whom,
            max_string=self._max_string,
            by=by,
            **(words or {}),
        )
        self._aggregates.append(made)
        return made

    def _dispatch(self) -> bool:
        # Whether anything came.
        busy = False
        for events, callback in self._listeners:
            for event in events.poll(0.0):
                busy = True
                callback(event)
        return busy

    def _check(self) -> None:
        if self._closed.is_set():
            raise TracingError("the session is closed: nothing more can be attached")
