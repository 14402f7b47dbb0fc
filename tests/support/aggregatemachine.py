"""The tests' own machine with the maps of aggregations: their programs run without a kernel."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bpfmachine import Machine
from planning import EVERY_TYPE

from usdt.engine.aggregate.codegen.action import GROUPS, VALUES, AggregateActionEmitter, Role
from usdt.engine.aggregate.codegen.keys import EPOCH
from usdt.engine.aggregate.codegen.pairs import (
    GATE,
    NESTED,
    PLACES,
    STARTS,
    THREADS,
    UNPAIRED,
    start_size,
)
from usdt.engine.aggregate.codegen.values import NUMBERS, SPREAD, ZEROS
from usdt.engine.aggregate.planning import AggregatePlanner
from usdt.engine.aggregate.values import GROUP, Value, spread_of, unpack, value_size
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.language import parse_probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.asm.assembler import Code
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.compiler.arguments import Argument

__all__ = ("AggregateMachine", "Programs")

_TABLES = 5 << 48  # where values lie: far below the machine's own areas
_ROOM = 1 << 12
_NOEXIST = 1
_NO_ENTRY, _NO_ROOM, _EXISTS = -2, -7, -17
_ATOMIC, _FETCH, _XCHG, _CMPXCHG = 0xDB, 0x01, 0xE1, 0xF1
_ALL = (1 << 64) - 1


@dataclass
class Table:
    """A map: key → (address, value)."""

    key_size: int
    entries: int
    array: bool
    rows: dict[bytes, tuple[int, bytearray]] = field(default_factory=dict)


@dataclass
class AggregateMachine(Machine):
    """A machine with maps that outlive a program.

    Attributes:
        tables: by name.
        now: nanoseconds, a step more each time it is asked for.
        stack: what bpf_get_stackid() returns.
    """

    tables: dict[str, Table] = field(default_factory=dict)
    now: int = 1000
    step: int = 0
    stack: int = 3
    spurious: int = 0
    made: int = 0

    def _ktime_get_ns(self) -> int:
        self.now += self.step
        return self.now

    def _get_stackid(self) -> int:
        assert self._maps[self._read(2)].startswith("stacks.")
        return self.stack

    def _table(self) -> tuple[Table, bytes]:
        table = self.tables[self._maps[self._read(1)]]
        return table, self._get(self._read(2), table.key_size)

    def _map_lookup_elem(self) -> int:
        if self._maps[self._read(1)] == "counters":
            return super()._map_lookup_elem()
        table, key = self._table()
        found = table.rows.get(key)
        if found is None:
            return 0
        address, value = found
        self._areas[address] = value
        return address

    def _map_update_elem(self) -> int:
        table, key = self._table()
        assert self._read(4) == _NOEXIST
        assert not table.array
        if key in table.rows:
            return _EXISTS
        if len(table.rows) >= table.entries:
            return _NO_ROOM
        self._add(table, key, self._get(self._read(3), self._size(table)))
        return 0

    def _map_delete_elem(self) -> int:
        table, key = self._table()
        return 0 if table.rows.pop(key, None) else _NO_ENTRY

    def _size(self, table: Table) -> int:
        return next(size for name, size in self._sizes.items() if self.tables[name] is table)

    def _add(self, table: Table, key: bytes, value: bytes) -> None:
        self.made += 1
        table.rows[key] = _TABLES + self.made * _ROOM, bytearray(value)

    def make(self, name: str, size: int, key_size: int, entries: int, *, array: bool) -> None:
        """Make a map; an array has all its entries from the start."""
        self._sizes: dict[str, int] = getattr(self, "_sizes", {})
        self._sizes[name] = size
        table = self.tables[name] = Table(key_size, entries, array)
        if array:
            for index in range(entries):
                self._add(table, struct.pack("=I", index), bytes(size))

    def words(self, name: str) -> tuple[int, ...]:
        """The words of an array's first entry."""
        data = self.tables[name].rows[bytes(4)][1]
        return struct.unpack(f"={len(data) // 8}Q", data)

    def _memory(self, insn: Any) -> None:
        if insn.opcode != _ATOMIC or insn.immediate == 0:
            super()._memory(insn)
            return
        address = (self._read(insn.dst) + insn.offset) & _ALL
        old = int.from_bytes(self._get(address, 8), "little")
        value = self._read(insn.src)
        if insn.immediate == _FETCH:
            self._put(address, ((old + value) & _ALL).to_bytes(8, "little"))
            self._registers[insn.src] = old
            return
        if insn.immediate == _XCHG:
            self._put(address, value.to_bytes(8, "little"))
            self._registers[insn.src] = old
            return
        assert insn.immediate == _CMPXCHG
        if self.spurious:  # somebody else was quicker
            self.spurious -= 1
            old = (old + 1) & _ALL
            self._put(address, old.to_bytes(8, "little"))
        if old == self._read(0):
            self._put(address, value.to_bytes(8, "little"))
        self._registers[0] = old


