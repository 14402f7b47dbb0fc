"""A session that runs a program: its maps, its probes, and the events that it sends.

Probes are collected until all are found. Then the whole program is checked, its maps are made and
the probes are attached. Probes that are found later, such as those of a library that is loaded
later, use the maps as they are.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Any

from usdt.base.errors import LanguageError, SyscallError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.asm.assembler import CodeTooLarge
from usdt.bpf.kprobes import attach_iterator, open_iterator, read_iterator
from usdt.bpf.maps import Map, MapSpec, possible_cpus
from usdt.bpf.rings.ringbuf import DISCARD, HEADER, record_words
from usdt.engine.compiler.codegen.model import ProgramVariant
from usdt.engine.compiler.plan import ProbePlan
from usdt.engine.compiler.record.layout import HEADER_SIZE
from usdt.engine.programs.check.program import ProbeAt, check, check_one
from usdt.engine.programs.check.site import full_name, site_of
from usdt.engine.programs.codegen.action import (
    SCRATCH_ENTRIES,
    ProbeBody,
    ProgramAction,
)
from usdt.engine.programs.codegen.aggregates import BUCKET_SIZE, array_entries, value_size_of
from usdt.engine.programs.codegen.names import map_name, scratch_name, stacks_name, walked_name
from usdt.engine.programs.events import EVENT_NUMBER
from usdt.engine.programs.iterators import function_of
from usdt.engine.programs.types import Aggregate, AggregateType, size_of
from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest
from usdt.engine.runtime.planner import AttachPlanner
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.bpf.link import Link
    from usdt.bpf.program import Program
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.python_processes import PythonProcesses
    from usdt.engine.output.stacks import CodeSource
    from usdt.engine.programs.check.state import MapState, ProgramState
    from usdt.engine.programs.events import Event
    from usdt.engine.programs.syntax.program import Probe
    from usdt.engine.programs.types import StackType
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.walks.stack_walks import StackWalks

__all__ = ("OWN_SIGNAL", "ProbeRequest", "ProgramSession")

#: The probe that runs when the tracer gets the signal.
OWN_SIGNAL = "self:signal:SIGUSR1"

_BUCKETED = (Aggregate.HIST, Aggregate.LHIST)
_BUCKETS_PER_KEY = 8  # entries for each key of a histogram
_MOST_INTERVALS = 1 << 16  # entries of a map of tseries() that is not declared with a size
_OLD_KEYS = 512  # bytes of a key at most in kernels such as 5.10: MAX_BPF_STACK
_STACKS = 1 << 14  # most different stacks
_OF_ONE_MAP = ("bpf_map_elem", "bpf_sk_storage_map", "sockmap")  # iterators over elements
_VISITS = 64  # objects of an iterator between two looks for events: more might not fit
_NUMBER = struct.Struct("=I")


@frozen
class ProbeRequest:
    """An attach point of a program as written.

    Attributes:
        index: the index of the probe in the program.
        probe: the probe.
        text: the attach point: ``kprobe:vfs_read``.
        kind: its kind in bpftrace's terms: ``kretprobe``.
        request: what the engine looks for; None for ``begin``, ``end``, ``self`` and ``iter``.
    """

    index: int
    probe: Probe
    text: str
    kind: str
    request: ProbeText | None


class _Planner(AttachPlanner):
    # Plans the bodies of probes instead of records.
    def __init__(self, session: ProgramSession, **settings: Any) -> None:
        super().__init__(session.announce, **settings)
        self._session = session

    def plan(
        self, request: ProbeText, points: Sequence[AttachPoint], declared: int
    ) -> list[AttachRequest]:
        del declared
        made: list[AttachRequest] = []
        bodies: dict[Any, ProbeBody] = {}
        asked = self._session.asked(request)
        for point in points:
            key = (point.probe, point.function, point.arguments, point.registers)
            if key not in bodies:
                bodies[key] = self._session.body(asked, point)
            variant = self.variant(request, point.probe, bodies[key])
            returns = asked.kind in ("kretprobe", "uretprobe", "fexit")
            made.append(AttachRequest(point, variant, on_return=returns))
        return made

    def variant(self, request: ProbeText, probe: str, body: ProbeBody) -> ProgramVariant:
        """Return the variant of a body."""
        plan = ProbePlan((), (), HEADER_SIZE, kernel=body.kernel, body=body)
        return self._variant(request, probe, plan)


class _Events:
    # Splits the bytes of a ring buffer into events.
    def __init__(self, state: ProgramState) -> None:
        self._state = state

    def add(self, number: int, probe: str, plan: ProbePlan) -> None:
        pass

    def batches(self, data: bytes) -> Iterator[list[tuple[Event, bytes]]]:
        words = memoryview(data).cast("I")
        found: list[tuple[Event, bytes]] = []
        at = 0
        while at < len(words):
            following = at + record_words(words[at])
            if not words[at] & DISCARD:
                body = data[at * 4 + HEADER : following * 4]
                found.append((self._state.events[_NUMBER.unpack_from(body, EVENT_NUMBER)[0]], body))
            at = following
        yield found

    def python_processes(self, pids: Sequence[int]) -> PythonProcesses:
        del pids
        raise TracingError("programs record no Python stacks")


def _wants_a_map(name: str) -> TracingError:
    reason = "the kernel wants a map or the like for it, which programs cannot name"
    return TracingError(f"iter:{name}: {reason}")


class ProgramSession(RingBufferSession):
    """Attached probes of a program; a context manager.

    Args:
        state: the state of the program's check.
        probes: the probes.
        max_keys: entries of a map that is not declared with a size.
        settings: as for :class:`RingBufferSession`.

    Attributes:
        attached: the number of attached probes, those that patterns have found one by one.
        code: returns what knows the code of running processes, for dw_ustack().
    """

    def __init__(
        self,
        state: ProgramState,
        probes: Sequence[ProbeRequest],
        *,
        max_keys: int,
        accept: TaskFilter | None = None,
        **settings: Any,
    ) -> None:
        self.state = state
        self._probes = tuple(probes)
        self._max_keys = max_keys
        self._made: dict[str, Map] = {}
        self._action = ProgramAction(atomics=features.have_fetching_atomics())
        self._waiting: list[tuple[ProbeText, list[AttachPoint]]] | None = []
        self._ends: list[tuple[str, Program]] = []
        self._iterators: list[Link] = []
        self._walks: StackWalks | None = None
        self.code: Callable[[], CodeSource | None] | None = None
        self._checked: dict[tuple[int, AttachPoint], ProbeBody] = {}
        self.attached = 0
        super().__init__(
            _Events(state), accept=accept, action=self._action, may_sleep=False, **settings
        )

        self._attacher.serve_all_tasks()

    def _make_planner(self, **settings: Any) -> AttachPlanner:
        settings.pop("stacks")
        settings.pop("copies")
        return _Planner(self, **settings)

    def attach(
        self, request: ProbeText, points: Sequence[AttachPoint], *, declared: int | None = None
    ) -> list[AttachFailure]:
        """Attach as :meth:`BpfSession.attach`; before :meth:`start`, only collect."""
        if self._waiting is not None:
            self._waiting.append((request, list(points)))
            return []
        try:
            return super().attach(request, points, declared=declared)
        except TracingError as err:
            if isinstance(err.__cause__, CodeTooLarge):
                raise self._too_large(self.asked(request)) from err
            raise

    def _too_large(self, asked: ProbeRequest) -> LanguageError:
        reason = f"{asked.text}: a jump of its code passes more than 32767 instructions"
        hint = "divide the body of its largest if, or write the probe twice with a part each"
        return self.state.error(asked.probe.start, f"{reason}: {hint}")

    def found(self) -> list[tuple[str, AttachPoint]]:
        """Return the names of the probes that were found, before :meth:`start`, and where."""
        found = [(self.asked(request), points) for request, points in self._waiting or ()]
        return [
            (full_name(one.kind, one.text, point), point)
            for one, points in found
            for point in points
        ]

    def check_items(self, request: ProbeText, point: AttachPoint) -> LanguageError | None:
        """Return None: the program is checked when all probes are known."""
        del request, point
        return None

    def asked(self, request: ProbeText) -> ProbeRequest:
        """Return the probe of a request."""
        return next(one for one in self._probes if one.request is request)

    def body(self, asked: ProbeRequest, point: AttachPoint) -> ProbeBody:
        """Return what a probe does at an attach point."""
        found = self._checked.get((asked.index, point))
        return found or check_one(self.state, self._at(asked, point))

    def _at(self, asked: ProbeRequest, point: AttachPoint | None) -> ProbeAt:
        state = self.state
        name = full_name(asked.kind, asked.text, point)
        site = site_of(asked.index, state.text, name, point, kind=asked.kind, defined=state.defined)
        return ProbeAt(asked.probe, site)

    def start(
        self, *, begin: bool = True, ending: Callable[[], bool] = lambda: False
    ) -> list[AttachFailure]:
        """Check the program, make its maps, run ``begin`` and attach the probes.

        Args:
            begin: whether ``begin`` runs.
            ending: whether a signal has ended the run: the probes that are left are not attached.

        Returns:
            The attach points that could not be attached, with the errors.

        Raises:
            LanguageError: a name is unknown, or values do not fit.
            TracingError: nothing can be attached.
        """
        waiting, self._waiting = self._waiting or [], None
        found = [(self.asked(request), point) for request, points in waiting for point in points]
        alone = [(one, None) for one in self._probes if one.request is None]
        # In the order of the text: what is used is then mostly known.
        every = sorted([*found, *alone], key=lambda one: one[0].index)
        bodies = check(self.state, [self._at(asked, point) for asked, point in every])
        checked = list(zip(every, bodies, strict=True))
        self._checked = {
            (asked.index, point): body for (asked, point), body in checked if point is not None
        }
        self._make_maps()
        self._load_ends([(asked, body) for (asked, point), body in checked if point is None])
        self._start()
        if begin:
            self.run("begin")
        self.attached = len(alone)
        with self._attacher.counters_together():
            return self._attach_found(waiting, ending)

    def _attach_found(
        self, found: list[tuple[ProbeText, list[AttachPoint]]], ending: Callable[[], bool]
    ) -> list[AttachFailure]:
        failures: list[AttachFailure] = []
        for request, points in found:
            if ending():
                break
            refused = self.attach(request, points)
            failures += refused
            failed = {point for failure in refused for point in failure.points}
            asked = self.asked(request)
            there = [point for point in points if point not in failed]
            self.attached += len({full_name(asked.kind, asked.text, one) for one in there})
        return failures

    def _load_ends(self, alone: Sequence[tuple[ProbeRequest, ProbeBody]]) -> None:
        # Load the probes that the tracer runs.
        for asked, body in alone:
            number = -1 - asked.index
            self._action.bodies[number] = body
            self._scratch(body)
            plan = ProbePlan((), (), HEADER_SIZE, kernel=True, body=body)
            variant = ProgramVariant(number, self._planner.counter_of(asked.kind), plan)
            name = asked.text.partition(":")[2] if asked.kind == "iter" else ""
            if name in _OF_ONE_MAP:  # hardened kernels refuse to load what may write to maps
                raise _wants_a_map(name)
            iterator = function_of(name) if name else 0
            try:
                program = self._attacher.load_to_run(variant, iterator=iterator)
            except CodeTooLarge as err:
                raise self._too_large(asked) from err
            self._resources.callback(program.close)
            self._ends.append((asked.text, program))
            if name:
                self._attach_iterator(program, name)

    def _attach_iterator(self, program: Program, name: str) -> None:
        # One for each process that is traced alone.
        for pid in (name.startswith("task") and self.pids) or (0,):
            try:
                link = attach_iterator(program, pid)
            except SyscallError as err:
                if err.errno not in (errno.EINVAL, errno.EBADF):
                    raise
                raise _wants_a_map(name) from err
            self._resources.callback(link.close)
            self._iterators.append(link)

    def iterate(self) -> Iterator[list[Any]]:
        """Let iterators visit all their objects; yield the events meanwhile."""
        for link in self._iterators:
            with open_iterator(link) as visits:
                while read_iterator(visits, _VISITS):
                    yield from self.pending()

    def run(self, kind: str) -> None:
        """Run the probes ``begin``, ``end`` or :data:`OWN_SIGNAL`, in the order of the program."""
        for written, program in self._ends:
            if written == kind:
                program.run()

    def programs_of(self, kind: str) -> Iterator[tuple[str, Program]]:
        """Yield the names and programs of the probes ``test`` or ``bench``."""
        for written, program in self._ends:
            found, _, name = written.partition(":")
            if found == kind:
                yield name, program

    def pending(self) -> Iterator[list[Any]]:
        """Yield the events that have been sent so far."""
        while batch := self._last_batch():
            yield batch

    def drain(self) -> Iterator[list[Any]]:
        """Detach everything, run ``end``, then yield the remaining batches."""
        self._attacher.close()
        self.run("end")
        yield from super().drain()

    def announce(self, variant: ProgramVariant, probe: str, request: ProbeText) -> None:
        """Take the body of a variant, before its program is made."""
        del probe, request
        body = variant.plan.body
        if not isinstance(body, ProbeBody):
            raise TypeError(body)
        self._action.bodies[variant.number] = body
        self._scratch(body)

    # ------------------------------------------------------------ maps

    def _make_maps(self) -> None:
        for found in self.state.maps.values():
            spec = self._spec(found)
            try:
                self._add_map(map_name(found.variable), spec)
            except SyscallError as err:
                if err.errno == errno.ENOMEM:
                    each = spec.key_size + spec.value_size
                    sizes = f"{spec.entries} entries of {each} bytes"
                    reason = f"{found.variable.name} does not fit into memory: it has {sizes}"
                    raise self.state.error(found.start, reason) from err
                if err.errno != errno.E2BIG or spec.key_size <= _OLD_KEYS:
                    raise
                name, size = found.variable.name, spec.key_size
                reason = f"the keys of {name} have {size} bytes, this kernel takes {_OLD_KEYS}"
                hint = "set max_strlen, or shorten strings by str(…, 100)"
                raise self.state.error(found.start, f"{reason}: {hint}") from err
        for frames in self.state.stacks:
            spec = MapSpec(MapType.STACK_TRACE, 4, 8 * frames, _STACKS, "stacks")
            self._add_map(stacks_name(frames), spec)
        self._make_walks()

    def _spec(self, found: MapState) -> MapSpec:
        key = 8 if found.key is None else size_of(found.key)
        entries = found.entries or (self._max_keys if found.keyed else 1)
        kind, value = MapType.HASH, found.value
        if isinstance(value, AggregateType):
            if found.in_array:
                entries = array_entries(value)
                return MapSpec(MapType.PERCPU_ARRAY, 4, value_size_of(value), entries, "map")
            if value.function in _BUCKETED:
                key, entries = key + BUCKET_SIZE, entries * _BUCKETS_PER_KEY
            elif value.function is Aggregate.TSERIES:
                each = value.parameters[1]
                most = 1 << 26 if found.entries else max(each, _MOST_INTERVALS)
                key, entries = key + BUCKET_SIZE, min(entries * each, most)
            kind = MapType.LRU_PERCPU_HASH if found.kind == "percpulruhash" else MapType.PERCPU_HASH
            return MapSpec(kind, key, value_size_of(value), entries, "map")
        if found.kind == "lruhash":
            kind = MapType.LRU_HASH
        return MapSpec(kind, key, 8 if value is None else size_of(value), entries, "map")

    def _scratch(self, body: ProbeBody) -> None:
        name = scratch_name(body.scratch)
        if body.scratch and name not in self._made:
            entries = possible_cpus() * SCRATCH_ENTRIES
            self._add_map(name, MapSpec(MapType.ARRAY, 4, body.scratch, entries, "scratch"))

    def _add_map(self, name: str, spec: MapSpec) -> None:
        made = self._made[name] = spec.create()
        self._resources.callback(made.close)
        self._attacher.add_maps({name: made})

    def full_maps(self) -> list[tuple[str, str, int]]:
        """Return the maps that take no more keys: name, kind, number of entries."""
        return [
            (name, one.kind or "hash", made.spec.entries)
            for name, one in self.state.maps.items()
            if (made := self.map_of(one)) is not None
            and one.keyed
            and one.kind not in ("lruhash", "percpulruhash")  # those replace entries
            and len([*made.keys()]) >= made.spec.entries
        ]

    def map_of(self, found: MapState) -> Map | None:
        """Return a map of the kernel; None before it is made."""
        return self._made.get(map_name(found.variable))

    def stacks_of(self, type_: StackType) -> Map:
        """Return the map that has stacks of a type."""
        return self._made[(walked_name if type_.walked else stacks_name)(type_.frames)]

    # ------------------------------------------------------------ walks

    def _make_walks(self) -> None:
        # The maps of stacks that are walked by unwind tables, and the tables of known processes.
        source = self.code() if self.state.walked and self.code is not None else None
        if source is None:
            return
        from usdt.engine.walks.stack_walks import StackWalks  # noqa: PLC0415 - few programs walk
        from usdt.engine.walks.walk_state import VALUE_HEADER  # noqa: PLC0415

        for frames in self.state.walked:
            size = VALUE_HEADER.size + 8 * frames
            self._add_map(walked_name(frames), MapSpec(MapType.HASH, 8, size, _STACKS, "walked"))
        walks = self._walks = StackWalks(source, every=not self.pids)
        self._resources.callback(walks.close)
        walks.update(self.pids)
        self._attacher.add_maps(walks.maps)
        for descriptor in walks.descriptors:
            self.watch(descriptor)

    def _attach(self, requests: Sequence[AttachRequest]) -> list[AttachFailure]:
        if self._walks is not None:
            files = (one.point.open_path for one in requests if one.point.kernel_target is None)
            self._walks.load_files(dict.fromkeys(files))
        return super()._attach(requests)

    def expect(self, pid: int, files: Iterable[str]) -> None:
        """Load the unwind tables of a process that will start, and of its files."""
        if self._walks is not None:
            self._walks.load_files(files)
            self._walks.update((pid,))

    def closing_notes(self) -> list[str]:
        """Return the messages as :meth:`BpfSession.closing_notes`, and those about walks."""
        return [*super().closing_notes(), *(self._walks.notices if self._walks else ())]

    def poll(self, timeout: float) -> list[Any]:
        """Poll as :meth:`BpfSession.poll` does; also load the unwind tables of new code."""
        batch = super().poll(timeout)
        if self._walks is not None:
            self._walks.update()
        return batch
