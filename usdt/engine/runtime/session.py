"""Sessions: attached programs, one ring buffer, and the records read from it.

A thread of its own reads the ring buffer (:mod:`usdt.engine.runtime.ringbuf_reader`). The session
formats records when its caller polls.
"""

from __future__ import annotations

import contextlib
import struct
import time
from typing import TYPE_CHECKING, Any, Self

from usdt.base.errors import LanguageError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec
from usdt.bpf.rings.array_rings import ArrayRings, can_use_array
from usdt.bpf.rings.groups import RingGroups, size_of_each
from usdt.bpf.rings.ringbuf import HEADER, RingBuffer
from usdt.engine.compiler.codegen.model import COUNTERS, ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.record import RECORD_ACTION
from usdt.engine.compiler.codegen.ring_writes import BELL, EVENTS
from usdt.engine.compiler.limits import (
    DEFAULT_BACKLOG,
    DEFAULT_BUFFER,
    DEFAULT_STACK,
    DEFAULT_STRING,
    DEFAULT_STRUCT,
)
from usdt.engine.output.decode import Decoder, RecordConsumer
from usdt.engine.runtime.attach.attacher import Attacher
from usdt.engine.runtime.entry_state import EntryStateMaps
from usdt.engine.runtime.planner import MAX_COUNTERS, AttachPlanner
from usdt.engine.runtime.poller import Pollable
from usdt.engine.runtime.ringbuf_reader import RingBufferReader
from usdt.engine.runtime.unwinding import StackCopies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.bpf.link import UprobeMethod
    from usdt.bpf.maps import Map
    from usdt.bpf.rings.several import RingBuffers
    from usdt.engine.compiler.codegen.model import ActionEmitter
    from usdt.engine.compiler.limits import UnwindMethod
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.language.tree import ProbeText, StackKind
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.output.python_processes import PythonProcesses
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest

__all__ = ("BpfSession", "Lost", "RingBufferSession")

_MANY = 256  # most counters that are read one by one
_COUNTER = struct.Struct("=QQ")


@frozen
class Lost:
    """The hits that a probe did not deliver.

    Attributes:
        probe: name of the probe.
        lost: hits that did not fit into the ring buffer.
        unread: hits with a predicate whose memory could not be read.
    """

    probe: str
    lost: int
    unread: int