class Programs:
    """The programs of an aggregation, one for each request, and a machine with its maps."""

    def __init__(
        self,
        aggregation: Aggregation,
        probes: Sequence[str],
        *,
        arguments: Sequence[Argument] = EVERY_TYPE,
        atomics: bool = True,
        sleepable: bool = False,
        entries: int = 4,
        places: int = 1000,
        **machine: Any,
    ) -> None:
        """Plan the probes and make maps for ``entries`` keys and ``places`` groups of buckets."""
        self.aggregation = aggregation
        self.planner = AggregatePlanner(
            aggregation, requests := [parse_probe(text) for text in probes]
        )
        self.machine = AggregateMachine(**machine)
        body = AggregateActionEmitter(aggregation, atomics=atomics, cpus=3)
        self.codes: list[Code] = []
        size = value_size(aggregation)
        for index, request in enumerate(requests):
            plan = self.planner.plan(
                request, "p:q", arguments, declared=len(arguments), max_string=20
            )
            case = ProgramVariant(index + 1, index, plan)
            action = body.actions[case.number] = self.planner.action(plan, "p:q", request)
            key = action.keys.size if aggregation.keyed else 4
            if action.role is not Role.START:
                array = not aggregation.keyed
                self.machine.make(VALUES, size, key, entries, array=array)
            grouped = aggregation.at_start
            self.machine.make(
                STARTS, start_size(grouped=grouped), action.pair.size, entries, array=False
            )
            if atomics and aggregation.by_thread:
                place = start_size(grouped=grouped) + 8
                self.machine.make(PLACES, place, 4, THREADS, array=True)
            if grouped and action.role is Role.START:
                self.machine.make(GROUPS, 8, action.keys.size, entries, array=False)
            self.codes.append(generate([case], TaskFilter(), sleepable=sleepable, action=body))
        zeros = max(size, 8 * GROUP, start_size(grouped=True))
        for name, value, rows in (
            *((ZEROS, zeros, 1), (EPOCH, 8, 1), (UNPAIRED, 16, 2), (NUMBERS, 8, 1)),
        ):
            self.machine.make(name, value, 4, rows, array=True)
        self.machine.tables[NUMBERS].rows[bytes(4)][1][0] = 1
        self.machine.make(SPREAD, 8 * GROUP, 8, places, array=False)
        self.set_gate(open_=True)

    def set_gate(self, *, open_: bool) -> None:
        """Let starts and ends through, or not."""
        self.machine.tables[UNPAIRED].rows[struct.pack("=I", GATE)][1][0] = open_

    def hit(self, index: int = 0, context: bytes | None = None) -> None:
        """Run a program once."""
        if context is not None:
            self.machine.context = context
        self.machine.run(self.codes[index])

    def values(self) -> dict[tuple[Any, ...], Value]:
        """What was aggregated, by interval and key."""
        found: dict[tuple[Any, ...], Value] = {}
        for key, (_, data) in self.machine.tables[VALUES].rows.items():
            row = int.from_bytes(key[:4], "little")
            if row >= len(self.planner.layouts):
                continue
            layout = self.planner.layouts[row]
            place: tuple[Any, ...] = ()
            if self.aggregation.keyed:
                place = int.from_bytes(key[4:8], "little"), *layout.keys.read(key)
                if self.aggregation.at_start:
                    place = place[0], *self._group(place[1])
            value = unpack(
                self.aggregation, bytes(data), signed=layout.signed, spread=self.spread()
            )
            if value.count:
                found[place] = value
        return found

    def _group(self, number: int) -> tuple[Any, ...]:
        for key, (_, data) in self.machine.tables[GROUPS].rows.items():
            if int.from_bytes(data, "little") == number:
                return self.planner.layouts[int.from_bytes(key[:4], "little")].keys.read(key)
        raise AssertionError(f"no group {number}")

    def spread(self) -> dict[int, dict[int, int]]:
        """The buckets of distributions, by their number."""
        rows = self.machine.tables[SPREAD].rows.items()
        return spread_of((key, bytes(data)) for key, (_, data) in rows)

    @property
    def odd(self) -> tuple[int, ...]:
        """Ends without a start, starts nested too deeply."""
        return self.machine.words(UNPAIRED)

    def depths(self) -> list[int]:
        """The depth of each key's starts."""
        values = [value for _, value in self.machine.tables[STARTS].rows.values()]
        if PLACES in self.machine.tables:
            places = self.machine.tables[PLACES].rows.values()
            values += [value for _, value in places if any(value[-8:])]  # taken
        found = [struct.unpack_from("=q", value)[0] for value in values]
        assert all(depth <= 2 * NESTED for depth in found)
        return found
