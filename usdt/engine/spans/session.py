"""A session that delivers spans: maps, attached programs, and the spans that have not ended."""

from __future__ import annotations

import math
import struct
import time
from typing import TYPE_CHECKING, Any

from usdt.base.errors import SyscallError
from usdt.base.frozen import frozen, replace
from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import Map, MapSpec
from usdt.engine.compiler.codegen.model import LEFT, UNPAIRED
from usdt.engine.compiler.codegen.span_record import SPAN_ACTION
from usdt.engine.compiler.entry_return import TIME_OFFSET
from usdt.engine.compiler.record.layout import DURATION_OFFSET
from usdt.engine.output.decode import Decoder
from usdt.engine.runtime.session import Lost, RingBufferSession
from usdt.engine.spans.pairs import (
    BLANK,
    DEEP,
    DEPTHS,
    NESTED,
    SPANS,
    THREADS,
    UNUSED,
    depths_size,
    thread_size,
)
from usdt.engine.spans.planning import STARTED, SpanPlanner
from usdt.engine.spans.started import PairStarts, is_open

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.decode import RecordConsumer
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest
    from usdt.engine.spans.spec import SpanSpec

__all__ = ("SpanCounts", "SpanSession")

_PURGE_SECONDS = 1.0
_THREADS = 1 << 13  # threads whose map entries stay between their spans
_NUMBER, _COMM = 20, 24  # offsets in a record
_WHO = struct.Struct("=I4xI")  # thread and CPU, at 8 in a record
_U64 = struct.Struct("=Q")


@frozen
class SpanCounts:
    """The numbers of starts and ends that were no span.

    Attributes:
        open: starts without an end.
        unmatched: ends without a start.
        no_room: starts that found no room (``--max-open``).
        deep: starts nested too deeply.
        dropped: starts whose function was left by an exception or longjmp().
    """

    open: int
    unmatched: int
    no_room: int
    deep: int
    dropped: int


