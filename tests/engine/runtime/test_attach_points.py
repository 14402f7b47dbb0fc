"""Programs on many functions: which was hit, by cookie or by pointer; and the kernel's counts."""

from __future__ import annotations

import struct

import pytest
from aggregatemachine import AggregateMachine
from hits import registers
from planning import plan

from usdt.engine.aggregate.codegen.action import VALUES, AggregateActionEmitter
from usdt.engine.aggregate.planning import AggregatePlanner
from usdt.engine.aggregate.spec import Aggregation, parse_keys
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate, generate_indexed
from usdt.engine.compiler.codegen.record import RECORD_ACTION
from usdt.engine.language import parse_probe
from usdt.engine.runtime.attach.kprobe_batch import POINTERS, DispatchByIp, emit_find_variant
from usdt.tracefs.multi_probe_events import MultiProbeEvent, multi_probe_supported

_ROWS = 300
_FIRST = 0xFFFFFFFF81000000
_x86 = pytest.mark.skipif(
    not multi_probe_supported(), reason="needs x86-64: its registers are meant"
)


def _body(
    aggregation: Aggregation, probe: str
) -> tuple[AggregateActionEmitter, list[ProgramVariant]]:
    body = AggregateActionEmitter(aggregation, atomics=True, cpus=2)
    planner = AggregatePlanner(aggregation, [request := parse_probe(probe)])
    cases = []
    for number in range(1, _ROWS + 1):
        name = f"kprobe:f{number}"
        made = planner.plan(request, name, (), declared=0, max_string=20)
        cases.append(ProgramVariant(number, number - 1, made))
        body.actions[number] = planner.action(made, name, request)
    return body, cases


def _machine(rows: int = _ROWS) -> AggregateMachine:
    machine = AggregateMachine()
    machine.make(VALUES, 8, 4, rows, array=True)
    return machine


def _counted(machine: AggregateMachine) -> dict[int, int]:
    rows = machine.tables[VALUES].rows.items()
    found = {struct.unpack("=I", key)[0]: struct.unpack("=Q", data)[0] for key, (_, data) in rows}
    return {row: count for row, count in found.items() if count}


def test_a_cookie_names_the_row() -> None:
    body, cases = _body(Aggregation(), "kprobe:*")
    write = body.indexed(cases)
    assert write is not None
    code = generate_indexed(TaskFilter(), count=write, find_variant=None, probe_index=7)
    assert len(code) < 40
    machine = _machine(rows=200)
    for cookie in (1, 2, 2, 200, 201):
        machine.cookie = cookie
        machine.run(code)
    assert _counted(machine) == {0: 1, 1: 2, 199: 1}
    assert machine.counters == {7: (1, 0)}  # for 201 there is no row


@_x86
def test_a_pointer_names_the_row() -> None:
    body, cases = _body(Aggregation(), "kprobe:*")
    write = body.indexed(cases)
    assert write is not None
    code = generate_indexed(
        TaskFilter(), count=write, find_variant=emit_find_variant, probe_index=0
    )
    machine = _machine()
    machine.make(POINTERS, 4, 8, _ROWS, array=False)
    for case in cases:
        key = struct.pack("=Q", _FIRST + 32 * case.number + 6)
        machine._add(machine.tables[POINTERS], key, struct.pack("=I", case.number))
    for rip in (_FIRST + 38, _FIRST + 32 * 300 + 6, _FIRST + 32 * 300 + 6, _FIRST + 7):
        machine.context = registers(rip=rip)
        machine.run(code)
    assert _counted(machine) == {0: 1, 299: 2}


@_x86
def test_a_pointer_selects_the_case() -> None:
    body, cases = _body(Aggregation(), "kprobe:*")
    pointers = {_FIRST + 32 * case.number + 6: case.number for case in cases}
    pointers[0xFFFFFFFFC0001006] = 17  # of a module, and again the same case
    keys = tuple((pointer - (1 << 64), number) for pointer, number in pointers.items())
    code = generate(cases, TaskFilter(), sleepable=False, action=body, dispatch=DispatchByIp(keys))
    machine = _machine()
    for rip in (*pointers, _FIRST, _FIRST + 7, 1 << 64):
        machine.context = registers(rip=rip)
        machine.run(code)
    assert _counted(machine) == {row: 1 + (row == 16) for row in range(_ROWS)}


@pytest.mark.parametrize(
    ("aggregation", "probe"),
    [
        (Aggregation(keys=parse_keys("comm", "--by")), "kprobe:*"),
        (Aggregation(), "kprobe:*(pid == 5)"),
        (Aggregation(pair=parse_keys("tid", "--key")), "kprobe:*"),
    ],
    ids=["divided by a key", "with a predicate", "times"],
)
def test_what_does_more_than_count_has_programs_of_its_own(
    aggregation: Aggregation, probe: str
) -> None:
    body, cases = _body(aggregation, probe)
    assert body.indexed(cases) is None


def test_records_are_not_counts() -> None:
    assert RECORD_ACTION.indexed([ProgramVariant(1, 0, plan("pid"))]) is None


def test_misses_are_told_by_function() -> None:
    event = MultiProbeEvent("group/one")
    for address, offset in ((0x1000, 5), (0x2000, 9), (0x3000, 0)):
        event.add(address, offset)
    assert event.pointers == {0x1006: 0x1000, 0x200A: 0x2000, 0x3001: 0x3000, 0x3005: 0x3000}
    assert event.missed([0, 4, 1]) == {0x2000: 4, 0x3000: 1}
    assert event.missed([0, 4]) == {}  # somebody removed a place: nothing is invented
