"""``Session``: several probes at once, callbacks, and aggregates as Python mappings."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack, overload

from usdt.base.errors import TracingError
from usdt.base.frozen import replace
from usdt.engine.aggregate.spec import Aggregation, Log2, parse_keys, parse_linear
from usdt.engine.api.aggregates import Aggregate
from usdt.engine.api.attach import (
    open_events,
    parse_probes,
    stack_names,
    target_options,
    trace_options,
)
from usdt.engine.api.listeners import Listeners
from usdt.engine.compiler.limits import (
    DEFAULT_BACKLOG,
    DEFAULT_RESOLUTION,
    DEFAULT_STACK,
    DEFAULT_STRING,
    MAX_RESOLUTION,
)
from usdt.engine.language import parse_items
from usdt.engine.run.options import LIBRARY_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.engine.aggregate.spec import Linear
    from usdt.engine.aggregate.values import Value
    from usdt.engine.api.aggregates import Histogram
    from usdt.engine.api.attach import CgroupOptions
    from usdt.engine.api.events import Events
    from usdt.engine.compiler.limits import UnwindMethod
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters.event_records import Event

__all__ = ("Session",)


class _LatencyOptions(TypedDict, total=False):
    # Options of latency() that do not determine the type of its result.
    key: str
    end_key: str | None
    by: str | None
    resolution: int | None
    at_start: bool
    max_keys: int


_PAUSE = 0.05  # seconds between two polls of run()


class Session:
    """Probes and aggregates on the same processes; a context manager.

    ``kprobe.Session`` is the same, except that a probe that names no kind is a kernel function.

    Args:
        pid: trace one process or several. Without it, every process that hits the probes is
            traced; USDT probes and functions of programs must then name their files.
        all_processes: look for probes that name no file in all processes.
        follow: also trace children of ``pid``.
        buffer: bytes of each ring buffer of events.
        backlog: bytes of hits of each that are kept in memory until they are taken; hits that then
            do not fit ``buffer`` are counted as lost.
        max_string: bytes that str() keeps of a string.
        library_timeout: seconds to wait for a library with a probe that no mapped file has; None
            waits as long as the processes live.
        lines: show source lines and inlined functions in user stacks.
        unwind: how user stacks are unwound: ``auto``, ``dwarf`` (by unwind tables) or ``fp`` (by
            frame pointers).
        stack_bytes: bytes of each user stack that are copied, to unwind it by unwind tables.
        jit_map: let Java virtual machines write their perf maps, for names in user stacks.
        symbols: directories in which the files of user stacks are found by build ID.
        debuginfod: whether to ask the servers of the environment's ``DEBUGINFOD_URLS`` for them.
        cgroups: ``container``, ``pod``, ``unit`` or ``cgroup``: trace only in these, as for
            :func:`usdt.attach`.

    Raises:
        TracingError: from its methods, as from :func:`usdt.attach` and :func:`kprobe.attach`.

    Examples:
        >>> with usdt.Session(pid=1234) as session:
        ...     sizes = session.hist("myapp:request(arg1)")
        ...     by_name = session.count("myapp:request", by="str(arg0)")
        ...     session.on("myapp:error(str(arg0))", print)
        ...     session.run(10)
        >>> by_name["GET /"]
        42
    """

    kind: ClassVar[ProbeKind] = "usdt"  # the kind of a probe that names none

    def __init__(
        self,
        *,
        pid: int | Iterable[int] | None = None,
        all_processes: bool = False,
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
    ) -> None:
        self._target_options = target_options(
            pid=pid,
            all_processes=all_processes,
            follow=follow,
            library_timeout=library_timeout,
            **cgroups,
        )
        self._options = trace_options(
            buffer=buffer,
            backlog=backlog,
            max_string=max_string,
            unwind=unwind,
            stack_bytes=stack_bytes,
        )
        self._names = stack_names(
            lines=lines, jit_map=jit_map, symbols=symbols, debuginfod=debuginfod
        )
        self._aggregates: list[Aggregate[Any]] = []
        self._listeners = Listeners(self._target_options, self._options, self._names)
        self._events: list[Events[Event]] = []
        self._closed = threading.Event()

    def attach(self, *probes: str) -> Events[Event]:
        """Attach to probes; return their events, which are closed with the session.

        Raises:
            TracingError: as from :func:`usdt.attach`; or the session is closed.

        Examples:
            >>> with session.attach("python:gc__start(arg0)") as events:
            ...     print(next(iter(events)).args["arg0"])
        """
        self._check()
        requests = parse_probes(probes, self.kind)
        events = open_events(requests, self._target_options, self._options, self._names)
        self._events.append(events)
        return events

    def on(self, probe: str, callback: Callable[[Event], object]) -> None:
        """Register ``callback``: run() calls it with every event of a probe.

        Events of all probes that have callbacks are one stream, in the order of the hits. Of
        several probes at one place, the kernel decides which fires first.

        Raises:
            TracingError: as from attach().

        Examples:
            >>> session.on("myapp:error(str(arg0))", lambda event: print(event.args))
        """
        self._check()
        (request,) = parse_probes([probe], self.kind)
        self._listeners.add(request, callback)

    def count(self, *probes: str, by: str | None = None, max_keys: int = 10240) -> Aggregate[int]:
        """Count hits in the kernel.

        Args:
            probes: probes; the items in parentheses are predicates.
            by: expressions to group hits by, separated by commas.
            max_keys: maximum number of groups that are kept.

        Raises:
            TracingError: as from attach().
            LanguageError: ``by`` is not valid.

        Examples:
            >>> session.count("myapp:request(arg1 > 0)", by="str(arg0)")["GET /"]
            42
        """
        return self._aggregate(probes, by, max_keys)

    def stats(
        self,
        *probes: str,
        by: str | None = None,
        resolution: int = DEFAULT_RESOLUTION,
        max_keys: int = 10240,
    ) -> Aggregate[Value]:
        """Compute count, sum, minimum, maximum and percentiles of ``PROBE(EXPR)``.

        Args:
            probes: probes, each with an expression in parentheses.
            by: expressions to group values by, separated by commas.
            resolution: the relative error of percentiles is 2^-(resolution + 1); from 0 to 12.
            max_keys: maximum number of groups that are kept.

        Raises:
            TracingError: as from count().
            LanguageError: there is no EXPR.
            ValueError: ``resolution`` is out of range.

        Examples:
            >>> value = session.stats("myapp:request(arg1)", by="comm")["myapp"]
            >>> value.average, value.percentile(99)
            (512.5, 1016)
        """
        return self._aggregate(probes, by, max_keys, stats=True, resolution=_checked(resolution))

    def hist(
        self,
        *probes: str,
        by: str | None = None,
        linear: str | None = None,
        resolution: int | None = None,
        max_keys: int = 10240,
    ) -> Aggregate[Histogram]:
        """Make histograms of ``PROBE(EXPR)``; otherwise the same as count().

        Args:
            probes: probes, each with an expression in parentheses.
            by: expressions to group values by, separated by commas.
            linear: buckets, as ``"LO:HI:STEP"``; by default powers of two.
            resolution: that of percentiles, as for stats(), by default 5. If it is given, and
                ``linear`` is not, the histogram has 2^resolution buckets in each power of two.
            max_keys: maximum number of groups that are kept.

        Raises:
            TracingError: as from stats(); or ``linear`` is not valid.
            TypeError: ``linear`` is not a string.
            ValueError: ``resolution`` is out of range.

        Examples:
            >>> session.hist("myapp:request(arg1)")["myapp:request"][4, 8]
            17
        """
        buckets = Log2() if linear is None else _linear(linear)
        return self._aggregate(
            probes,
            by,
            max_keys,
            fine=resolution is not None and linear is None,
            stats=True,
            buckets=buckets,
            resolution=_checked(resolution),
        )

    @overload
    def latency(
        self, start: str, end: str, *, hist: Literal[True], **options: Unpack[_LatencyOptions]
    ) -> Aggregate[Histogram]: ...

    @overload
    def latency(
        self, start: str, end: str, *, linear: str, **options: Unpack[_LatencyOptions]
    ) -> Aggregate[Histogram]: ...

    @overload
    def latency(
        self, start: str, end: str, **options: Unpack[_LatencyOptions]
    ) -> Aggregate[Value]: ...

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
        resolution: int | None = None,
        at_start: bool = False,
        max_keys: int = 10240,
    ) -> Aggregate[Value] | Aggregate[Histogram]:
        """Measure nanoseconds from START to END: statistics, or histograms of them.

        Args:
            start: the probe that starts the time; its items are predicates.
            end: the probe that ends the time.
            key: expressions that match a start to its end, such as ``arg0``.
            end_key: the key at END, if it differs from ``key``.
            by: expressions to group times by, evaluated at END, or at START with ``at_start``.
            hist: whether to make a :class:`Histogram` for each group, of powers of two.
            linear: buckets of the histogram, as ``"LO:HI:STEP"`` in nanoseconds.
            resolution: that of percentiles and of the histogram, as for hist().
            at_start: whether ``by`` is evaluated at START.
            max_keys: maximum number of groups that are kept.

        Raises:
            TracingError: as from count().

        Examples:
            >>> session.latency("myapp:begin", "myapp:end", key="arg0").values()
        """
        buckets = _linear(linear) if linear is not None else Log2() if hist else None
        return self._aggregate(
            (start, end),
            by,
            max_keys,
            fine=resolution is not None and linear is None,
            stats=True,
            buckets=buckets,
            resolution=_checked(resolution),
            pair=parse_keys(key, "key"),
            pair_end=parse_keys(end_key, "end_key") or None,
            at_start=at_start,
            given=(by, key, end_key),
        )

    def run(self, seconds: float | None = None) -> None:
        """Call the callbacks of on() until the time is over, all processes end, or close().

        Args:
            seconds: the time; None means no limit.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._closed.is_set():
            busy = self._listeners.dispatch()
            ended = [aggregate.look() for aggregate in self._aggregates]
            over = bool(self._target_options.pids) and not busy and all(ended)
            over = over and self._listeners.ended
            if over or (deadline is not None and time.monotonic() >= deadline):
                break
            if not busy:
                left = _PAUSE if deadline is None else max(0.0, deadline - time.monotonic())
                self._closed.wait(min(_PAUSE, left))
        self._listeners.dispatch()

    def close(self) -> None:
        """Detach everything; aggregates keep their values.

        Idempotent; may be called from any thread.
        """
        self._closed.set()
        with contextlib.ExitStack() as stack:
            for aggregate in self._aggregates:
                stack.callback(aggregate.close)
            stack.callback(self._listeners.close)
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
        given: tuple[str | None, ...] | None = None,
        fine: bool = False,
        **more: Any,
    ) -> Aggregate[Any]:
        self._check()
        requests = parse_probes(probes, self.kind)
        aggregation = Aggregation(keys=parse_keys(by, "by"), max_keys=max_keys, **more)
        for request in requests:
            aggregation.check(request)
        texts = (by,) if given is None else given
        keys = tuple(item for text in texts if text for item in parse_items(text))
        options = replace(self._options, keys=keys, aggregated=True)
        made: Aggregate[Any] = Aggregate(
            aggregation, requests, self._target_options, options, self._names, fine=fine
        )
        self._aggregates.append(made)
        return made

    def _check(self) -> None:
        if self._closed.is_set():
            raise TracingError("the session is closed")


def _checked(resolution: int | None) -> int:
    if resolution is None:
        return DEFAULT_RESOLUTION
    if not 0 <= resolution <= MAX_RESOLUTION:
        raise ValueError(f"resolution {resolution}: expected 0 to {MAX_RESOLUTION}")
    return resolution


def _linear(text: object) -> Linear:
    if not isinstance(text, str):
        raise TypeError(f"linear {text!r}: expected a string LO:HI:STEP, as in '0:100:10'")
    return parse_linear(text)
