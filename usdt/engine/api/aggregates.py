"""Kernel aggregates as Python mappings."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import ItemsView, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from usdt.base.collector import without_collector
from usdt.engine.aggregate.results import Results
from usdt.engine.aggregate.session import AggregateSession
from usdt.engine.aggregate.spec import is_pattern
from usdt.engine.run.attach import attach_probes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.aggregate.results import Part
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.aggregate.values import Value
    from usdt.engine.api.attach import StackNames
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.options import TargetOptions, TraceOptions

__all__ = ("Aggregate", "Histogram")

V_co = TypeVar("V_co", covariant=True)
_NAMELESS = frozenset((int, str))  # types of parts of keys that are shown as they are


class Histogram(Mapping[tuple[int | None, int | None], int]):
    """The buckets of one histogram: (lower bound, upper bound) → hits.

    The lower bound is inclusive, the upper bound exclusive; None means unbounded. Only buckets with
    hits are included, in ascending order. Bounds are values of the expression given to hist(), or
    nanoseconds for latency().

    Attributes:
        count: the total number of hits.
        error: the largest relative error of percentile().

    Examples:
        >>> sizes = session.hist("myapp:request(arg1)")["myapp:request"]
        >>> sizes, sizes.percentile(90)
        (<histogram of 3: {(4, 8): 2, (8, 16): 1}>, 9)
    """

    def __init__(self, buckets: dict[tuple[int | None, int | None], int], value: Value) -> None:
        self._buckets = buckets
        self._value = value
        self.count = value.count
        self.error = value.error

    def percentile(self, percent: float) -> int | None:
        """Return the smallest value that at least ``percent`` of the hits do not exceed.

        Its relative error is :attr:`error` at most. None without hits, or if hits that had no space
        for a bucket leave it open.
        """
        return self._value.percentile(percent)

    def __getitem__(self, edges: tuple[int | None, int | None]) -> int:
        return self._buckets[edges]

    def __iter__(self) -> Iterator[tuple[int | None, int | None]]:
        return iter(self._buckets)

    def __len__(self) -> int:
        return len(self._buckets)

    def __repr__(self) -> str:
        return f"<histogram of {self.count}: {self._buckets}>"


class Aggregate(Mapping[Any, V_co]):
    """The current values of a kernel aggregate: key → value, read from the kernel at each access.

    A key is the value of ``by``, or a tuple if ``by`` has several expressions. An array is a tuple
    of its elements, a stack one of its frames, innermost first. Without ``by``, the key is the name
    of the probe; with ``by`` and several probes, the name comes first in the tuple.

    The type of a value, V_co, depends on the method: an int for count(); a
    :class:`usdt.engine.aggregate.values.Value` with ``count``, ``sum``, ``min``, ``max``,
    ``average``, ``percentile(99)`` and its relative ``error`` for stats() and latency(); a
    :class:`Histogram` for hist().

    The mapping keeps its last values after close() of the session.

    Raises:
        KeyError: there is no hit with this key.
        ProbeNotFound: from look() and run(): no library with the probe was loaded in time.

    Examples:
        >>> counts = session.count("myapp:request", by="str(arg0)")
        >>> dict(counts), counts.lost
        ({'GET /': 42}, 0)
    """

    def __init__(
        self,
        aggregation: Aggregation,
        requests: Sequence[ProbeText],
        targets: TargetOptions,
        options: TraceOptions,
        names: StackNames,
        *,
        fine: bool = False,
    ) -> None:
        self._aggregation = aggregation
        self._fine = fine  # whether the buckets of histograms are those of percentiles
        self._resolver = names.resolver(users=aggregation.names)
        self._resolver.wanted = aggregation.names
        self._lock = threading.RLock()
        self._final: tuple[dict[Any, V_co], int] | None = None
        self._several = len(requests) > 1 or any(map(is_pattern, requests))
        self._session: AggregateSession
        if aggregation.cgroups:
            self._resolver.cgroups()
        self._resolver.begin(targets.pids)

        def session(tasks: TaskFilter) -> AggregateSession:
            self._session = AggregateSession(
                aggregation,
                requests,
                accept=tasks,
                max_string=options.max_string,
                python=self._resolver.python_processes,
                unwind=options.unwind,
                code=self._resolver.code,
                pids=targets.pids,
            )
            return self._session

        with contextlib.ExitStack() as stack:
            stack.callback(self._resolver.close)
            # At one place the end runs first: a probe is measured to its own next hit.
            order = requests[::-1] if aggregation.pair else requests
            self._targets = attach_probes(stack, targets, order, session, options).targets
            self._resources = stack.pop_all()
        self._results = Results(self._session, requests, self._resolver)

    def snapshot(self) -> dict[Any, V_co]:
        """Return a dictionary of all keys and values, from a single reading."""
        with self._lock:
            if self._final is not None:
                return dict(self._final[0])
            with without_collector():
                return self._read()

    def _read(self) -> dict[Any, Any]:
        counts = self._counts_of_integers()
        if counts is not None:
            return counts
        values = self._plain_values()
        if values is not None:
            return {key: self._value(values.pop(key)) for key in _by_count(values)}
        values = {}
        for result in self._results.of(self._session.each()):
            # Stacks of different files may have the same text.
            _add(
                values, self._key(result.probe, [_plain(part) for part in result.key]), result.value
            )
        return {key: self._value(value) for key, value in values.items()}

    def _counts_of_integers(self) -> dict[Any, Any] | None:
        # Hits by keys that are integers, without an object for what is known of each.
        if self._several or not self._aggregation.counts_alone:
            return None
        rows = self._session.read_plain()
        integers = None if rows is None else rows.integers()
        if rows is None or integers is None:
            return None
        order = sorted(range(len(rows)), key=integers.__getitem__)
        order.sort(key=rows.hits.__getitem__)
        return {integers[at]: rows.hits[at] for at in order}

    def _plain_values(self) -> dict[Any, Value] | None:
        # The values by keys that need no name: numbers and text. None if there are others.
        values: dict[Any, Value] = {}
        label = self._results.labels()
        for row in self._session.each():
            if not _NAMELESS.issuperset(map(type, row.key)):
                return None
            _add(values, self._key(label(row.source), row.key), row.value)
        return values

    @property
    def probes(self) -> tuple[str, ...]:
        """The attached probes that have results."""
        return tuple(dict.fromkeys(source.probe for source in self._session.sources()))

    @property
    def lost(self) -> int:
        """The number of hits in no value: no space for their key, or an unreadable expression."""
        with self._lock:
            if self._final is not None:
                return self._final[1]
            return sum(item.lost + item.unread for item in self._targets.lost())

    def __getitem__(self, key: Any) -> V_co:
        return self.snapshot()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.snapshot())

    def __len__(self) -> int:
        return len(self.snapshot())

    def items(self) -> ItemsView[Any, V_co]:
        """Return keys and values, from a single reading."""
        return self.snapshot().items()

    def __repr__(self) -> str:
        return f"<aggregate {self.snapshot()}>"

    def look(self) -> bool:
        """Attach to newly loaded libraries; return whether all traced processes have ended."""
        with self._lock:
            if self._final is None and not self._targets.ended:
                self._targets.poll(0.0)
                self._resolver.observe(())
            return self._final is not None or self._targets.ended

    def close(self) -> None:
        """Detach; the mapping keeps its values. Idempotent."""
        with self._lock:
            if self._final is None:
                with self._resources:
                    for _ in self._targets.drain():  # detaches, before the last reading
                        pass
                    self._final = self.snapshot(), self.lost

    def _key(self, probe: str, parts: Sequence[Any]) -> Any:
        if self._several or not parts:
            parts = probe, *parts
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _value(self, value: Value) -> Any:
        buckets, spread = self._aggregation.buckets, value.distribution
        if buckets is None:
            return value if self._aggregation.stats else value.count
        if self._fine and spread is not None:
            counts = spread.counts
            return Histogram({spread.buckets.edges(n): counts[n] for n in sorted(counts)}, value)
        counted = enumerate(value.buckets)
        return Histogram({buckets.edges(index): n for index, n in counted if n}, value)


def _add(values: dict[Any, Value], key: Any, value: Value) -> None:
    known = values.get(key)
    values[key] = value if known is None else known.plus(value)


def _by_count(values: Mapping[Any, Value]) -> list[Any]:
    # The keys, that with the most hits last.
    try:
        keys = sorted(values)
    except TypeError:  # numbers and text
        keys = sorted(values, key=str)
    keys.sort(key=lambda key: values[key].count)
    return keys


def _plain(part: Part) -> Any:
    if part.frames:
        return part.frames
    if type(part.number) in (int, float):
        return part.number
    value = json.loads(part.json)
    if isinstance(value, list):
        return tuple(value)
    return part.text if isinstance(value, dict) else value
