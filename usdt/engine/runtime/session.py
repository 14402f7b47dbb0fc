"""A session: programs attached, one ring buffer, events taken from it until it is closed.

Records come out of the ring buffer in a thread of their own
(:mod:`usdt.engine.runtime.ringbuf_reader`); they are formatted here, when somebody asks for them.
"""

from __future__ import annotations

import contextlib
import struct
import time
from typing import TYPE_CHECKING, Any, Self

from usdt.base.errors import LanguageError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec
from usdt.bpf.ringbuf import HEADER, RingBuffer
from usdt.engine.compiler.codegen.model import COUNTERS, ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.record import EVENTS, RECORD_ACTION
from usdt.engine.compiler.entry_return import EntryReturnRole, for_32bit_process, split_entry_return
from usdt.engine.compiler.limits import DEFAULT_STRING, DEFAULT_STRUCT, MAX_READ
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.output.decode import Decoder, RecordConsumer
from usdt.engine.runtime.attach.attacher import Attacher
from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest
from usdt.engine.runtime.entry_state import EntryStateMaps
from usdt.engine.runtime.poller import Pollable
from usdt.engine.runtime.ringbuf_reader import RingBufferReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.bpf.link import UprobeMethod
    from usdt.bpf.maps import Map
    from usdt.engine.compiler.codegen.model import ActionEmitter, HitCondition
    from usdt.engine.compiler.entry_return import EntryReturnMatch, EntryReturnPlans
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.formatters import Formatter
    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("DEFAULT_BUFFER", "BpfSession", "Lost", "RingBufferSession")

DEFAULT_BUFFER = 8 << 20
_COUNTED = 1 << 14  # probes with counters of their own; all later ones share the last
_MANY = 256  # counters that are not read one by one
_NARROW = 4  # bytes of a word of 32-bit processes
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


