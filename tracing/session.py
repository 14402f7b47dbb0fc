"""A session: programs attached, one ring buffer, events taken from it until it is closed.

Pace. The reader is woken when it has caught up and something arrives. After taking little it
stays away for PAUSE, so that the next wake-up brings a batch; after taking much it looks again at
once. What it takes is copied out of the ring buffer first and formatted later, in portions
between which the ring buffer is emptied again: a burst is bounded by memory (BACKLOG) and not by
the speed of formatting.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from bpf._uapi import MapType
from bpf.frozen import frozen
from bpf.maps import MapSpec
from bpf.ringbuf import RingBuffer
from tracing.attach import Attacher, Failure, Placed
from tracing.codegen import COUNTERS, EVENTS, Case, Filter
from tracing.decode import Decoder
from tracing.plan import DEFAULT_STRING, Plan, make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bpf.link import Via
    from tracing.attach import Point
    from tracing.forms import Form
    from tracing.language.tree import ProbeText

__all__ = ("DEFAULT_BUFFER", "Lost", "Session")

DEFAULT_BUFFER = 8 << 20
BACKLOG = 256 << 20  # bytes copied out and not yet formatted; beyond it the ring buffer fills
PAUSE = 0.010  # seconds; a fraction of what the fastest program needs to fill 8 MiB
_COUNTED = 1 << 14  # probes with counters of their own; all later ones share the last
_COUNTER = struct.Struct("=QQ")


@frozen
class Lost:
    """What a probe did not deliver.

    Attributes:
        probe: its name.
        lost: hits for which the ring buffer had no room.
        unread: hits on which a predicate could not be decided, its memory being unreadable.
    """

    probe: str
    lost: int
    unread: int


class Session:
    """Everything of one tracing run; a context manager.

    Args:
        form: what records become.
        accept: which processes count.
        buffer: bytes of ring buffer.
        max_string: bytes that str() keeps.
        via: how to attach; None asks the kernel for its newest way.

    Raises:
        NotSupported: the kernel has no BPF ring buffer.
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """

    def __init__(
        self,
        form: Form,
        *,
        accept: Filter | None = None,
        buffer: int = DEFAULT_BUFFER,
        max_string: int = DEFAULT_STRING,
        via: Via | None = None,
    ) -> None:
        self._decoder = Decoder(form)
        self._max_string = max_string
        self._ring = RingBuffer(buffer, EVENTS)
        try:
            self._counters = MapSpec(MapType.ARRAY, 4, 16, _COUNTED, COUNTERS).create()
        except BaseException:
            self._ring.close()
            raise
        maps = {EVENTS: self._ring.map, COUNTERS: self._counters}
        self._attacher = Attacher(maps, accept or Filter(), via)
        self._cases: dict[tuple[int, Plan], Case] = {}
        self._probes: dict[str, int] = {}
        self._backlog: deque[bytes] = deque()
        self._backlog_size = 0
        self._batches: Iterator[list[Any]] = iter(())
        self._rested = 0.0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = select.epoll()
        self._poller.register(self._ring.fd.fileno(), select.EPOLLIN)
        self._poller.register(self._wake, select.EPOLLIN)
        self._watched: set[int] = set()
        self._closed = False

    @property
    def ways(self) -> list[str]:
        """What was attached, by which kernel path: lines for ``-v``."""
        return self._attacher.ways

    def attach(
        self, request: ProbeText, points: Sequence[Point], *, declared: int | None = None
    ) -> list[Failure]:
        """Attach a probe at some of its sites; may be called again as more are found.

        Raises:
            LanguageError: an item does not fit the probe.
            SyscallError: programs cannot be loaded at all.
        """
        most = max((len(point.arguments) for point in points), default=0)
        plans: dict[Any, Plan] = {}
        placed = []
        for point in points:
            key = (point.probe, point.arguments)
            if key not in plans:
                plans[key] = make_plan(
                    request.items,
                    point.arguments,
                    text=request.text,
                    probe=point.probe,
                    declared=max(most, declared or 0),
                    max_string=self._max_string,
                )
            placed.append(Placed(point, self._case(point.probe, plans[key])))
        return self._attacher.attach(placed)

    def _case(self, probe: str, plan: Plan) -> Case:
        index = self._probes.setdefault(probe, len(self._probes))
        case = self._cases.get((index, plan))
        if case is None:
            case = Case(len(self._cases) + 1, min(index, _COUNTED - 1), plan)
            self._cases[index, plan] = case
            self._decoder.add(case.number, probe, plan)
        return case

    def watch(self, descriptor: int) -> None:
        """Let poll() return early when ``descriptor`` becomes readable (a pidfd)."""
        self._poller.register(descriptor, select.EPOLLIN)
        self._watched.add(descriptor)

    def unwatch(self, descriptor: int) -> None:
        """Forget a descriptor given to watch()."""
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._poller.unregister(descriptor)

    def wake(self) -> None:
        """Let a poll() that waits in another thread, or below a signal handler, return."""
        if not self._closed:
            os.eventfd_write(self._wake, 1)

    def poll(self, timeout: float) -> list[Any]:
        """The next lines or events: some thousands at most, none after ``timeout`` seconds.

        Returns early, with an empty list, after wake() and for watched descriptors.
        """
        deadline = time.monotonic() + timeout
        while True:
            self._collect()
            batch = self._next_batch()
            if batch:
                return batch
            left = deadline - time.monotonic()
            if left <= 0 or self._wait(left):
                return []

    def drain(self) -> Iterator[list[Any]]:
        """Detach everything, then yield what is still there."""
        self._attacher.close()
        while True:
            self._collect()
            batch = self._next_batch()
            if not batch and not self._ring.pending():
                return
            if batch:
                yield batch

    def lost(self) -> list[Lost]:
        """What each probe did not deliver so far; only probes with something to say."""
        found = []
        for name, index in self._probes.items():
            value = self._counters.get(struct.pack("=I", min(index, _COUNTED - 1)))
            lost, unread = _COUNTER.unpack(value or bytes(_COUNTER.size))
            if lost or unread:
                found.append(Lost(name, lost, unread))
        return found

    def close(self) -> None:
        """Detach and free everything; again is fine."""
        if self._closed:
            return
        self._closed = True
        self._attacher.close()
        self._poller.close()
        os.close(self._wake)
        self._counters.close()
        self._ring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _collect(self) -> None:
        # Empty the ring buffer into the backlog.
        if self._backlog_size >= BACKLOG:
            return
        data = self._ring.take()
        if data:
            self._backlog.append(data)
            self._backlog_size += len(data)
            if len(data) > self._ring.size >> 4:
                self._rested = 0.0  # a burst: do not stay away
            else:
                self._rested = time.monotonic() + self._pause()

    def _pause(self) -> float:
        return PAUSE * min(1.0, self._ring.size / DEFAULT_BUFFER)

    def _next_batch(self) -> list[Any]:
        while True:
            batch = next(self._batches, None)
            if batch:
                return batch
            if batch is None:
                if not self._backlog:
                    return []
                data = self._backlog.popleft()
                self._backlog_size -= len(data)
                self._batches = self._decoder.batches(data)

    def _wait(self, seconds: float) -> bool:
        # Whether something else than the ring buffer asks for attention.
        rest = self._rested - time.monotonic()
        if rest > 0:
            time.sleep(min(rest, seconds))
            if self._ring.pending():
                return False
        for number, _ in self._poller.poll(seconds):
            if number == self._wake:
                os.eventfd_read(self._wake)
                return True
            if number in self._watched:
                return True
        return False