class BpfSession(Pollable):
    """The base of sessions: attached programs, counters, and polling; a context manager.

    A session is one tracing run. :class:`RingBufferSession` delivers records;
    :class:`usdt.engine.aggregate.session.AggregateSession` aggregates in the kernel.

    Args:
        planner: plans the programs.
        maps: maps that programs refer to by name, in addition to the counters; the caller closes
            them.
        accept: the traced processes.
        via: the attach method; None selects the newest method that the kernel has.
        action: emits the action at a hit.
        may_sleep: whether programs may take page faults; some BPF helpers do not allow it.

    Attributes:
        by_tracefs: whether it reads records of tracefs instead of running programs.
    """

    by_tracefs = False

    def __init__(
        self,
        planner: AttachPlanner,
        maps: dict[str, Map],
        *,
        accept: TaskFilter | None = None,
        via: UprobeMethod | None = None,
        action: ActionEmitter = RECORD_ACTION,
        may_sleep: bool = True,
    ) -> None:
        self._resources = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.push(self._resources)
            self._counters = MapSpec(MapType.ARRAY, 4, 16, MAX_COUNTERS, COUNTERS).create()
            self._resources.callback(self._counters.close)
            self._open(self._resources)
            self._attacher = Attacher(
                {**maps, COUNTERS: self._counters},
                accept or TaskFilter(),
                via,
                action,
                may_sleep=may_sleep,
            )
            self._frames = EntryStateMaps()
            self._resources.callback(self._frames.close)
            self._resources.callback(self._attacher.close)
            undo.pop_all()
        self._planner = planner
        self._python: PythonProcesses | None = None
        self._planner.atomics = features.have_fetching_atomics
        self._closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """The only processes that are traced; empty for all processes, or for a followed set."""
        return self._attacher.pids

    @property
    def attach_log(self) -> list[str]:
        """Messages on what was attached and by which attach method, for ``-v``."""
        return self._attacher.attach_log

    @property
    def listings(self) -> list[str]:
        """The instructions of every loaded program, one per line, for ``-v -v``."""
        return self._attacher.listings()

    def attach(
        self, request: ProbeText, points: Sequence[AttachPoint], *, declared: int | None = None
    ) -> list[AttachFailure]:
        """Attach a probe at some of its sites; may be called again as more are found.

        Args:
            request: the probe.
            points: the attach points.
            declared: number of arguments that the probe declares; None if unknown.

        Returns:
            The attach points that could not be attached, with the errors.

        Raises:
            LanguageError: an item is not valid at the probe.
            TracingError: a record is larger than the ring buffer.
            SyscallError: programs cannot be loaded at all.
        """
        return self._attach(self._planner.plan(request, points, declared or 0))

    def _attach(self, requests: Sequence[AttachRequest]) -> list[AttachFailure]:
        for role in dict.fromkeys(one.variant.call for one in requests):
            if role is not None:
                self._attacher.add_maps(self._frames.maps(role.size, role.places))
        if self._python is None and self._needs_python(requests):
            self._python = self._python_processes()
            self._attacher.add_maps(self._python.maps)
            for descriptor in self._python.descriptors:
                self.watch(descriptor)
        self._start()
        return self._attacher.attach(requests)

    def _needs_python(self, requests: Sequence[AttachRequest]) -> bool:
        # Returns whether programs walk Python frames.
        return any(one.variant.plan.has_python_stack for one in requests)

    def _python_processes(self) -> PythonProcesses:
        # Lets programs that record Python stacks know the Python processes.
        raise TracingError("this session records no Python stacks")

    def check_items(self, request: ProbeText, point: AttachPoint) -> LanguageError | None:
        """Return the error of a probe's items at an attach point; None if they are valid."""
        return self._planner.check_items(request, point)

    def _start(self) -> None:
        # Called before anything is attached.
        pass

    def poll(self, timeout: float) -> list[Any]:
        """Poll as :meth:`Pollable.poll` does; also purge stale entry state every ten seconds."""
        self._frames.purge(time.monotonic())
        if self._python is not None:
            self._python.update()
        return super().poll(timeout)

    def drain(self) -> Iterator[list[Any]]:
        """Detach everything, then yield the remaining batches."""
        self._attacher.close()
        while batch := self._next_batch():
            yield batch

    def lost(self) -> list[Lost]:
        """Return the losses of each probe so far; probes without losses are omitted."""
        found = []
        many = dict(self._counters.items()) if len(self._planner.probes) > _MANY else None
        for name, index in self._planner.probes.items():
            if index >= MAX_COUNTERS:  # counted with the last probe that has a counter
                break
            key = struct.pack("=I", index)
            value = self._counters.get(key) if many is None else many.get(key)
            lost, unread = _COUNTER.unpack(value or bytes(_COUNTER.size))
            if lost or unread:
                found.append(Lost(name, lost, unread))
        return found

    def unmatched_ends(self) -> int:
        """Return how many ends of pairs had no start."""
        return 0

    def closing_notes(self) -> list[str]:
        """Return the messages that the user must see at the end, in addition to losses."""
        notices = self._attach_notes()
        number = self._frames.open()
        if not number:
            return notices
        what = "1 call has" if number == 1 else f"{number} calls have"
        why = "left by longjmp() or an exception, or nested deeper than the kernel follows (64)"
        return [*notices, f"{what} begun and not returned: still under way, {why}"]

    def _attach_notes(self) -> list[str]:
        notices = (
            [f"detaching took {self._attacher.detach_seconds:.1f} s"]
            if self._attacher.detach_seconds
            else []
        )
        if missed := self._attacher.missed:
            what = "hit was" if missed == 1 else "hits were"
            why = "on a CPU where another probe was at work, or with too many calls under way"
            where = ", ".join(f"{name} ({number})" for name, number in self._attacher.most_missed)
            most = f"; most in {where}" if where else ""
            notices.append(f"{missed} {what} missed by the kernel, {why}{most}")
        return notices

    def close(self) -> None:
        """Detach and free everything. Idempotent."""
        if not self._closed:
            self._closed = True
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _ring_buffers(size: int, action: ActionEmitter) -> ArrayRings | RingBuffer | RingBuffers:
    groups = action.groups
    each = size_of_each(size, groups.count)
    if action.writes_to_arrays and can_use_array(groups, each):
        return ArrayRings(each, groups.count, EVENTS)
    if groups.count > 1:
        from usdt.bpf.rings.several import RingBuffers  # noqa: PLC0415 - only with many CPUs

        return RingBuffers(size, groups.count, EVENTS)
    return RingBuffer(size, EVENTS)