class BpfSession(Pollable):
    """Programs attached, counters, and waiting: what every session has; a context manager.

    A session answers for one tracing run. :class:`RingBufferSession` delivers records;
    :class:`usdt.engine.aggregate.session.AggregateSession` counts in the kernel.

    Args:
        maps: what programs refer to by name besides the counters; the caller's to close.
        accept: which processes count.
        via: how to attach; None asks the kernel for its newest way.
        action: emits what is done at a hit.
        max_string: bytes that str() keeps.
        max_struct: bytes that are kept of a structure; 0: of pointers to them the address.
        may_sleep: whether programs may take page faults; a few helpers rule it out.
    """

    def __init__(
        self,
        maps: dict[str, Map],
        *,
        accept: TaskFilter | None = None,
        via: UprobeMethod | None = None,
        action: ActionEmitter = RECORD_ACTION,
        max_string: int = DEFAULT_STRING,
        max_struct: int = 0,
        may_sleep: bool = True,
    ) -> None:
        self._resources = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.push(self._resources)
            if not 0 < max_string < MAX_READ:
                raise TracingError(f"str() can keep 1 to {MAX_READ - 1} bytes, not {max_string}")
            if not 0 <= max_struct <= MAX_READ:
                reason = f"0 to {MAX_READ} bytes of a structure are kept, not {max_struct}"
                raise TracingError(reason)
            self._max_string = max_string
            self._max_struct = max_struct
            self._counters = MapSpec(MapType.ARRAY, 4, 16, _COUNTED, COUNTERS).create()
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
        self._cases: dict[tuple[int, int, ProbePlan, HitCondition | None], ProgramVariant] = {}
        self._probes: dict[str, int] = {}
        self._requests: list[ProbeText] = []
        self._closed = False

    def show_progress(self, show: Callable[[int, int], object]) -> None:
        """Call ``show`` now and then with how many of how many functions are attached."""
        self._attacher.progress = show

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that alone count; empty: all, or children as well."""
        return self._attacher.pids

    @property
    def attach_log(self) -> list[str]:
        """What was attached, by which kernel path: lines for ``-v``."""
        return self._attacher.attach_log

    @property
    def listings(self) -> list[str]:
        """The instructions of every program loaded: lines for ``-v -v``."""
        return self._attacher.listings()

    def attach(
        self, request: ProbeText, points: Sequence[AttachPoint], *, declared: int | None = None
    ) -> list[AttachFailure]:
        """Attach a probe at some of its sites; may be called again as more are found.

        Raises:
            LanguageError: an item does not fit the probe.
            TracingError: a record is larger than the ring buffer.
            SyscallError: programs cannot be loaded at all.
        """
        most = max((len(point.arguments) - _returns(point) for point in points), default=0)
        plans: dict[Any, ProbePlan] = {}
        placed: list[AttachRequest] = []
        for point in points:
            key = (point.probe, point.arguments)
            if key not in plans:
                plans[key] = self._plan(request, point, max(most, declared or 0))
            placed += self._placed(request, point, plans[key])
        self._start()
        return self._attacher.attach(placed)

    def check_items(self, request: ProbeText, point: AttachPoint) -> LanguageError | None:
        """Why a probe's items do not suit a point; None if they do."""
        try:
            self._plan(request, point, len(point.arguments))
        except LanguageError as err:
            return err
        return None

    def _placed(
        self, request: ProbeText, point: AttachPoint, plan: ProbePlan
    ) -> Iterator[AttachRequest]:
        # At the function's two ends where the plan asks for both.
        plan = self._narrow(point, plan)
        ends = (
            split_entry_return(plan, mark_returns=point.call.mark_returns)
            if point.call is not None
            else None
        )
        if ends is None or point.call is None:
            yield AttachRequest(point, self._case(request, point.probe, plan))
            return
        yield from self._ends(request, point, ends, point.call)

    def _narrow(self, point: AttachPoint, plan: ProbePlan) -> ProbePlan:
        pointer = None if point.call is None else point.call.pointer
        if pointer is not None and pointer.size == _NARROW and point.kernel_target is None:
            return for_32bit_process(plan)
        return plan

    def _ends(
        self,
        request: ProbeText,
        point: AttachPoint,
        ends: EntryReturnPlans,
        call: EntryReturnMatch,
        condition: HitCondition | None = None,
    ) -> Iterator[AttachRequest]:
        # Where the function returns; and at its entry what fills the frame, if there is one.
        known = self._case(request, point.probe, ends.returned, ends, call, condition=condition)
        yield AttachRequest(point, known, returns=True)
        if ends.entry is not None and known.call is not None:
            for name, made in self._frames.maps(ends.size).items():
                self._attacher.add_map(name, made)
            part = EntryReturnRole(entry=True, pair=known.call.pair, size=ends.size, stack=call)
            key = (-known.number, 0, ends.entry, None)
            if key not in self._cases:
                number = len(self._cases) + 1
                self._cases[key] = ProgramVariant(number, known.probe_index, ends.entry, part)
            yield AttachRequest(point, self._cases[key])

    _stacks: tuple[str, ...] = ()  # recorded whatever the items are

    def _plan(self, request: ProbeText, point: AttachPoint, declared: int) -> ProbePlan:
        return make_plan(
            request.items,
            point.arguments,
            text=request.text,
            probe=point.probe,
            declared=declared,
            max_string=self._max_string,
            max_struct=self._max_struct,
            function=point.function,
            types=point.types,
            stacks=self._stacks,
            kernel=point.kernel_target is not None,
        )

    def _case(
        self,
        request: ProbeText,
        probe: str,
        plan: ProbePlan,
        ends: EntryReturnPlans | None = None,
        stack: EntryReturnMatch | None = None,
        *,
        condition: HitCondition | None = None,
    ) -> ProgramVariant:
        number = self._number_of(request)
        index = self._probes.setdefault(probe, len(self._probes))
        case = self._cases.get((number, index, plan, condition))
        if case is None:
            new, part = len(self._cases) + 1, None
            if ends is not None and ends.entry is not None and stack is not None:
                part = EntryReturnRole(entry=False, pair=new, size=ends.size, stack=stack)
            case = ProgramVariant(new, min(index, _COUNTED - 1), plan, part, condition)
            self._announce(case, probe, request)
            self._cases[number, index, plan, condition] = case
        return case

    def _number_of(self, request: ProbeText) -> int:
        # By identity: the same words may be given twice, and mean START and END.
        for number, known in enumerate(self._requests):
            if known is request:
                return number
        self._requests.append(request)
        return len(self._requests) - 1

    def _announce(self, case: ProgramVariant, probe: str, request: ProbeText) -> None:
        # Called for each case before its program is written.
        raise NotImplementedError

    def _start(self) -> None:
        # Called before anything is attached.
        pass

    def poll(self, timeout: float) -> list[Any]:
        """As :meth:`Polled.poll`; calls that cannot return any more are swept now and then."""
        self._frames.purge(time.monotonic())
        return super().poll(timeout)

    def drain(self) -> Iterator[list[Any]]:
        """Detach everything, then yield what is still there."""
        self._attacher.close()
        while batch := self._next_batch():
            yield batch

    def lost(self) -> list[Lost]:
        """What each probe did not deliver so far; only probes with something to say."""
        found = []
        many = dict(self._counters.items()) if len(self._probes) > _MANY else None
        for name, index in self._probes.items():
            if index >= _COUNTED:  # counted with the last one that has a counter
                break
            key = struct.pack("=I", index)
            value = self._counters.get(key) if many is None else many.get(key)
            lost, unread = _COUNTER.unpack(value or bytes(_COUNTER.size))
            if lost or unread:
                found.append(Lost(name, lost, unread))
        return found

    def closing_notes(self) -> list[str]:
        """What is to be said at the end, besides what was lost."""
        number = self._frames.open()
        said = (
            [f"detaching took {self._attacher.detach_seconds:.1f} s"]
            if self._attacher.detach_seconds
            else []
        )
        if missed := self._attacher.missed:
            what = "hit was" if missed == 1 else "hits were"
            why = "on a CPU where another probe was at work, or with too many calls under way"
            where = ", ".join(f"{name} ({number})" for name, number in self._attacher.most_missed)
            most = f"; most in {where}" if where else ""
            said.append(f"{missed} {what} missed by the kernel, {why}{most}")
        if not number:
            return said
        what = "1 call has" if number == 1 else f"{number} calls have"
        why = "left by longjmp() or an exception, or nested deeper than the kernel follows (64)"
        return [*said, f"{what} begun and not returned: still under way, {why}"]

    def close(self) -> None:
        """Detach and free everything; again is fine."""
        if not self._closed:
            self._closed = True
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _returns(point: AttachPoint) -> bool:
    # Whether the last "argument" is what is returned.
    return bool(point.arguments) and point.arguments[-1].name == "return"