class SpanSession(RingBufferSession):
    """A session of spans; the other arguments are those of :class:`RingBufferSession`.

    Args:
        spec: the spans.
        form: formats records, or consumes their bytes.
    """

    def __init__(
        self, *, spec: SpanSpec, form: Formatter | RecordConsumer, **settings: Any
    ) -> None:
        self._spec = spec
        self._spans: SpanPlanner
        self._maps: dict[str, Map] = {}
        self._ends: list[tuple[ProbeText, Sequence[AttachPoint], int | None]] = []  # not planned
        self._starts: list[AttachRequest] = []  # not attached
        self._ended = False  # whether an end is attached
        self._purge_at = 0.0
        self._pairs: PairStarts | None = None
        self._early = 0  # ends that came while probes were attached
        self._until = math.inf  # nanoseconds when detaching began
        self._final: SpanCounts | None = None
        super().__init__(form, action=SPAN_ACTION, **settings)
        self._frames.most = spec.max_open
        try:
            self._make(MapSpec(MapType.ARRAY, 4, 24, 1, UNPAIRED))
        except BaseException:
            self.close()
            raise

    def _make_planner(self, **settings: Any) -> SpanPlanner:
        atomics = features.have_fetching_atomics()
        self._spans = SpanPlanner(self._spec, self._report, atomics=atomics, **settings)
        return self._spans

    def _report(self, number: int, probe: str, plan: ProbePlan) -> None:
        # A recording has no spans that have not ended.
        if plan.end_probe or isinstance(self._decoder, Decoder):
            self._add(number, probe, plan)

    def _make(self, spec: MapSpec) -> None:
        try:
            made = spec.create()
        except SyscallError as err:
            what = f"a map of {spec.entries} open spans of {spec.value_size} bytes"
            raise SyscallError(err.errno or 0, what, "a smaller --max-open needs less") from err
        self._resources.callback(made.close)
        self._maps[spec.name] = made
        self._attacher.add_maps({spec.name: made})

    # ------------------------------------------------------------ attaching

    def attach(
        self, request: ProbeText, points: Sequence[AttachPoint], *, declared: int | None = None
    ) -> list[AttachFailure]:
        """Attach as :meth:`BpfSession.attach`.

        Of a pair, the first start is planned before the first end, which reads what the start has
        stored. The first end is attached before the first start, so that no span lacks its end,
        except where both are one probe.
        Ends that come meanwhile are not counted.
        """
        before = self._unmatched()
        failures = self._attach_ends(request, points, declared)
        self._early += self._unmatched() - before
        return failures

    def _attach_ends(
        self, request: ProbeText, points: Sequence[AttachPoint], declared: int | None
    ) -> list[AttachFailure]:
        if self._spec.end is None:
            return super().attach(request, points, declared=declared)
        if request is self._spec.start:
            self._starts += self._spans.plan(request, points, declared or 0)
            self._make_pair_maps()
        else:
            self._ends.append((request, points, declared))
        failures: list[AttachFailure] = []
        if self._ends and self._spec.measures_intervals:
            # The kernel runs uprobes at one place in reverse order of their registration. The end
            # must run first, or each hit would end the span that it has started.
            failures += self._attach(self._starts)
            self._starts.clear()
        if self._spans.images:
            for end, places, number in self._ends:
                failures += super().attach(end, places, declared=number)
                self._ended = True
            self._ends.clear()
        if self._ended:
            failures += self._attach(self._starts)
            self._starts.clear()
        return failures

    def _make_pair_maps(self) -> None:
        if not self._starts or self._pairs is not None:
            return
        key, state, most = self._spans.key_size, self._spans.state_size, self._spec.max_open
        depths = depths_size(pointers=self._spans.pointers)
        threads = self._spec.by_thread
        self._make(MapSpec(MapType.HASH, key, depths, _THREADS if threads else most, DEPTHS))
        self._make(MapSpec(MapType.ARRAY, 4, depths, 1, UNUSED))
        if entries := self._spans.threads:
            size = thread_size(state, pointers=self._spans.pointers)
            self._make(MapSpec(MapType.ARRAY, 4, size, entries, THREADS))
        most += _THREADS if threads else 0
        self._make(MapSpec(MapType.HASH, key, state, most, SPANS))
        self._make(MapSpec(MapType.ARRAY, 4, state, 1, BLANK))
        self._pairs = PairStarts(self._maps, depths)

    # ------------------------------------------------------------ open spans

    def open_spans(self) -> list[Any]:
        """Return the results of the formatter for spans that have not ended, oldest first."""
        if not isinstance(self._decoder, Decoder):
            return []
        now = time.monotonic_ns()
        found = []
        for image in sorted(self._images(), key=_U64.unpack_from):
            age = max(0, now - int(_U64.unpack_from(image)[0]))
            made = image[:DURATION_OFFSET] + _U64.pack(age) + image[DURATION_OFFSET + 8 :]
            if self._spec.by_thread:
                made = made[:_COMM] + _comm(*_WHO.unpack_from(image, 8)) + made[_COMM + 16 :]
            data = struct.pack("=II", len(made), 0) + made
            found += [one for batch in self._decoder.batches(data) for one in batch]
        return found

    def _images(self) -> Iterator[bytes]:
        # Yields the records of starts without an end.
        pairs: Iterable[bytes] = () if self._pairs is None else self._pairs.states()
        for state in self._frames.values() if self._spec.end is None else pairs:
            (number,) = struct.unpack_from("=I", state, TIME_OFFSET + _NUMBER)
            start = self._spans.starts.get(number)
            in_trace = _U64.unpack_from(state, TIME_OFFSET)[0] <= self._until
            if start is not None and is_open(state) and in_trace:
                yield state[TIME_OFFSET : TIME_OFFSET + start.size]

    def poll(self, timeout: float) -> list[Any]:
        """Poll as :meth:`BpfSession.poll` does; also remove the starts of threads that ended."""
        now = time.monotonic()
        if self._spec.by_thread and self._pairs is not None and now >= self._purge_at:
            self._purge_at = now + _PURGE_SECONDS
            self._pairs.purge()
        return super().poll(timeout)

    # ------------------------------------------------------------ counts

    def lost(self) -> list[Lost]:
        """Return the losses of each probe so far; starts are in :meth:`counts`."""
        return [
            one
            if not one.probe.endswith(STARTED)
            else Lost(one.probe[: -len(STARTED)], 0, one.unread)
            for one in super().lost()
            if one.unread or not one.probe.endswith(STARTED)
        ]

    def drain(self) -> Iterator[list[Any]]:
        """End the trace, detach everything, then yield the remaining batches.

        While probes are detached one after the other, some starts have no end.
        """
        if self._final is None:
            self._until = time.monotonic_ns()
            self._final = self.counts()
        return super().drain()

    def counts(self) -> SpanCounts:
        """Return the numbers of starts and ends that were no span."""
        dead = self._frames.ended + (0 if self._pairs is None else self._pairs.dead)
        still = sum(1 for _ in self._images()) + dead
        if self._final is not None:
            return replace(self._final, open=still)
        unmatched = self._unmatched() - self._early
        deep, dropped = self._odd(DEEP), self._odd(LEFT)
        no_room = sum(one.lost for one in super().lost() if one.probe.endswith(STARTED))
        return SpanCounts(still, unmatched, no_room, deep, dropped)

    def _unmatched(self) -> int:
        return self._odd(0)

    def _odd(self, counter: int) -> int:
        found = self._maps[UNPAIRED].get(bytes(4)) or bytes(24)
        return int(_U64.unpack_from(found, counter)[0])

    def unmatched_ends(self) -> int:
        """Return how many ends had no start."""
        return self.counts().unmatched

    def closing_notes(self) -> list[str]:
        """Return the messages that the user must see at the end, in addition to losses."""
        counts = self.counts()
        refused = any(item.is_predicate for item in self._spec.start.items)
        told = (
            (counts.open, "begun and not ended"),
            (counts.unmatched, f"ended without a start{_REFUSED if refused else _BEFORE}"),
            (counts.no_room, f"not kept; a --max-open above {self._spec.max_open} may help"),
            (counts.deep, f"nested deeper than {NESTED} and replaced by a later one"),
            (counts.dropped, "left by an exception or longjmp()"),
        )
        notes = [f"{_spans(number)} {text}" for number, text in told if number]
        return [*self._attach_notes(), *notes]


_BEFORE = ": it began before the trace, or its start was lost"
_REFUSED = ": a predicate of the start refused it, or it began before the trace"


def _comm(thread: int, cpu: int) -> bytes:
    # The name of a thread, which only the end of a span writes.
    try:
        with open(f"/proc/{thread}/comm", "rb") as file:  # noqa: PTH123 - fast
            name = file.read(15).rstrip(b"\n")
    except OSError:
        name = b"?" if thread else b"swapper/%d" % cpu
    return name.ljust(16, b"\0")


def _spans(number: int) -> str:
    return "1 span was" if number == 1 else f"{number} spans were"
