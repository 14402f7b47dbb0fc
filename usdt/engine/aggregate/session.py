"""A session that aggregates in the kernel: maps, attached programs, and reading the maps.

A reading returns everything so far, or the difference from the last reading. Nothing is cleared
while programs run, because hits between reading and clearing would be lost. If values have keys,
each interval has keys of its own. They are removed at the end of the following interval, when all
programs that started in theirs have long ended.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from usdt.base.errors import SyscallError, TracingError
from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import Map, MapSpec, possible_cpus
from usdt.engine.aggregate.codegen.action import (
    GROUPS,
    VALUES,
    AggregateAction,
    AggregateActionEmitter,
    Role,
)
from usdt.engine.aggregate.codegen.keys import EPOCH, python_map
from usdt.engine.aggregate.codegen.pairs import PLACES, STARTS, THREADS, UNPAIRED, start_size
from usdt.engine.aggregate.codegen.values import NUMBERS, SPREAD, ZEROS
from usdt.engine.aggregate.keys import HEADER, PythonStack
from usdt.engine.aggregate.largest import are_distinct, hits_of, largest
from usdt.engine.aggregate.pairs import Pairing
from usdt.engine.aggregate.planning import AggregatePlanner, Source
from usdt.engine.aggregate.rows import PlainRows, Row, hits_of_rows
from usdt.engine.aggregate.stack_keys import StackKeys
from usdt.engine.aggregate.values import (
    GROUP,
    NONE,
    SPREAD_KEY,
    Value,
    numbers_of,
    spread_of,
    unpack,
    value_size,
)
from usdt.engine.language.tree import StackKind
from usdt.engine.runtime.planner import AttachPlanner
from usdt.engine.runtime.session import BpfSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usdt.bpf.link import UprobeMethod
    from usdt.engine.aggregate.keys import Stack
    from usdt.engine.aggregate.largest import Largest
    from usdt.engine.aggregate.pairs import UnpairedCounts
    from usdt.engine.aggregate.planning import ResultColumns
    from usdt.engine.aggregate.rows import Rows
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
    from usdt.engine.compiler.limits import UnwindMethod
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.python_processes import PythonProcesses
    from usdt.engine.output.stacks import CodeSource
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest
    from usdt.engine.walks.walked import StackAddresses

__all__ = ("AggregateSession",)

# Rows of a per-CPU array of counts, in addition to those of the first probe's sites
_ROWS = 1 << 14
_ARRAY_SIZE = 16 << 20  # bytes of a per-CPU array of larger values, if this makes enough rows
_SHARED = 64  # bytes: larger values are shared by all CPUs if the kernel allows it
# Groups of buckets for each key: the values of each CPU have groups of their own.
_FEWEST_GROUPS, _MOST_GROUPS = 6, 24
_MANY_GROUPS = 1 << 20  # most in all, unless there are more keys


_RowKey = tuple[Source, tuple[Any, ...]]


class _AttachPlanner(AttachPlanner):
    # Plans values and keys instead of records.
    def __init__(
        self,
        aggregates: AggregatePlanner,
        announce: Callable[[ProgramVariant, str, ProbeText], None],
        *,
        max_string: int,
    ) -> None:
        super().__init__(announce, max_string=max_string)
        self._aggregates = aggregates

    def plan_items(self, request: ProbeText, point: AttachPoint, declared: int) -> ProbePlan:
        return self._aggregates.plan(
            request,
            point.probe,
            point.arguments,
            declared=declared,
            max_string=self._max_string,
            function=point.function,
            types=point.types,
            kernel=point.kernel_target is not None,
            registers=point.registers,
        )

    def request_number(self, request: ProbeText) -> int:
        return self._aggregates.number_of(request)


class AggregateSession(BpfSession):
    """Attached programs that aggregate, and their results; a context manager.

    Args:
        aggregation: the aggregation to compute.
        requests: the probes; start and end, for a time between two.
        accept: the traced processes.
        via: the attach method; None selects the newest method that the kernel has.
        max_string: bytes that str() keeps of a string.
        python: lets programs know the Python processes, of those with the given IDs or of all.
        unwind: how user stacks in keys are unwound.
        code: returns what knows the code of processes, whose stacks are unwound by unwind tables;
            without it, frame pointers are followed.
        pids: the processes that are traced from the start.

    Raises:
        LanguageError: a probe's items are not valid for the aggregation.
        NotSupported: the kernel cannot unwind stacks as ``unwind`` asks.
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON; ENOMEM: too many keys.
    """

    def __init__(
        self,
        aggregation: Aggregation,
        requests: Sequence[ProbeText],
        *,
        accept: TaskFilter | None = None,
        via: UprobeMethod | None = None,
        max_string: int,
        python: Callable[[Sequence[int]], PythonProcesses] | None = None,
        unwind: UnwindMethod = "auto",
        code: Callable[[], CodeSource | None] | None = None,
        pids: Sequence[int] = (),
    ) -> None:
        self.aggregation = aggregation
        self._find_python = python
        self._stacks = StackKeys(aggregation.stack_columns, unwind, code, pids)
        self._aggregates = AggregatePlanner(aggregation, requests, self._stacks.walked)
        atomics = features.have_fetching_atomics()
        self._action = AggregateActionEmitter(aggregation, atomics=atomics, cpus=possible_cpus())
        self._maps: dict[str, Map] = {}
        self._epoch = 0
        self._pairing = Pairing(self._maps)
        self._most_points = 0
        self._late_rows: dict[_RowKey, Value] = {}
        self._previous: dict[_RowKey, Value] = {}
        super().__init__(
            _AttachPlanner(self._aggregates, self._announce, max_string=max_string),
            self._maps,
            accept=accept,
            via=via,
            action=self._action,
            may_sleep=not aggregation.stacks,
        )

    def attach(
        self, request: ProbeText, points: Sequence[AttachPoint], *, declared: int | None = None
    ) -> list[AttachFailure]:
        """Attach as :meth:`BpfSession.attach`; a pattern may match all functions of a kernel."""
        self._most_points = max(self._most_points, len(points))
        failures = super().attach(request, points, declared=declared)
        if sum(len(failure.points) for failure in failures) < len(points):
            self._pairing.attached(self._aggregates.number_of(request))
        return failures

    @property
    def attach_log(self) -> list[str]:
        """Messages on what was attached, and how user stacks in keys are unwound, for ``-v``."""
        return super().attach_log + self._stacks.report

    def _announce(self, variant: ProgramVariant, probe: str, request: ProbeText) -> None:
        action = self._aggregates.action(variant.plan, probe, request)
        self._make_maps(action)
        self._action.actions[variant.number] = action

    def _needs_python(self, requests: Sequence[AttachRequest]) -> bool:
        del requests
        return any(one.kind is StackKind.PYTHON for one in self.aggregation.stack_columns)

    def _python_processes(self) -> PythonProcesses:
        return self._find_python(self.pids) if self._find_python else super()._python_processes()

    def begin(self) -> None:
        """Pair starts and ends, as soon as both are attached somewhere."""
        self._pairing.begin()

    def drain(self) -> Iterator[list[Any]]:
        """End pairing, then detach; there are no batches."""
        self._pairing.stop()
        return super().drain()

    # ------------------------------------------------------------ maps

    def _make_maps(self, action: AggregateAction) -> None:
        if action.unreadable:
            return  # its program only counts unreadable hits
        if action.role is not Role.START:
            self._need_values(action)
        if action.role is not Role.HIT:
            self._need_pairs(action)
        for spec in self._stacks.maps_of(action.keys, self.aggregation.max_keys):
            self._need(spec.name, spec.type, spec.key_size, spec.value_size, spec.entries)
        walks = self._stacks.make_walks(action.keys)
        if walks is not None:
            self._resources.callback(walks.close)
            self._attacher.add_maps(walks.maps)
            for descriptor in walks.descriptors:
                self.watch(descriptor)

    def closing_notes(self) -> list[str]:
        """Return the messages as :meth:`BpfSession.closing_notes`, and those about stacks."""
        return [*super().closing_notes(), *self._stacks.notices]

    def _attach(self, requests: Sequence[AttachRequest]) -> list[AttachFailure]:
        self._stacks.load_files(requests)
        return super()._attach(requests)

    def expect(self, pid: int, files: Iterable[str]) -> None:
        """Load what programs need to know of a process that will start, and of its files."""
        self._stacks.expect(pid, files)

    def poll(self, timeout: float) -> list[Any]:
        """Poll as :meth:`BpfSession.poll` does; also load the unwind tables of new code."""
        batch = super().poll(timeout)
        self._stacks.update()
        return batch

    def _need_values(self, action: AggregateAction) -> None:
        aggregation = self.aggregation
        size = value_size(aggregation)
        if aggregation.keyed:
            # Without atomic instructions, what is computed from the previous value is per CPU.
            plain = not aggregation.stats and aggregation.resolution is None
            shared = size > _SHARED and (self._action.atomics or plain)
            kind = MapType.HASH if shared else MapType.PERCPU_HASH
            most = aggregation.max_keys * (2 if aggregation.intervals else 1)
            self._need(VALUES, kind, self._key_size(VALUES, action.keys.size), size, most)
            self._need_zeros()
            self._need(EPOCH, MapType.ARRAY, 4, 8, 1)
        else:
            self._need(VALUES, MapType.PERCPU_ARRAY, 4, size, _rows_of(size) + self._most_points)
        if aggregation.resolution is not None:
            self._need_distributions()

    def _need_pairs(self, action: AggregateAction) -> None:
        aggregation = self.aggregation
        entries = aggregation.max_keys
        grouped = aggregation.at_start and bool(aggregation.keys)
        size = start_size(grouped=grouped)
        self._need(STARTS, MapType.HASH, self._key_size(STARTS, action.pair.size), size, entries)
        if self._action.atomics and aggregation.by_thread:
            self._need(PLACES, MapType.ARRAY, 4, size + 8, THREADS)
        self._need(UNPAIRED, MapType.ARRAY, 4, 16, 2)
        self._pairing.set_gate()
        if grouped and action.role is Role.START:
            key_size = self._key_size(GROUPS, action.keys.size)
            self._need(GROUPS, MapType.HASH, key_size, 8, entries)
            self._need_zeros()
            self._need_numbers()

    def _need_distributions(self) -> None:
        keys = self.aggregation.max_keys * (2 if self.aggregation.intervals else 1)
        groups = max(_FEWEST_GROUPS, min(_MOST_GROUPS, possible_cpus()))
        entries = max(keys, min(groups * keys, _MANY_GROUPS))
        self._need(SPREAD, MapType.HASH, SPREAD_KEY.size, 8 * GROUP, entries)
        self._need_zeros()
        self._need_numbers()

    def _need_zeros(self) -> None:
        # One entry initializes those of every map.
        sizes = value_size(self.aggregation), 8 * GROUP, start_size(grouped=True)
        self._need(ZEROS, MapType.ARRAY, 4, max(sizes), 1)

    def _need_numbers(self) -> None:
        if NUMBERS in self._maps:
            return
        self._need(NUMBERS, MapType.PERCPU_ARRAY, 4, 8, 1)
        # Each CPU counts in steps of their number, from a number of its own.
        first = range(1, possible_cpus() + 1)
        self._maps[NUMBERS].set(bytes(4), struct.pack(f"={len(first)}Q", *first))

    def _key_size(self, name: str, size: int) -> int:
        # All keys of a map have one size. The same items have the same size at every site, except
        # structures passed by value.
        made = self._maps.get(name)
        if made is None:
            return size
        if size != made.spec.key_size:
            raise TracingError(
                f"keys of {size} and of {made.spec.key_size} bytes at different call sites: "
                "trace one of the probes, or cast what differs to an integer type"
            )
        return size

    def _need(self, name: str, kind: MapType, key_size: int, size: int, entries: int) -> None:
        if name in self._maps:
            return
        try:
            made = MapSpec(kind, key_size, size, entries, name).create()
        except SyscallError as err:
            hint = "fewer --max-keys need less memory" if entries > 1 else ""
            raise SyscallError(err.errno or 0, f"a map of {entries} entries", hint) from err
        self._resources.callback(made.close)
        self._maps[name] = made
        self._attacher.add_maps({name: made})

    # ------------------------------------------------------------ reading

    def sources(self) -> list[Source]:
        """Return every attached probe that has results, in the order found."""
        return self._aggregates.sources()

    def read(self, *, distributions: bool = True) -> Rows:
        """Return all results so far, unordered.

        With intervals and keys, these are the results of the current interval. ``distributions``
        says whether the values have percentiles, if they were requested.
        """
        plain = self.read_plain()
        if plain is not None:
            return plain
        return _rows(self._read_epoch(self._epoch, distributions=distributions))

    def read_plain(self) -> PlainRows | None:
        """Return what :meth:`read` returns if each entry of the map is a result, else None."""
        layout = self._plain_layout()
        return None if layout is None else PlainRows(self._maps[VALUES], layout, self.aggregation)

    def each(self) -> Iterator[Row]:
        """Yield what :meth:`read` returns, as it is read; several results may have one key."""
        if SPREAD in self._maps:
            yield from self.read()
            return
        for layout, key, data in self._entries(self._epoch, remove=False):
            value = unpack(self.aggregation, data, signed=layout.signed)
            if value.count:
                yield Row(layout.source, key, value)

    def hits(self) -> int:
        """Return the number of hits so far; of the current interval, if values have keys."""
        aggregation = self.aggregation
        if aggregation.keyed and not aggregation.intervals and VALUES in self._maps:
            return hits_of(self._maps[VALUES], aggregation)
        return hits_of_rows(self.read(distributions=False))

    def read_largest(self, number: int) -> tuple[list[Row], Largest] | None:
        """Return the results with the most hits so far, and what the others are.

        None if only :meth:`read` can tell: entries of the map may be parts of one result.
        """
        layout, aggregation = self._plain_layout(), self.aggregation
        if layout is None:
            return None
        found = largest(self._maps[VALUES], aggregation, number)
        rows = [
            Row(layout.source, layout.keys.read(k), unpack(aggregation, v, signed=layout.signed))
            for k, v in found.entries
        ]
        return rows, found

    def _plain_layout(self) -> ResultColumns | None:
        # The layout of all entries of the map, if each of them is a result of its own.
        layouts, aggregation = self._aggregates.layouts, self.aggregation
        plain = aggregation.keyed and not aggregation.intervals and aggregation.resolution is None
        if not plain or len(layouts) != 1 or VALUES not in self._maps or GROUPS in self._maps:
            return None
        return layouts[0] if are_distinct(layouts[0].keys) else None

    def read_interval(self) -> list[Row]:
        """Return the results since the last call, and start the next interval."""
        if not self.aggregation.keyed:
            now = self._read_epoch(0)
            rows = {key: value.minus(self._previous.get(key, NONE)) for key, value in now.items()}
            self._previous = now
            return _rows(rows)
        before, late = self._epoch, self._late_rows
        self._epoch += 1
        if EPOCH in self._maps:
            self._maps[EPOCH].set(bytes(4), struct.pack("=Q", self._epoch))
        rows = dict(self._late_hits(before - 1, late))
        self._late_rows = self._read_epoch(before)
        for key, value in self._late_rows.items():
            rows[key] = value.plus(rows.get(key, NONE))
        return _rows(rows)

    def _late_hits(
        self, epoch: int, shown: dict[_RowKey, Value]
    ) -> Iterator[tuple[_RowKey, Value]]:
        # Yields hits that an ended interval got from programs still running at its end; removes its
        # keys.
        if epoch < 0:
            return
        for key, value in self._read_epoch(epoch, remove=True).items():
            late = value.minus(shown.get(key, NONE))
            if late.count:
                yield key, late

    def _read_epoch(
        self, epoch: int, *, remove: bool = False, distributions: bool = True
    ) -> dict[_RowKey, Value]:
        found: dict[_RowKey, Value] = {}
        entries: Iterable[tuple[ResultColumns, tuple[Any, ...], bytes]]
        entries = self._entries(epoch, remove=remove)
        spread = None
        if distributions and SPREAD in self._maps:
            entries = list(entries)
            # Read after the values: a value then has the buckets of all hits that it counts.
            spread = spread_of(self._maps[SPREAD].items()) if entries else None
        for layout, key, data in entries:
            row_key = layout.source, key
            value = unpack(self.aggregation, data, signed=layout.signed, spread=spread)
            if value.count:
                known = found.get(row_key)
                found[row_key] = value if known is None else known.plus(value)
            if remove and spread is not None:
                self._remove_distribution(data, spread)
        return found

    def _remove_distribution(self, data: bytes, spread: dict[int, dict[int, int]]) -> None:
        for number in numbers_of(self.aggregation, data):
            for group in {bucket // GROUP for bucket in spread.get(number, ())}:
                self._maps[SPREAD].delete(SPREAD_KEY.pack(group, number))

    def _entries(
        self, epoch: int, *, remove: bool
    ) -> Iterator[tuple[ResultColumns, tuple[Any, ...], bytes]]:
        table = self._maps.get(VALUES)
        if table is None:
            return
        if not self.aggregation.keyed:
            layouts = self._aggregates.layouts[: table.spec.entries]
            nothing = bytes(table.value_size)
            for (_, data), layout in zip(table.first(len(layouts)), layouts, strict=False):
                if data != nothing:
                    yield layout, (), data
            return
        rows: Iterable[tuple[bytes, bytes]] = table.items()
        groups = None
        if remove or GROUPS in self._maps:
            rows = list(rows)
            groups = self._groups()  # read after the values: it has all of theirs
        layouts = self._aggregates.layouts
        readers = [layout.keys.reader() for layout in layouts]
        for key, data in rows:
            number, when = HEADER.unpack_from(key)
            if when == epoch % (1 << 32) and number < len(readers):
                layout, parts = layouts[number], readers[number](key)
                yield layout, parts if groups is None else groups[parts[0]], data
                if remove:
                    table.delete(key)

    def _groups(self) -> dict[int, tuple[Any, ...]] | None:
        # Returns the keys that were evaluated at starts, by the numbers that stand for them.
        if GROUPS not in self._maps:
            return None
        found = {}
        for key, data in self._maps[GROUPS].items():
            layout = self._aggregates.layouts[HEADER.unpack_from(key)[0]]
            found[struct.unpack("=Q", data)[0]] = layout.keys.read(key)
        return found

    def stack(self, stack: Stack) -> StackAddresses:
        """Return the addresses of a stack; none if the kernel recorded none."""
        return self._stacks.read(stack, self._maps)

    def python_stack(self, stack: PythonStack) -> tuple[bytes, int]:
        """Return the slots of a Python stack, and the number before them."""
        if stack.number < 0:
            return b"", stack.number
        data = self._maps[python_map(stack.column)].get(struct.pack("=q", stack.number)) or bytes(8)
        return data[8:], int(struct.unpack_from("=q", data)[0])

    def unmatched_ends(self) -> int:
        """Return how many ends had no start."""
        return self.pairs().unmatched

    def pairs(self) -> UnpairedCounts:
        """Return the numbers of starts and ends without a counterpart."""
        return self._pairing.counts()


def _rows_of(size: int) -> int:
    # Returns the number of rows of a per-CPU array; hits of further probes are counted as lost.
    return _ROWS if size == 8 else max(256, min(_ROWS, _ARRAY_SIZE // (size * possible_cpus())))


def _rows(found: dict[_RowKey, Value]) -> list[Row]:
    return [Row(*row_key, value) for row_key, value in found.items() if value.count]
