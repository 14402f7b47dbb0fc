"""``usdt.Session``: many probes at once, callbacks, and aggregations as Python mappings."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from bpf.errors import TracingError
from tracing.aggregate.results import Results
from tracing.aggregate.session import AggregateSession
from tracing.aggregate.spec import Aggregation, Log2, is_pattern, parse_keys, parse_linear
from tracing.language import parse_probe
from tracing.session import DEFAULT_BUFFER
from tracing.stacks import StackResolver
from usdt.api import attach
from usdt.tracer import GRACE, Targets, Tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tracing.aggregate.results import Part, Result
    from tracing.aggregate.values import Value
    from tracing.codegen import Filter
    from tracing.forms import Event
    from tracing.language.tree import ProbeText
    from tracing.stacks import UserSymbols
    from usdt.api import Events

__all__ = ("Aggregate", "Histogram", "Session")

_PAUSE = 0.05  # seconds between two looks of run()


class Histogram(Mapping[tuple[int | None, int | None], int]):
    """Buckets of one histogram: (least value, least beyond it) → hits; None: no end there.

    Only buckets with hits are in it, in order.

    Attributes:
        count: hits in all.
    """

    def __init__(self, buckets: dict[tuple[int | None, int | None], int]) -> None:
        self._buckets = buckets
        self.count = sum(buckets.values())

    def __getitem__(self, edges: tuple[int | None, int | None]) -> int:
        return self._buckets[edges]

    def __iter__(self) -> Iterator[tuple[int | None, int | None]]:
        return iter(self._buckets)

    def __len__(self) -> int:
        return len(self._buckets)

    def __repr__(self) -> str:
        return f"<histogram of {self.count}: {self._buckets}>"


class Aggregate(Mapping[Any, Any]):
    """What the kernel has aggregated so far: key → value, read when it is looked at.

    Keys are the values of ``by``: one alone as it is, several as a tuple; a stack is a tuple of
    its frames, innermost first. Where ``by`` is not given the key is the probe's name; where
    several probes are aggregated by keys it comes first. Values: an int of count(); of stats()
    and latency() a :class:`tracing.aggregate.values.Value` with ``count``, ``sum``, ``least``,
    ``greatest``, ``average``; a :class:`Histogram` of hist().

    After the session's close() it keeps what it had then.
    """

    def __init__(
        self, aggregation: Aggregation, requests: Sequence[ProbeText], owner: _Owner
    ) -> None:
        self._aggregation = aggregation
        self._resolver = StackResolver(_symbols if aggregation.names else None)
        self._resolver.wanted = aggregation.names
        self._lock = threading.RLock()
        self._final: tuple[dict[Any, Any], int] | None = None
        self._several = len(requests) > 1 or any(map(is_pattern, requests))
        self._made: AggregateSession
        self._resolver.begin(owner.targets.pids)

        def session(accept: Filter) -> AggregateSession:
            self._made = AggregateSession(
                aggregation, requests, accept=accept, max_string=owner.max_string
            )
            return self._made

        try:
            self._tracer = Tracer(requests, owner.targets, session, patience=owner.patience)
        except BaseException:
            self._resolver.close()
            raise
        self._results = Results(self._made, requests, self._resolver)

    def snapshot(self) -> dict[Any, Any]:
        """All of it, of one moment."""
        with self._lock:
            if self._final is not None:
                return dict(self._final[0])
            rows = self._made.read()
            return {
                self._key(result): self._value(result.value) for result in self._results.of(rows)
            }

    @property
    def lost(self) -> int:
        """Hits that are in no value: no room for their key, or one that could not be read."""
        with self._lock:
            if self._final is not None:
                return self._final[1]
            return sum(item.lost + item.unread for item in self._tracer.lost())

    def __getitem__(self, key: Any) -> Any:
        return self.snapshot()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self.snapshot())

    def items(self) -> Any:
        """Keys and values of one moment."""
        return self.snapshot().items()

    def __repr__(self) -> str:
        return f"<aggregate {self.snapshot()}>"

    def look(self) -> bool:
        """Attach to what was loaded meanwhile; whether everything traced has ended."""
        with self._lock:
            if self._final is None and not self._tracer.ended:
                self._tracer.poll(0.0)
                self._resolver.observe(())
            return self._final is not None or self._tracer.ended

    def close(self) -> None:
        """Detach; what was aggregated stays here. Again is fine."""
        with self._lock:
            if self._final is None:
                with contextlib.closing(self._resolver), contextlib.closing(self._tracer):
                    for _ in self._tracer.drain():  # detaches, before the last reading
                        pass
                    self._final = self.snapshot(), self.lost

    def _key(self, result: Result) -> Any:
        parts = [_plain(part) for part in result.key]
        if self._several or not parts:
            parts.insert(0, result.probe)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _value(self, value: Value) -> Any:
        buckets = self._aggregation.buckets
        if buckets is not None:
            counted = enumerate(value.buckets)
            return Histogram({buckets.edges(index): n for index, n in counted if n})
        return value if self._aggregation.stats else value.count


class _Owner:
    # What a session's aggregates share.
    def __init__(self, targets: Targets, max_string: int, patience: float | None) -> None:
        self.targets = targets
        self.max_string = max_string
        self.patience = patience


class Session:
    """Probes and aggregations on the same processes; a context manager.

    Args:
        pid: a process or several; without it probes name their files.
        everything: every process.
        follow: children of ``pid`` as well.
        buffer: bytes of each ring buffer of events.
        max_string: bytes that str() keeps of a string.
        patience: seconds to wait for a library that has a probe which is nowhere yet.

    Example:
        >>> with usdt.Session(pid=1234) as session:
        ...     sizes = session.hist("myapp:request(arg1)")
        ...     by_name = session.count("myapp:request", by="str(arg0)")
        ...     session.on("myapp:error(str(arg0))", print)
        ...     session.run(10)
        >>> by_name["GET /"]
        42
    """

    def __init__(
        self,
        *,
        pid: int | Iterable[int] | None = None,
        everything: bool = False,
        follow: bool = False,
        buffer: int = DEFAULT_BUFFER,
        max_string: int = 128,
        patience: float | None = GRACE,
    ) -> None:
        self._pids = (pid,) if isinstance(pid, int) else tuple(pid or ())
        targets = Targets(self._pids, None, everything, follow)
        self._owner = _Owner(targets, max_string, patience)
        self._buffer = buffer
        self._aggregates: list[Aggregate] = []
        self._listeners: list[tuple[Events, Callable[[Event], object]]] = []
        self._events: list[Events] = []
        self._closed = threading.Event()

    def attach(self, *probes: str) -> Events:
        """Events of probes, to be iterated or polled; closed with the session.

        Raises:
            TracingError: as :func:`usdt.attach` has it.
        """
        self._check()
        targets = self._owner.targets
        events = attach(
            *probes,
            pid=self._pids or None,
            everything=targets.everything,
            follow=targets.follow,
            buffer=self._buffer,
            max_string=self._owner.max_string,
            patience=self._owner.patience,
        )
        self._events.append(events)
        return events

    def on(self, probe: str, callback: Callable[[Event], object]) -> None:
        """Let run() call ``callback`` with every event of a probe."""
        self._listeners.append((self.attach(probe), callback))

    def count(self, *probes: str, by: str | None = None, max_keys: int = 10240) -> Aggregate:
        """Count hits in the kernel; predicates in parentheses choose, ``by`` divides."""
        return self._aggregate(probes, by, max_keys)

    def stats(self, *probes: str, by: str | None = None, max_keys: int = 10240) -> Aggregate:
        """Count, sum, least and greatest of ``PROBE(EXPR)``."""
        return self._aggregate(probes, by, max_keys, stats=True)

    def hist(
        self,
        *probes: str,
        by: str | None = None,
        linear: str | None = None,
        max_keys: int = 10240,
    ) -> Aggregate:
        """A histogram of ``PROBE(EXPR)``: powers of two, or ``linear="LO:HI:STEP"``."""
        buckets = Log2() if linear is None else parse_linear(linear)
        return self._aggregate(probes, by, max_keys, buckets=buckets)

    def latency(
        self,
        start: str,
        end: str,
        *,
        key: str = "tid",
        by: str | None = None,
        max_keys: int = 10240,
    ) -> Aggregate:
        """Nanoseconds from START to END; ``key`` is what the two have in common."""
        pair = parse_keys(key, "key")
        return self._aggregate((start, end), by, max_keys, stats=True, pair=pair)

    def run(self, seconds: float | None = None) -> None:
        """Call the callbacks of on() until ``seconds`` are over, all has ended, or close()."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed.is_set():
            busy = self._dispatch()
            ended = [aggregate.look() for aggregate in self._aggregates]
            over = bool(self._pids) and not busy and all(ended)
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
        self, probes: Sequence[str], by: str | None, max_keys: int, **more: Any
    ) -> Aggregate:
        self._check()
        requests = [parse_probe(text) for text in probes]
        aggregation = Aggregation(keys=parse_keys(by, "by"), max_keys=max_keys, **more)
        for request in requests:
            aggregation.check(request)
        made = Aggregate(aggregation, requests, self._owner)
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


def _symbols() -> UserSymbols:
    from usdt.symbolize import Symbolizer  # noqa: PLC0415 - only for stacks

    return Symbolizer(noting=True)


def _plain(part: Part) -> Any:
    if part.frames:
        return part.frames
    value = json.loads(part.json)
    return part.text if isinstance(value, (dict, list)) else value
