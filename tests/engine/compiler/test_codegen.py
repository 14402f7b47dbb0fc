"""Programs: run on a machine of our own, every path of them, whatever kernel this is."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

import pytest
from bpfmachine import Machine
from hits import (
    NUMBER,
    POINTER,
    RAX,
    RDI,
    TEXT,
    UNREADABLE,
    program,
    registers,
    run,
    shown,
    text_machine,
)
from planning import argument, memory, plan

from usdt.arch.locations import Address, Constant, Memory, Register, ValueClass, ValueType
from usdt.base.errors import LanguageError, TracingError
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.assembler import Assembler, CodeTooLarge
from usdt.bpf.asm.insn import R1, R6, Jump
from usdt.cgroups.labels import CgroupName
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.codegen.expressions import TEMPORARIES, ExpressionEmitter
from usdt.engine.compiler.codegen.model import (
    COUNTERS,
    ActionEmitter,
    Labels,
    ProgramVariant,
    TaskFilter,
)
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.codegen.ring_writes import EVENTS
from usdt.engine.compiler.codegen.task_filter import ANY_LEVEL
from usdt.engine.compiler.record.columns import CgroupColumn
from usdt.engine.compiler.record.layout import HEADER_SIZE


@pytest.mark.parametrize(
    ("fetch", "kind", "expected"),
    [
        pytest.param(Constant(-5), "s32", -5, id="a constant"),
        pytest.param(Constant((1 << 64) - 1), "u64", (1 << 64) - 1, id="one of 64 bits"),
        pytest.param(Register(RAX, 8), "u64", 0xFEDCBA9876543210, id="a register"),
        pytest.param(Register(RAX, 8), "s64", -0x0123456789ABCDF0, id="a signed register"),
        pytest.param(Register(RAX, 4), "u32", 0x76543210, id="its lower half"),
        pytest.param(Register(RAX + 4, 4), "s32", -0x01234568, id="a signed half"),
        pytest.param(Register(RAX + 1, 1), "u8", 0x32, id="its second byte, as ah"),
        pytest.param(Register(RAX + 4, 1), "s8", -0x68, id="a signed byte"),
        pytest.param(Memory(RDI, None, 1, 0, 8, 4), "s32", -2, id="memory"),
        pytest.param(Memory(RDI, None, 1, 4, 8, 2), "u16", 0x1234, id="with a displacement"),
        pytest.param(Memory(RDI, 104, 8, -16, 8, 1), "u8", 7, id="with an index and a scale"),
        pytest.param(Memory(None, 104, 4, TEXT - 4, 8, 1), "u8", 7, id="without a base"),
        pytest.param(Memory(None, None, 1, TEXT + 8, 8, 1), "u8", 7, id="at a fixed place"),
        pytest.param(Memory(RDI, None, 1, 1 << 40, 8, 1), "u8", 9, id="far away"),
        pytest.param(Address(RDI, 8, 8), "u64", TEXT + 8, id="an address"),
        pytest.param(Address(RDI, -(1 << 40), 8), "u64", TEXT - (1 << 40), id="one far away"),
        pytest.param(Address(RDI, 8, 4), "u32", 0x1008, id="one of 32 bits"),
    ],
)
def test_arguments(fetch: Any, kind: str, expected: int) -> None:
    context = registers(rax=0xFEDCBA9876543210, rdi=TEXT, rsi=3)
    user = {TEXT: struct.pack("=iHxxB", -2, 0x1234, 7), TEXT + (1 << 40): b"\x09"}
    one = Argument("arg0", argument(0, kind).type, fetch)
    for items in ("arg0", "arg0, arg0 == arg0", "+arg0", "(arg0 < 0) * 0 + arg0"):
        machine = Machine(context=context, user=user)
        found = run(items, machine, one)
        assert next(iter(found.values())) == expected, items


def test_addresses_of_32_bit_processes_are_cut() -> None:
    context = registers(rdi=0xDEADBEEF_00001000, rsi=0xFFFFFFFF_FFFFFFFF)
    place = Memory(RDI, 104, 4, 8, 4, 4)
    one = Argument("arg0", argument(0, "s32").type, place)
    machine = Machine(context=context, user={0x1004: struct.pack("=i", 42)})
    assert run("arg0", machine, one) == {"arg0": 42}


@pytest.mark.parametrize(
    ("kind", "address"),
    [
        pytest.param(ValueClass.SIGNED, TEXT - 8, id="a signed one"),
        pytest.param(ValueClass.UNSIGNED, TEXT + 4 * 0xFFFFFFFE, id="an unsigned one"),
    ],
)
def test_an_index_narrower_than_an_address_is_extended(kind: ValueClass, address: int) -> None:
    context = registers(rdi=TEXT, rsi=0xDEADBEEF_FFFFFFFE)
    place = Memory(RDI, 104, 4, 0, 8, 4, ValueType(kind, 4))
    one = Argument("arg0", argument(0, "s32").type, place)
    machine = Machine(context=context, user={address: struct.pack("=i", 42)})
    assert run("arg0", machine, one) == {"arg0": 42}


def test_addresses_by_way_of_a_32_bit_register() -> None:
    one = Argument("arg0", argument(0, "u64").type, Address(RDI, -16, 8, 4))
    machine = Machine(context=registers(rdi=0xDEADBEEF_00001000))
    assert run("arg0", machine, one) == {"arg0": 0xFF0}


def test_floats_and_aggregates_are_copied() -> None:
    user = {TEXT: struct.pack("=df", 0.5, -0.25) + bytes(range(24))}
    arguments = (
        argument(0, "f64", memory(8)),
        argument(1, "f32", memory(4, 8)),
        argument(2, "b24", memory(24, 12)),
    )
    machine = Machine(context=registers(rdi=TEXT), user=user)
    expected = {"arg0": 0.5, "arg1": -0.25, "arg2": bytes(range(24))}
    assert run("", machine, *arguments) == expected
    machine = Machine(context=registers(rdi=TEXT - 4096), user=user)
    assert run("", machine, *arguments) == dict.fromkeys(expected, UNREADABLE)


def test_builtins() -> None:
    machine = Machine(process=7, thread=8)
    found = run("pid, tid, uid, gid, cpu, ts, cgroup, comm, func", machine)
    expected = {"pid": 7, "tid": 8, "uid": 500, "gid": 1000, "cpu": 3, "ts": 123456789}
    assert found == expected | {"cgroup": 77, "comm": "comm", "func": "p:q"}


def test_names_of_cgroups_are_looked_up_when_they_are_shown() -> None:
    machine, made = Machine(), plan("container, pod, unit, cgroup_path", ())
    machine.run(program(made))
    names = ("container", "pod", "unit", "cgroup_path")
    assert [one.column for one in made.layout.fields] == [
        CgroupColumn(CgroupName(n)) for n in names
    ]
    assert struct.unpack("=4Q", machine.records[0][HEADER_SIZE:]) == (77,) * 4


@pytest.mark.parametrize("name", ["container", "pod", "unit", "cgroup_path"])
@pytest.mark.parametrize("items", ["{} == 5", '{} == "web"', '"web*" != {}', "{} + 1", "hex({})"])
def test_names_of_cgroups_stand_alone(name: str, items: str) -> None:
    with pytest.raises(LanguageError, match=f"{name} is looked up when a hit is shown"):
        plan(items.format(name), ())


# ------------------------------------------------------------------ which hits count


@pytest.mark.parametrize(
    ("pids", "process", "counts"),
    [
        pytest.param((), 5, True, id="any process"),
        pytest.param((5,), 5, True, id="the one that is wanted"),
        pytest.param((5,), 6, False, id="another"),
        pytest.param((5,), 5 + (1 << 31), False, id="another that differs in the highest bit"),
        pytest.param((4, 5, 6), 6, True, id="one of several"),
        pytest.param((4, 5, 6), 7, False, id="none of several"),
    ],
)
def test_processes(pids: tuple[int, ...], process: int, counts: bool) -> None:
    for namespace in (None, (4, 4026531836)):
        machine = Machine(process=process, thread=99, namespace=namespace)
        machine.run(program(plan("pid", ()), accept=TaskFilter(pids, namespace)))
        assert len(machine.records) == counts


def test_a_process_outside_our_namespace_does_not_count() -> None:
    machine = Machine(namespace=(4, 1))
    machine.run(program(plan("pid", ()), accept=TaskFilter((), (4, 2))))
    assert machine.records == []
    assert machine.counters == {}


@pytest.mark.parametrize(
    ("since", "counts"),
    [
        pytest.param(123456789, True, id="at the moment"),
        pytest.param(123456788, True, id="after it"),
        pytest.param(123456790, False, id="before it"),
        pytest.param(1 << 62, False, id="long before it"),
    ],
)
def test_hits_count_since_a_moment(since: int, counts: bool) -> None:
    machine = Machine()  # whose clock shows 123456789
    machine.run(program(plan("pid", ()), accept=TaskFilter(since=since)))
    assert len(machine.records) == counts
    assert machine.counters == {}


class CgroupLevels:
    """A set of cgroups, as far as programs are generated from it."""

    maps: ClassVar[dict[str, Any]] = {}

    def __init__(self, *levels: int, more: tuple[int, ...] = ()) -> None:
        self.levels = levels
        self.more_levels = more


@pytest.mark.parametrize(
    ("levels", "cgroups", "counts"),
    [
        pytest.param((2,), (1, 20, 30), True, id="the one that is wanted"),
        pytest.param((2,), (1, 20, 30, 40, 50), True, id="one below it"),
        pytest.param((2,), (1, 20, 31), False, id="another"),
        pytest.param((2,), (1, 20), False, id="one above it"),
        pytest.param((2,), (1, 21, 22, 30), False, id="its ID at another level"),
        pytest.param((1, 3), (1, 20, 21, 30), True, id="one of several levels"),
        pytest.param((0,), (30,), True, id="the root"),
    ],
)
def test_cgroups(levels: tuple[int, ...], cgroups: tuple[int, ...], counts: bool) -> None:
    for pids in ((), (5,)):
        accept = TaskFilter(pids, cgroups=CgroupLevels(*levels))
        for process in (5, 6):
            traced = frozenset((30,))
            machine = Machine(process=process, cgroups=cgroups, traced_cgroups=traced)
            machine.run(program(plan("pid", ()), accept=accept))
            assert len(machine.records) == (counts and process in (pids or (process,)))


@pytest.mark.parametrize(
    ("traced", "counts"),
    [
        pytest.param((30,), False, id="levels that were not there are not looked at"),
        pytest.param((30, ANY_LEVEL), True, id="one at another level was added"),
        pytest.param((31, ANY_LEVEL), False, id="another one was added"),
        pytest.param((20,), True, id="the one that was there"),
    ],
)
def test_cgroups_that_are_added_at_another_level(traced: tuple[int, ...], counts: bool) -> None:
    machine = Machine(cgroups=(1, 20, 25, 30), traced_cgroups=frozenset(traced))
    accept = TaskFilter(cgroups=CgroupLevels(1, more=(2, 3, 4)))
    machine.run(program(plan("pid", ()), accept=accept))
    assert len(machine.records) == counts


@pytest.mark.parametrize("number", [1, 2, 3, 17, 300])
def test_the_cookie_selects_the_case(number: int) -> None:
    cases = [ProgramVariant(3 * n + 1, n, plan(f"{n}")) for n in range(number)]
    code = generate(cases[::-1], TaskFilter(), sleepable=False)
    for case in cases:
        machine = Machine(cookie=case.number)
        machine.run(code)
        (record,) = machine.records
        assert struct.unpack_from("=I", record, 20) == (case.number,)
        assert struct.unpack_from("=Q", record, 40) == (case.probe_index,)
        machine = Machine(cookie=case.number, room=0)
        machine.run(code)
        assert machine.counters == {case.probe_index: (1, 0)}
    if number > 1:
        for cookie in (0, 2, 3 * number + 1, (1 << 64) - 1):
            machine = Machine(cookie=cookie)
            machine.run(code)
            assert machine.records == [], "a cookie of nobody's"
    assert (Helper.GET_ATTACH_COOKIE in machine.calls) is (number > 1)


def test_dispatch_takes_few_steps() -> None:
    code = generate(
        [ProgramVariant(n, 0, plan("", ())) for n in range(1, 257)], TaskFilter(), sleepable=False
    )
    plain = generate([ProgramVariant(1, 0, plan("", ()))], TaskFilter(), sleepable=False)
    assert len(code) <= 256 * (len(plain) + 4)


def test_too_many_cases_are_refused() -> None:
    big = plan("buf(arg7, 60000), str(arg7, 60000), " + ", ".join(f"arg8+{n}" for n in range(60)))
    with pytest.raises(CodeTooLarge, match="out of range"):
        generate([ProgramVariant(n, 0, big) for n in range(1, 60)], TaskFilter(), sleepable=True)
    assert len(generate([ProgramVariant(1, 0, big)], TaskFilter(), sleepable=True)) < 4000


def test_a_program_refers_to_its_maps_by_name() -> None:
    code = program(plan("arg0"))
    assert {name for name, _ in code.maps.values()} == {EVENTS, COUNTERS}
    never = program(plan("1 == 2"))
    assert never.maps == {}
    machine = Machine()
    machine.run(never)
    assert (machine.records, machine.counters) == ([], {})


# ------------------------------------------------------------------ predicates


@pytest.mark.parametrize(
    ("items", "passes"),
    [
        pytest.param("arg1 == 5", True, id="true"),
        pytest.param("arg1 != 5", False, id="false"),
        pytest.param("arg1 > 4, arg1 < 6", True, id="both"),
        pytest.param("arg1 > 4, arg1 < 5", False, id="one of two"),
        pytest.param("arg1 > 9 || arg1 == 5 && arg0 > 0", True, id="a mixture"),
        pytest.param("!(arg1 == 5)", False, id="negated"),
        pytest.param("arg1 && 0", False, id="and never"),
        pytest.param("arg1 == 9 || 1", True, id="or always"),
        pytest.param("!(arg1 && 0)", True, id="not never"),
        pytest.param('comm == "comm"', True, id="the name"),
        pytest.param('comm == "com"', False, id="a shorter name"),
        pytest.param('comm == "*"', True, id="any name"),
        pytest.param('comm != "*"', False, id="no name"),
    ],
)
def test_predicates(items: str, passes: bool) -> None:
    machine = Machine(context=registers(rax=5, rdi=TEXT))
    found = run(f"{items}, arg1", machine, POINTER, NUMBER)
    assert found == ({"arg1": 5} if passes else None)
    assert machine.counters == {}
    if not passes:
        assert Helper.RINGBUF_RESERVE not in machine.calls, "nothing is reserved for it"


@pytest.mark.parametrize(
    "items",
    [
        pytest.param("*(int *)arg0 == 1", id="memory"),
        pytest.param('str(arg0) != "x"', id="a string"),
        pytest.param("arg1 / (arg1 - 5) != 1", id="a division by zero"),
        pytest.param("arg1 == 5 && *(int *)arg0", id="behind what is true"),
        pytest.param("*(int *)arg0 == 1 || arg1 == 5", id="before what would be"),
        pytest.param("arg2 == 1", id="an argument this site has not"),
        pytest.param("arg1 == 5 && arg2 == 1", id="such a one behind what is true"),
    ],
)
@pytest.mark.parametrize("sleepable", [False, True])
def test_undecided_predicates_are_counted(items: str, sleepable: bool) -> None:
    made = plan(items, (POINTER, NUMBER), declared=3)
    code = generate([ProgramVariant(1, 6, made)], TaskFilter(), sleepable=sleepable)
    machine = Machine(context=registers(rax=5, rdi=TEXT))
    machine.run(code)
    machine.run(code)
    assert machine.records == []
    assert machine.counters == {6: (0, 2)}


def test_another_body_gets_the_predicates_and_the_ends() -> None:
    hits: list[int] = []

    class GivesUp(ActionEmitter):
        def emit(
            self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
        ) -> None:
            hits.append(variant.number)
            assert not sleepable
            asm.load(R1, R6, RAX)
            asm.jump(Jump.GT, R1, 9, labels.lost)
            asm.goto(labels.exit)

    made = plan("arg1 > 5, *(int *)arg0 == 7", (POINTER, NUMBER))
    code = generate([ProgramVariant(1, 4, made)], TaskFilter(), sleepable=False, action=GivesUp())
    assert hits == [1]
    for rdi, rax, expected in (
        (TEXT, 4, {}),  # filtered
        (TEXT, 8, {}),
        (TEXT, 10, {4: (1, 0)}),  # what the body gives up is lost
        (64, 10, {4: (0, 1)}),  # undecided
        (64, 4, {}),  # decided before that
    ):
        machine = Machine(context=registers(rdi=rdi, rax=rax), user={TEXT: struct.pack("=i", 7)})
        machine.run(code)
        assert (machine.counters, machine.records) == (expected, [])


def test_records_longer_than_an_instruction_reaches() -> None:
    items = "str(arg0, 40000), arg1, buf(arg0, 3), str(arg0, 5), buf(arg0, arg1), arg1/arg1, 1/0"
    for sleepable in (False, True):
        machine = Machine(context=registers(rdi=TEXT, rax=2), user={TEXT: b"text\0"})
        found = run(items, machine, POINTER, NUMBER, sleepable=sleepable)
        assert [*found.values()][:6] == ["text", 2, "tex", "text", "te", 1]
        machine = Machine(context=registers(rdi=64, rax=2))
        found = run(items, machine, POINTER, NUMBER, sleepable=sleepable)
        assert [*found.values()][:4] == [UNREADABLE, 2, UNREADABLE, UNREADABLE]


# ------------------------------------------------------------------ page faults, and no room


_ABSENT = {
    "a string": ("str(arg0, 30)", "fresh text"),
    "a string across pages": ("str(arg0 + 4090, 30)", "across pages"),
    "a buffer": ("buf(arg0, 5)", "fresh"),
    "a buffer of computed length": ("buf(arg0, arg1)", "fresh"),
    "the length of a buffer": ("buf(arg0, *(int *)(arg0 + 4112))", "fresh"),
    "a pointer followed": ("*(int *)(arg0 + 4112)", 5),
    "a pointer followed twice": ("*(int *)*(long *)(arg0 + 16)", 5),
    "a string behind a pointer": ("str(*(long *)(arg0 + 24))", "across pages"),
    "a comparison of strings": ('(str(arg0 + 4090) == "across*") + 0', 1),
}
_FRESH = bytearray(8192)
_FRESH[:11] = b"fresh text\0"
_FRESH[16:32] = struct.pack("=QQ", TEXT + 4112, TEXT + 4090)
_FRESH[4090:4103] = b"across pages\0"
_FRESH[4112:4116] = struct.pack("=i", 5)


@pytest.mark.parametrize(("item", "expected"), _ABSENT.values(), ids=_ABSENT)
def test_absent_pages_are_faulted_in(item: str, expected: Any) -> None:
    absent = {TEXT, TEXT + 4096}
    machine = text_machine(bytes(_FRESH), absent=set(absent))
    machine.context = registers(rdi=TEXT, rax=5)
    found = run(item, machine, POINTER, NUMBER, sleepable=True)
    assert [*found.values()] == [expected]
    assert machine.discarded == [0], (
        "given back once, and the reader is woken where it waits for it"
    )
    assert machine.calls.count(Helper.RINGBUF_RESERVE) == 2
    machine = text_machine(bytes(_FRESH), absent=set(absent))
    machine.context = registers(rdi=TEXT, rax=5)
    found = run(item, machine, POINTER, NUMBER)
    assert [*found.values()] == [UNREADABLE], "a program that cannot sleep says so"


@pytest.mark.parametrize(
    "predicate",
    [
        pytest.param('str(arg0) == "fresh text"', id="a string"),
        pytest.param('str(arg0 + 4090) == "across*"', id="the beginning of one, across pages"),
        pytest.param("*(int *)(arg0 + 4112) == 5", id="a pointer followed"),
        pytest.param("*(int *)*(long *)(arg0 + 16) == arg1", id="followed twice"),
    ],
)
def test_absent_pages_are_faulted_in_for_predicates(predicate: str) -> None:
    machine = text_machine(bytes(_FRESH), absent={TEXT, TEXT + 4096})
    machine.context = registers(rdi=TEXT, rax=5)
    assert run(f"{predicate}, arg1", machine, POINTER, NUMBER, sleepable=True) == {"arg1": 5}
    assert machine.discarded == [], "before anything is reserved"


def test_what_is_there_costs_no_second_attempt() -> None:
    machine = text_machine(bytes(_FRESH))
    items = ", ".join(item for item, _ in _ABSENT.values())
    run(items, machine, POINTER, NUMBER, sleepable=True)
    assert machine.discarded == []
    assert Helper.COPY_FROM_USER not in machine.calls


def test_what_is_never_there_is_tried_twice_only() -> None:
    machine = Machine(context=registers(rdi=TEXT))
    found = run("str(arg0), *(int *)arg0, buf(arg0, 9)", machine, POINTER, sleepable=True)
    assert [*found.values()] == [UNREADABLE] * 3
    assert machine.calls.count(Helper.RINGBUF_RESERVE) == 2
    assert machine.counters == {}


def test_no_room_is_counted_also_at_the_second_attempt() -> None:
    made = plan("str(arg0)", (POINTER,))
    code = generate([ProgramVariant(1, 3, made)], TaskFilter(), sleepable=True)
    machine = text_machine(bytes(_FRESH), absent={TEXT}, room=made.size)
    machine.run(code)
    assert (machine.records, machine.counters) == ([], {3: (1, 0)})
    machine.run(code)
    assert machine.counters == {3: (2, 0)}
    machine.room = made.size
    machine.run(code)
    assert len(machine.records) == 1
    assert machine.counters == {3: (2, 0)}


# ------------------------------------------------------------------ too deep


def test_the_deeper_side_goes_first() -> None:
    def nested(depth: int) -> str:
        return "arg1+(" * depth + "arg1" + ")" * depth

    machine = Machine(context=registers(rax=1))
    made = plan(nested(45), (POINTER, NUMBER))
    machine.run(program(made))
    assert [*shown(made, machine)[0].values()] == [46]


def test_the_stack_is_the_limit() -> None:
    # Not even a full tree as high as trees may be needs more slots than there are.
    node = plan("arg1 / (*(int *)(arg0 + 4) - 7) % (arg0 / (arg0 - arg1))", (POINTER, NUMBER))
    (output,) = node.outputs
    for slots, enough in ((2, True), (1, False)):
        asm = Assembler()
        writer = ExpressionEmitter(asm, sleepable=True, fail="x", bottom=TEMPORARIES - 8 * slots)
        if enough:
            writer.value(output.node)
            continue
        with pytest.raises(TracingError, match="nested too deeply for the BPF stack; simplify it"):
            writer.value(output.node)
