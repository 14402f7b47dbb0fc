"""A session without BPF: probes as dynamic events of tracefs; the formatters are the same.

Every site becomes a definition in the group of this run. Sites with equal field types and filters
share one event (multiple probes per event: Linux 5.4). An instance of its own records the events.
The instance's ``set_event_pid`` contains the traced processes, and the option ``event-fork`` adds
the processes that they fork. This keeps the records of other processes out of the buffer. The
process of a record is determined again when it is read, by its thread
(:mod:`usdt.procfs.thread_groups`); records of forked children are ignored there.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usdt.base.closeable import Closeable
from usdt.base.errors import LanguageError, NotSupported, TracingError
from usdt.base.machine import program_word_size
from usdt.base.text import plural
from usdt.engine.compiler.arguments import numbered
from usdt.engine.compiler.plan import make_plan
from usdt.engine.output.decode import CONTEXT, Decoder
from usdt.engine.runtime.attach.attach_points import EventTarget
from usdt.engine.runtime.attach.requests import AttachFailure
from usdt.engine.runtime.poller import Pollable
from usdt.engine.runtime.session import Lost
from usdt.engine.runtime.tracefs_backend.evaluate import Rejected
from usdt.engine.runtime.tracefs_backend.event_plan import (
    TID,
    VARIANT,
    EventContext,
    EventDecoder,
    plan_event,
)
from usdt.engine.runtime.tracefs_backend.fetch_args import FetchArgBuilder
from usdt.engine.runtime.tracefs_backend.site_events import (
    SharedEvent,
    Variant,
    attach_point_text,
    check_strings,
    definition_path,
)
from usdt.engine.runtime.tracefs_backend.trace_events import TraceEvents
from usdt.procfs.thread_groups import NEW_TASK, ThreadGroups, thread_name, threads_of
from usdt.tracefs.definitions import uprobe_hits
from usdt.tracefs.instance import Instance
from usdt.tracefs.mount import tracefs
from usdt.tracefs.session import clean
from usdt.tracefs.trace_pipe_reader import TracePipeReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.tracefs_backend.event_plan import EventPlan
    from usdt.engine.runtime.tracefs_backend.trace_event_rows import TraceEventRows
    from usdt.tracefs.format import EventFormat
    from usdt.tracefs.trace_pipe_reader import RawRecord

__all__ = ("TracefsSession",)

_CONTEXTS = 1 << 16  # maximum distinct contexts kept
_BATCH = 4096  # maximum rows formatted at once


class TracefsSession(Pollable, Closeable):
    """The counterpart of :class:`usdt.engine.runtime.session.RingBufferSession` without BPF.

    Args:
        form: formats records.
        accept: the traced processes.
        buffer: bytes of the buffer of each CPU.
        backlog: bytes of records that are copied from it and wait to be formatted.
        max_string: bytes that str() keeps of a string.

    Attributes:
        attach_log: messages on what was defined, for ``-v``.
        by_tracefs: as of :class:`usdt.engine.runtime.session.BpfSession`.

    Raises:
        NotSupported: the kernel has no such events.
        TracingError: tracefs cannot be used, or cannot trace what ``accept`` requires.
    """

    by_tracefs = True

    def __init__(
        self, form: Formatter, *, accept: TaskFilter, buffer: int, backlog: int, max_string: int
    ) -> None:
        if accept.cgroups is not None:
            raise TracingError("--via tracefs cannot trace by cgroup, container, pod or unit")
        if accept.followed is not None:
            raise TracingError("tracefs does not follow children (-f)")
        if accept.namespace is not None:
            raise TracingError(
                "tracefs needs the initial PID namespace: its records have no other's IDs"
            )
        self._root = tracefs()
        self._pids = accept.pids
        self._since = accept.since
        self._max_string = max_string
        self._decoder = Decoder(form)
        self._formats: dict[int, EventDecoder] = {}  # event ID → decoder
        self._events: dict[int, SharedEvent] = {}  # event ID → event
        self._variants: dict[int, Variant] = {}  # by number
        self._probes: list[str] = []  # name of the probe by number of the variant
        self._made = 0
        self._missed: list[str] = []
        self._contexts: dict[tuple[int, int, int, bytes], bytes | None] = {}
        self._tasks = ThreadGroups()
        self._problems: dict[str, None] = {}
        self._birth: tuple[EventFormat, int] | None = None
        self._rest: Iterator[list[Any]] = iter(())
        self._lost = 0
        self._undecided: Counter[str] = Counter()  # hits by probe
        self._started = False
        self.attach_log = [
            f"left by a killed run, removed: {name}" for name in clean(self._root)[0]
        ]
        self.listings: list[str] = []
        self._resources = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.push(self._resources)
            self._instance = self._resources.enter_context(Instance(self._root, buffer=buffer))
            self._trace_events = TraceEvents(self._instance)
            self._reader = TracePipeReader(self._root, self._instance.path, backlog)
            self._resources.callback(self._reader.close)
            self._open(self._resources)
            self._arrive_by(self._reader.arrived)
            undo.pop_all()

    # ------------------------------------------------------------ attaching

    def attach(
        self, request: ProbeText, points: Sequence[AttachPoint], *, declared: int | None = None
    ) -> list[AttachFailure]:
        """Define and enable events for some sites, or enable events that exist.

        May be called again as more sites are found.

        Args:
            request: the probe.
            points: the sites.
            declared: number of arguments that the probe declares; None if unknown.

        Returns:
            The sites that could not be attached, with the errors.

        Raises:
            LanguageError: an item is not valid at the probe.
            TracingError: a predicate needs a value that no event can fetch.
        """
        self._start()
        if any(point.kernel_target is not None for point in points):
            return self._attach_events(request, points)
        most = max((numbered(point.arguments) for point in points), default=0)
        plans: dict[Any, ProbePlan] = {}
        events: dict[Any, SharedEvent] = {}
        variants: dict[Any, Variant] = {}
        seen: set[Any] = set()
        failures: list[AttachFailure] = []
        for point in points:
            key = (point.probe, point.arguments, point.registers)
            if key not in plans:
                plans[key] = self._plan(request, point, max(most, declared or 0))
            with _reported(failures, (point,)):
                status = Path(point.open_path).stat()
                event_key = (point.probe, plans[key], status.st_dev, status.st_ino, point.offset)
                if event_key in seen or plans[key].always_false:  # a duplicate, or never shown
                    continue
                seen.add(event_key)
                made = plan_event(
                    plans[key], FetchArgBuilder(point.offset, program_word_size(point.open_path))
                )
                check_strings(made)
                form = (made.types, made.filter)
                if form not in events:
                    events[form] = SharedEvent(self._made, made.filter)
                    self._made += 1
                variant = variants.get((point.probe, plans[key]))
                if variant is None or variant.plan.types != made.types:
                    variant = self._variant(point.probe, made)
                    variants[point.probe, plans[key]] = variant
                    events[form].variants.append(variant)
                events[form].sites.append((point, made.arguments(variant.number)))
        for event in events.values():
            failures += self._define(event)
        return failures

    def check_items(self, request: ProbeText, point: AttachPoint) -> LanguageError | None:
        """Return the error of a probe's items at an attach point; None if they are valid."""
        try:
            self._plan(request, point, numbered(point.arguments))
        except LanguageError as err:
            return err
        return None

    def _attach_events(
        self, request: ProbeText, points: Sequence[AttachPoint]
    ) -> list[AttachFailure]:
        self._trace_events.follow_names(self._pids)
        failures: list[AttachFailure] = []
        for point in points:
            plan = self._plan(request, point, numbered(point.arguments))
            with _reported(failures, (point,)):
                if not isinstance(point.kernel_target, EventTarget):
                    raise TracingError("only tracepoints are read through tracefs")
                if plan.always_false:  # never shown
                    continue
                event = point.kernel_target.name.replace(":", "/")
                number, rows = self._trace_events.plan(event, plan)
                variant = self._add_variant(point.probe, rows)
                self._trace_events.enable(event, number, variant, rows)
                self.attach_log.append(f"event {event}, by tracefs")
        return failures

    def _variant(self, probe: str, plan: EventPlan) -> Variant:
        variant = Variant(self._add_variant(probe, plan), probe, plan)
        self._variants[variant.number] = variant
        return variant

    def _add_variant(self, probe: str, plan: EventPlan | TraceEventRows) -> int:
        # Returns the number of the variant.
        number = len(self._probes)
        self._probes.append(probe)
        self._decoder.add_layout(number, probe, plan.layout)
        for key, reason in plan.problems:
            self._problems[f"{probe}: {key} is not read through tracefs: {reason}"] = None
        return number

    def _plan(self, request: ProbeText, point: AttachPoint, declared: int) -> ProbePlan:
        return make_plan(
            request.items,
            point.arguments,
            text=request.text,
            probe=point.probe,
            declared=declared,
            max_string=self._max_string,
            function=point.function,
            types=point.types,
            registers=point.registers,
        )

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        with contextlib.suppress(OSError, TracingError):  # without it, /proc is read
            form = self._instance.format(NEW_TASK)
            self._instance.enable(NEW_TASK)
            self._birth = form, form.number
        self._restrict()
        self._tasks.observe(self._pids or None)
        self._instance.start()
        self._reader.start()

    def _restrict(self) -> None:
        # Enable the option for children first; then add existing threads until no new ones are
        # found.
        if not self._pids:
            return
        self._instance.write("options/event-fork", "1")
        known: set[int] = set()
        while fresh := {t for pid in self._pids for t in (pid, *threads_of(pid))} - known:
            self._instance.write("set_event_pid", " ".join(map(str, sorted(fresh))))
            known |= fresh

    def _define(self, event: SharedEvent) -> list[AttachFailure]:
        failures: list[AttachFailure] = []
        made = 0
        for point, arguments in event.sites:
            with _reported(failures, (point,)), definition_path(point.open_path) as path:
                where = attach_point_text(path, point.offset, point.ref_ctr_offset)
                text = f"p:{event.name} {where} {arguments}"
                self._instance.define("uprobe_events", text, event.name)
                made += 1
        if not made:
            return failures
        try:
            self._watch(event)
        except TracingError as err:
            points = tuple(point for point, _ in event.sites)
            return [*failures, AttachFailure(points, TracingError(f"{points[0].probe}: {err}"))]
        path = event.sites[0][0].path
        self.attach_log.append(
            f"event {event.name} for {plural(made, 'site')} of {path}, by tracefs"
        )
        return failures

    def _watch(self, event: SharedEvent) -> None:
        form = self._instance.format(event.name)
        for variant in event.variants:
            variant.rows = EventDecoder(variant.plan, form)
        self._formats[form.number] = event.variants[0].rows
        self._events[form.number] = event
        self._instance.enable(event.name, event.condition)

    # ------------------------------------------------------------ records

    def _next_batch(self) -> list[Any]:
        return self._next()

    def _next(self, *, everything: bool = False) -> list[Any]:
        while True:
            batch = next(self._rest, None)
            if batch:
                return batch
            records = self._reader.take(everything=everything)
            if not records:
                return []
            self._rest = self._batches(records)

    def drain(self) -> Iterator[list[Any]]:
        """Disable the events, then yield the remaining batches."""
        self._instance.disable()
        self._reader.stop_and_drain()
        while not self._reader.empty:
            while batch := self._next(everything=True):
                yield batch
        self._lost = self._instance.dropped()
        self._missed = [text for event in self._events.values() if (text := self._unseen(event))]

    def _unseen(self, event: SharedEvent) -> str:
        # The kernel makes no record larger than a page, and does not count such hits. It does count
        # the hits of all processes.
        if not any(variant.plan.texts for variant in event.variants):
            return ""
        number = uprobe_hits(self._root, event.label) - event.recorded - self._lost
        if number <= 0:
            return ""
        names = ", ".join(dict.fromkeys(variant.probe for variant in event.variants))
        return (
            f"{number} hit{'s' * (number != 1)} of {names} not recorded: of other processes, kept "
            "out by a predicate, or with more than 4000 bytes of strings"
        )

    def lost(self) -> list[Lost]:
        """Return undecided hits, and lost ones: the kernel counts those of all probes together."""
        number = self._lost or self._instance.dropped()
        names = list(dict.fromkeys(self._probes))
        probe = names[0] if len(names) == 1 else f"any of {len(names)} probes"
        undecided = [Lost(name, 0, hits) for name, hits in self._undecided.items()]
        return [*undecided, *([Lost(probe, number, 0)] if number else ())]

    def _batches(self, records: list[RawRecord]) -> Iterator[list[Any]]:
        rows: list[tuple[Any, ...]] = []
        current = -1
        for when, cpu, view in records:
            for number, row in self._hits(view, when, cpu):
                if number != current or len(rows) >= _BATCH:
                    if rows:
                        yield self._decoder.render(current, rows)
                    current, rows = number, []
                rows.append(row)
        if rows:
            yield self._decoder.render(current, rows)

    def _hits(self, view: memoryview, when: int, cpu: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
        # Returns (variant number, row) for each variant that shows a record.
        kind = int.from_bytes(view[:2], sys.byteorder)
        reader = self._formats.get(kind)
        if reader is None:
            found = [] if when < self._since else self._event_hits(kind, view, when, cpu)
            self._observe(kind, view)  # afterwards: what it says is true from now on
            return found
        if len(view) < reader.size:
            return ()
        self._events[kind].recorded += 1
        if when < self._since:
            return ()
        record = bytes(view)
        values = reader.unpack(record)
        number = values[VARIANT]
        row = self._accepted(number, self._row(number, values, when, cpu, record))
        return () if row is None else ((number, row),)

    def _event_hits(
        self, kind: int, view: memoryview, when: int, cpu: int
    ) -> list[tuple[int, tuple[Any, ...]]]:
        variants = self._trace_events.rows(kind)
        if not variants:
            return []
        record = bytes(view)
        tid = int.from_bytes(record[4:8], sys.byteorder)  # common_pid
        comm = self._trace_events.threads.name(tid)
        head = EventContext(when, self._tasks.process(tid), tid, cpu)
        found = []
        for number, rows in variants:
            context = self._context_of((number, tid, cpu, comm))
            row = None if context is None else rows.row(record, context, head, comm)
            row = self._accepted(number, row)
            if row is not None:
                found.append((number, row))
        return found

    def _accepted(
        self, number: int, row: tuple[Any, ...] | Rejected | None
    ) -> tuple[Any, ...] | None:
        # The row of a hit that is shown; counts hits whose predicate cannot be decided.
        if not isinstance(row, Rejected):
            return row
        if row is Rejected.UNDECIDED:
            self._undecided[self._probes[number]] += 1
        return None

    def _row(
        self, number: int, values: tuple[Any, ...], when: int, cpu: int, record: bytes
    ) -> tuple[Any, ...] | Rejected | None:
        maker = self._variants[number].rows
        name = maker.name(record, values)
        key = (number, values[TID], cpu, thread_name(values[TID]) if name is None else name)
        context = self._context_of(key)
        if context is None:
            return None
        pid = 0 if maker.plain else self._tasks.process(values[TID])
        return maker.row(values, context, record, EventContext(when, pid, values[TID], cpu))

    def _context_of(self, key: tuple[int, int, int, bytes]) -> bytes | None:
        if key not in self._contexts:
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.clear()
            self._contexts[key] = self._context(*key)
        return self._contexts[key]

    def _context(self, number: int, tid: int, cpu: int, name: bytes) -> bytes | None:
        pid = self._tasks.process(tid)
        if self._pids and pid not in self._pids:
            return None
        return CONTEXT.pack(tid, pid, cpu, number, name)

    def _observe(self, kind: int, record: memoryview) -> None:
        # Notes births of tasks, and names of threads.
        self._trace_events.observe(kind, record)
        if self._birth is not None and kind == self._birth[1]:
            values = self._birth[0].decode(record)
            numbers = [values.get(name) for name in ("common_pid", "pid", "clone_flags")]
            if all(isinstance(number, int) for number in numbers):
                parent, child, flags = (int(str(number)) for number in numbers)
                if self._tasks.born(parent, child, flags):
                    self._contexts.clear()
                self._trace_events.threads.named(child, str(values.get("comm")))

    def unmatched_ends(self) -> int:
        """Return 0: nothing is paired."""
        return 0

    def closing_notes(self) -> list[str]:
        """Return messages on items that could not be read, and on hits that may be missing."""
        damaged = self._reader.damaged
        pages = [f"could not read {plural(damaged, 'page')} of the kernel's to the end"]
        return [*self._problems, *(pages if damaged else ()), *self._missed]

    def close(self) -> None:
        """Remove all events and free everything. Idempotent."""
        self._resources.close()


@contextlib.contextmanager
def _reported(failures: list[AttachFailure], points: tuple[AttachPoint, ...]) -> Iterator[None]:
    # Collects the errors of one site, so that the others are still traced.
    try:
        yield
    except NotSupported:
        raise
    except TracingError as err:
        failures.append(AttachFailure(points, TracingError(f"{points[0].probe}: {err}")))
    except OSError as err:
        error = TracingError(f"{points[0].probe}: {points[0].path}: {err.strerror}")
        failures.append(AttachFailure(points, error))