class RingBufferSession(BpfSession):
    """A session that delivers records as what a form makes of them.

    Args:
        form: what records become; or what takes their bytes.
        accept: which processes count.
        buffer: bytes of ring buffer.
        max_string: bytes that str() keeps.
        max_struct: bytes that are kept of a structure.
        via: how to attach; None asks the kernel for its newest way.
        stacks: ``ustack``, ``kstack``: recorded at every hit, whatever the items are.

    Raises:
        TracingError: max_string or max_struct is out of range.
        NotSupported: the kernel has no BPF ring buffer.
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """

    def __init__(
        self,
        form: Formatter | RecordConsumer,
        *,
        accept: TaskFilter | None = None,
        buffer: int = DEFAULT_BUFFER,
        max_string: int = DEFAULT_STRING,
        max_struct: int = DEFAULT_STRUCT,
        via: UprobeMethod | None = None,
        stacks: Sequence[str] = (),
    ) -> None:
        self._stacks = tuple(stacks)
        self._decoder = form if isinstance(form, RecordConsumer) else Decoder(form)
        self._ring = RingBuffer(buffer, EVENTS)
        try:
            super().__init__(
                {EVENTS: self._ring.map},
                accept=accept,
                via=via,
                max_string=max_string,
                max_struct=max_struct,
            )
        except BaseException:
            self._ring.close()
            raise
        self._reader = RingBufferReader(self._ring)
        self._batches: Iterator[list[Any]] = iter(())
        self._arrive_by(self._reader.arrived)

    def _announce(self, case: ProgramVariant, probe: str, request: ProbeText) -> None:  # noqa: ARG002
        if case.plan.size + HEADER >= self._ring.size:
            raise TracingError(
                f"{probe}: a record of {case.plan.size} bytes does not fit a ring buffer of "
                f"{self._ring.size}; give a larger buffer, or shorter strings"
            )
        self._decoder.add(case.number, probe, case.plan)

    def _start(self) -> None:
        self._reader.start()

    def drain(self) -> Iterator[list[Any]]:
        """Detach everything, then yield what is still there."""
        self._attacher.close()
        self._reader.stop_and_drain()
        yield from super().drain()

    def close(self) -> None:
        """Detach and free everything; again is fine."""
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