class RingBufferSession(BpfSession):
    """A session that delivers each record as its formatter renders it.

    Args:
        form: formats records, or consumes their bytes.
        accept: the traced processes.
        buffer: bytes of the ring buffer.
        backlog: bytes of records that are copied from it and wait to be formatted.
        max_string: bytes that str() keeps of a string.
        max_struct: bytes that are kept of a structure.
        via: the attach method; None selects the newest method that the kernel has.
        stacks: ``ustack``, ``kstack``: recorded at every hit, in addition to the items.
        action: writes the records.
        unwind: how user stacks are unwound.
        stack_bytes: bytes of a stack that are copied, to unwind it by unwind tables.
        may_sleep: as for :class:`BpfSession`.

    Raises:
        TracingError: max_string, max_struct or stack_bytes is out of range.
        NotSupported: the kernel has no BPF ring buffer, or cannot record stacks as ``unwind`` asks.
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """

    def __init__(
        self,
        form: Formatter | RecordConsumer,
        *,
        accept: TaskFilter | None = None,
        buffer: int = DEFAULT_BUFFER,
        backlog: int = DEFAULT_BACKLOG,
        max_string: int = DEFAULT_STRING,
        max_struct: int = DEFAULT_STRUCT,
        via: UprobeMethod | None = None,
        stacks: Sequence[StackKind] = (),
        action: ActionEmitter = RECORD_ACTION,
        unwind: UnwindMethod = "auto",
        stack_bytes: int = DEFAULT_STACK,
        may_sleep: bool = True,
    ) -> None:
        planner = self._make_planner(
            max_string=max_string,
            max_struct=max_struct,
            stacks=stacks,
            copies=StackCopies(unwind, stack_bytes),
        )
        self._decoder = form if isinstance(form, RecordConsumer) else Decoder(form)
        self._ring = _ring_buffers(buffer, action)
        maps = {EVENTS: self._ring.map}
        if isinstance(self._ring, ArrayRings):
            maps[BELL] = self._ring.bell.map
            groups = action.groups
            action = action.into(RingGroups(groups.count, groups.shift, self._ring.size))
        try:
            super().__init__(
                planner,
                maps,
                accept=accept,
                via=via,
                action=action,
                may_sleep=may_sleep,
            )
        except BaseException:
            self._ring.close()
            raise
        self._reader = RingBufferReader(self._ring, backlog)
        self._batches: Iterator[list[Any]] = iter(())
        self._arrive_by(self._reader.arrived)

    def _make_planner(self, **settings: Any) -> AttachPlanner:
        return AttachPlanner(self._announce, **settings)

    def _python_processes(self) -> PythonProcesses:
        return self._decoder.python_processes(self.pids)

    def _announce(self, variant: ProgramVariant, probe: str, request: ProbeText) -> None:  # noqa: ARG002
        self._add(variant.number, probe, variant.plan)

    def _add(self, number: int, probe: str, plan: ProbePlan) -> None:
        # Announces records of a number.
        if plan.size + HEADER >= self._ring.size:
            raise TracingError(
                f"{probe}: a record of {plan.size} bytes does not fit a ring buffer of "
                f"{self._ring.size}; give a larger buffer, or shorter strings"
            )
        self._decoder.add(number, probe, plan)

    def _start(self) -> None:
        self._reader.start()

    def drain(self) -> Iterator[list[Any]]:
        """Detach everything, then yield the remaining batches."""
        self._attacher.close()
        self._reader.stop_and_drain()
        yield from super().drain()

    def close(self) -> None:
        """Detach and free everything. Idempotent."""
        if not self._closed:
            self._attacher.close()
            self._reader.close()
            super().close()
            self._ring.close()

    def _last_batch(self) -> list[Any]:
        self._reader.drain_once()
        return self._next_batch()

    def _next_batch(self) -> list[Any]:
        while True:
            self._reader.drain_if_filling()
            batch = next(self._batches, None)
            if batch:
                return batch
            if batch is None:
                data = self._reader.next()
                if data is None:
                    return []
                self._batches = self._decoder.batches(data)
