"""Programs: run on a machine of our own, every path of them, whatever kernel this is."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from bpfmachine import Machine
from planning import EVERY_TYPE, argument, memory, plan

from bpf._uapi import Helper
from bpf.assembler import CodeTooLarge
from bpf.errors import TracingError
from tracing.codegen import COUNTERS, EVENTS, Case, Filter, generate
from tracing.decode import CONTEXT, Decoder
from tracing.forms import EventForm
from tracing.plan import HEADER_SIZE
from tracing.values import Address, Argument, Constant, Memory, Register, Unreadable

if TYPE_CHECKING:
    from bpf.assembler import Code
    from tracing.plan import Plan

_RAX, _RDI, _RIP = 80, 112, 128  # in struct pt_regs
_TEXT = 0x7F0000001000  # where rdi points
_UNREADABLE = Unreadable("memory not readable")


def registers(**values: int) -> bytes:
    """A struct pt_regs with these registers."""
    places = {"rax": _RAX, "rdi": _RDI, "rip": _RIP, "rsi": 104}
    context = bytearray(168)
    for name, value in values.items():
        struct.pack_into("=Q", context, places[name], value & (1 << 64) - 1)
    return bytes(context)


def program(made: Plan, *, sleepable: bool = False, accept: Filter | None = None) -> Code:
    """The program of one plan, for the probe of index 0."""
    return generate([Case(1, 0, made)], accept or Filter(), sleepable=sleepable)


def shown(made: Plan, machine: Machine) -> list[dict[str, Any]]:
    """The arguments of the records that the machine was given."""
    decoder = Decoder(EventForm())
    decoder.add(1, "p:q", made)
    data = b"".join(struct.pack("=II", len(one), 0) + one for one in machine.records)
    return [event.args for batch in decoder.batches(data) for event in batch]


def run(items: str, machine: Machine, *arguments: Argument, sleepable: bool = False) -> Any:
    """What one hit shows; None if it shows nothing."""
    made = plan(items, arguments or EVERY_TYPE)
    machine.run(program(made, sleepable=sleepable))
    found = shown(made, machine)
    return found[0] if found else None


def text_machine(text: bytes, **more: Any) -> Machine:
    """A machine on which arg0 (rdi, a register) points at some bytes."""
    return Machine(context=registers(rdi=_TEXT), user={_TEXT: text}, **more)


_POINTER = Argument("arg0", argument(0, "u64").type, Register(_RDI, 8))
_NUMBER = Argument("arg1", argument(0, "s64").type, Register(_RAX, 8))


def test_the_context_of_a_record() -> None:
    machine = Machine(process=0x7FFFFFFF, thread=5, comm=b"fifteen-bytes-x")
    machine.run(generate([Case(9, 0, plan("", ()))], Filter(), sleepable=False))
    (record,) = machine.records
    assert len(record) == HEADER_SIZE
    assert struct.unpack_from("=Q", record) == (123456789,)
    assert CONTEXT.unpack(record[8:]) == (5, 0x7FFFFFFF, 3, 9, b"fifteen-bytes-x\0")


@pytest.mark.parametrize(
    ("fetch", "kind", "expected"),
    [
        pytest.param(Constant(-5), "s32", -5, id="a constant"),
        pytest.param(Constant((1 << 64) - 1), "u64", (1 << 64) - 1, id="one of 64 bits"),
        pytest.param(Register(_RAX, 8), "u64", 0xFEDCBA9876543210, id="a register"),
        pytest.param(Register(_RAX, 8), "s64", -0x0123456789ABCDF0, id="a signed register"),
        pytest.param(Register(_RAX, 4), "u32", 0x76543210, id="its lower half"),
        pytest.param(Register(_RAX + 4, 4), "s32", -0x01234568, id="a signed half"),
        pytest.param(Register(_RAX + 1, 1), "u8", 0x32, id="its second byte, as ah"),
        pytest.param(Register(_RAX + 4, 1), "s8", -0x68, id="a signed byte"),
        pytest.param(Memory(_RDI, None, 1, 0, 8, 4), "s32", -2, id="memory"),
        pytest.param(Memory(_RDI, None, 1, 4, 8, 2), "u16", 0x1234, id="with a displacement"),
        pytest.param(Memory(_RDI, 104, 8, -16, 8, 1), "u8", 7, id="with an index and a scale"),
        pytest.param(Memory(None, 104, 4, _TEXT - 4, 8, 1), "u8", 7, id="without a base"),
        pytest.param(Memory(None, None, 1, _TEXT + 8, 8, 1), "u8", 7, id="at a fixed place"),
        pytest.param(Memory(_RDI, None, 1, 1 << 40, 8, 1), "u8", 9, id="far away"),
        pytest.param(Address(_RDI, 8, 8), "u64", _TEXT + 8, id="an address"),
        pytest.param(Address(_RDI, -(1 << 40), 8), "u64", _TEXT - (1 << 40), id="one far away"),
        pytest.param(Address(_RDI, 8, 4), "u32", 0x1008, id="one of 32 bits"),
    ],
)
def test_arguments(fetch: Any, kind: str, expected: int) -> None:
    context = registers(rax=0xFEDCBA9876543210, rdi=_TEXT, rsi=3)
    user = {_TEXT: struct.pack("=iHxxB", -2, 0x1234, 7), _TEXT + (1 << 40): b"\x09"}
    one = Argument("arg0", argument(0, kind).type, fetch)
    for items in ("arg0", "arg0, arg0 == arg0", "+arg0", "(arg0 < 0) * 0 + arg0"):
        machine = Machine(context=context, user=user)
        found = run(items, machine, one)
        assert next(iter(found.values())) == expected, items


def test_addresses_of_32_bit_processes_are_cut() -> None:
    context = registers(rdi=0xDEADBEEF_00001000, rsi=0xFFFFFFFF_FFFFFFFF)
    place = Memory(_RDI, 104, 4, 8, 4, 4)
    one = Argument("arg0", argument(0, "s32").type, place)
    machine = Machine(context=context, user={0x1004: struct.pack("=i", 42)})
    assert run("arg0", machine, one) == {"arg0": 42}


def test_floats_and_aggregates_are_copied() -> None:
    user = {_TEXT: struct.pack("=df", 0.5, -0.25) + bytes(range(24))}
    arguments = (
        argument(0, "f64", memory(8)),
        argument(1, "f32", memory(4, 8)),
        argument(2, "b24", memory(24, 12)),
    )
    machine = Machine(context=registers(rdi=_TEXT), user=user)
    expected = {"arg0": 0.5, "arg1": -0.25, "arg2": bytes(range(24))}
    assert run("", machine, *arguments) == expected
    machine = Machine(context=registers(rdi=_TEXT - 4096), user=user)
    assert run("", machine, *arguments) == dict.fromkeys(expected, _UNREADABLE)


def test_builtins() -> None:
    machine = Machine(process=7, thread=8)
    found = run("pid, tid, uid, gid, cpu, ts, cgroup, comm", machine)
    expected = {"pid": 7, "tid": 8, "uid": 500, "gid": 1000, "cpu": 3, "ts": 123456789}
    assert found == expected | {"cgroup": 77, "comm": "comm"}


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
        machine.run(program(plan("pid", ()), accept=Filter(pids, namespace)))
        assert len(machine.records) == counts


def test_a_process_outside_our_namespace_does_not_count() -> None:
    machine = Machine(namespace=(4, 1))
    machine.run(program(plan("pid", ()), accept=Filter((), (4, 2))))
    assert machine.records == []
    assert machine.counters == {}


@pytest.mark.parametrize("number", [1, 2, 3, 17, 300])
def test_the_cookie_selects_the_case(number: int) -> None:
    cases = [Case(3 * n + 1, n, plan(f"{n}")) for n in range(number)]
    code = generate(cases[::-1], Filter(), sleepable=False)
    for case in cases:
        machine = Machine(cookie=case.number)
        machine.run(code)
        (record,) = machine.records
        assert struct.unpack_from("=I", record, 20) == (case.number,)
        assert struct.unpack_from("=Q", record, 40) == (case.probe,)
        machine = Machine(cookie=case.number, room=0)
        machine.run(code)
        assert machine.counters == {case.probe: (1, 0)}
    if number > 1:
        for cookie in (0, 2, 3 * number + 1, (1 << 64) - 1):
            machine = Machine(cookie=cookie)
            machine.run(code)
            assert machine.records == [], "a cookie of nobody's"
    assert (Helper.GET_ATTACH_COOKIE in machine.calls) is (number > 1)


def test_dispatch_takes_few_steps() -> None:
    code = generate([Case(n, 0, plan("", ())) for n in range(1, 257)], Filter(), sleepable=False)
    plain = generate([Case(1, 0, plan("", ()))], Filter(), sleepable=False)
    assert len(code) <= 256 * (len(plain) + 4)


def test_too_many_cases_are_refused() -> None:
    big = plan("buf(arg7, 60000), str(arg7, 60000), " + ", ".join(f"arg8+{n}" for n in range(60)))
    with pytest.raises(CodeTooLarge, match="out of reach"):
        generate([Case(n, 0, big) for n in range(1, 60)], Filter(), sleepable=True)
    assert len(generate([Case(1, 0, big)], Filter(), sleepable=True)) < 4000


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
    machine = Machine(context=registers(rax=5, rdi=_TEXT))
    found = run(f"{items}, arg1", machine, _POINTER, _NUMBER)
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
    made = plan(items, (_POINTER, _NUMBER), declared=3)
    code = generate([Case(1, 6, made)], Filter(), sleepable=sleepable)
    machine = Machine(context=registers(rax=5, rdi=_TEXT))
    machine.run(code)
    machine.run(code)
    assert machine.records == []
    assert machine.counters == {6: (0, 2)}


# ------------------------------------------------------------------ strings and buffers


@pytest.mark.parametrize("old", [False, True], ids=["Linux 6.16", "before Linux 6.16"])
@pytest.mark.parametrize("sleepable", [False, True])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"GET /\0#", "GET /", id="a string"),
        pytest.param(b"\0#######", "", id="an empty one"),
        pytest.param(b"0123456789", "01234567", id="one that is cut"),
        pytest.param(b"01234", _UNREADABLE, id="one that ends where memory ends"),
        pytest.param(b"", _UNREADABLE, id="none"),
    ],
)
def test_strings(text: bytes, expected: Any, sleepable: bool, old: bool) -> None:
    machine = text_machine(text, old_strings=old)
    found = run("str(arg0, 8), pid", machine, _POINTER, sleepable=sleepable)
    assert found == {"str(arg0,8)": expected, "pid": 10}


@pytest.mark.parametrize("old", [False, True], ids=["Linux 6.16", "before Linux 6.16"])
@pytest.mark.parametrize(
    ("text", "constant", "equal"),
    [
        pytest.param(b"GET\0", "GET", True, id="equal"),
        pytest.param(b"GETx\0", "GET", False, id="longer"),
        pytest.param(b"GE\0T", "GET", False, id="shorter"),
        pytest.param(b"GEt\0", "GET", False, id="another last byte"),
        pytest.param(b"GETx\0", "GET*", True, id="beginning"),
        pytest.param(b"GE\0x", "GET*", False, id="not the beginning"),
        pytest.param(b"\0abc", "", True, id="empty"),
        pytest.param(b"a\0bc", "", False, id="not empty"),
        pytest.param(b"\0abc", "*", True, id="anything, empty"),
        pytest.param(b"x\0", "*", True, id="anything"),
        pytest.param(b"z" * 255 + b"\0", "z" * 255, True, id="255 bytes"),
        pytest.param(b"z" * 256 + b"\0", "z" * 255, False, id="a byte more"),
        pytest.param(b"z" * 254 + b"y\0", "z" * 255, False, id="another at the very end"),
        pytest.param(b"0123456789abcde\0", "0123456789abcde", True, id="15: 8, 4, 2 and 1 bytes"),
    ],
)
def test_strings_compared(text: bytes, constant: str, equal: bool, old: bool) -> None:
    for op, passes in (("==", equal), ("!=", not equal)):
        machine = text_machine(text, old_strings=old)
        found = run(f'str(arg0) {op} "{constant}", pid', machine, _POINTER)
        assert (found is not None) is passes
        machine = text_machine(text, old_strings=old)
        found = run(f'(str(arg0) {op} "{constant}") + 0', machine, _POINTER, sleepable=True)
        assert [*found.values()] == [int(passes)]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        pytest.param(0, "", id="0"),
        pytest.param(3, "abc", id="3"),
        pytest.param(8, "abcdefgh", id="all there is room for"),
        pytest.param(9, "abcdefgh", id="more"),
        pytest.param(1 << 62, "abcdefgh", id="far more"),
        pytest.param(-1, "", id="negative"),
        pytest.param(-(1 << 63), "", id="as negative as can be"),
    ],
)
def test_buffers_of_computed_length(length: int, expected: str) -> None:
    made = plan("buf(arg0, arg1), pid", (_POINTER, _NUMBER), max_string=8)
    machine = Machine(context=registers(rdi=_TEXT, rax=length), user={_TEXT: b"abcdefghijk"})
    machine.run(program(made))
    assert shown(made, machine) == [{"buf(arg0,arg1)": expected, "pid": 10}]
    unsigned = Argument("arg1", argument(0, "u64").type, Register(_RAX, 8))
    made = plan("buf(arg0, arg1)", (_POINTER, unsigned), max_string=8)
    machine = Machine(context=registers(rdi=_TEXT, rax=length), user={_TEXT: b"abcdefghijk"})
    machine.run(program(made))
    assert shown(made, machine) == [{"buf(arg0,arg1)": "abcdefgh" if length < 0 else expected}]


def test_records_longer_than_an_instruction_reaches() -> None:
    items = "str(arg0, 40000), arg1, buf(arg0, 3), str(arg0, 5), buf(arg0, arg1), arg1/arg1, 1/0"
    for sleepable in (False, True):
        machine = Machine(context=registers(rdi=_TEXT, rax=2), user={_TEXT: b"text\0"})
        found = run(items, machine, _POINTER, _NUMBER, sleepable=sleepable)
        assert [*found.values()][:6] == ["text", 2, "tex", "text", "te", 1]
        machine = Machine(context=registers(rdi=64, rax=2))
        found = run(items, machine, _POINTER, _NUMBER, sleepable=sleepable)
        assert [*found.values()][:4] == [_UNREADABLE, 2, _UNREADABLE, _UNREADABLE]


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
_FRESH[16:32] = struct.pack("=QQ", _TEXT + 4112, _TEXT + 4090)
_FRESH[4090:4103] = b"across pages\0"
_FRESH[4112:4116] = struct.pack("=i", 5)


@pytest.mark.parametrize(("item", "expected"), _ABSENT.values(), ids=_ABSENT)
def test_absent_pages_are_faulted_in(item: str, expected: Any) -> None:
    absent = {_TEXT, _TEXT + 4096}
    machine = text_machine(bytes(_FRESH), absent=set(absent))
    machine.context = registers(rdi=_TEXT, rax=5)
    found = run(item, machine, _POINTER, _NUMBER, sleepable=True)
    assert [*found.values()] == [expected]
    assert machine.discarded == [0], (
        "given back once, and the reader is woken where it waits for it"
    )
    assert machine.calls.count(Helper.RINGBUF_RESERVE) == 2
    machine = text_machine(bytes(_FRESH), absent=set(absent))
    machine.context = registers(rdi=_TEXT, rax=5)
    found = run(item, machine, _POINTER, _NUMBER)
    assert [*found.values()] == [_UNREADABLE], "a program that cannot sleep says so"


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
    machine = text_machine(bytes(_FRESH), absent={_TEXT, _TEXT + 4096})
    machine.context = registers(rdi=_TEXT, rax=5)
    assert run(f"{predicate}, arg1", machine, _POINTER, _NUMBER, sleepable=True) == {"arg1": 5}
    assert machine.discarded == [], "before anything is reserved"


def test_what_is_there_costs_no_second_attempt() -> None:
    machine = text_machine(bytes(_FRESH))
    items = ", ".join(item for item, _ in _ABSENT.values())
    run(items, machine, _POINTER, _NUMBER, sleepable=True)
    assert machine.discarded == []
    assert Helper.COPY_FROM_USER not in machine.calls


def test_what_is_never_there_is_tried_twice_only() -> None:
    machine = Machine(context=registers(rdi=_TEXT))
    found = run("str(arg0), *(int *)arg0, buf(arg0, 9)", machine, _POINTER, sleepable=True)
    assert [*found.values()] == [_UNREADABLE] * 3
    assert machine.calls.count(Helper.RINGBUF_RESERVE) == 2
    assert machine.counters == {}


def test_no_room_is_counted_also_at_the_second_attempt() -> None:
    made = plan("str(arg0)", (_POINTER,))
    code = generate([Case(1, 3, made)], Filter(), sleepable=True)
    machine = text_machine(bytes(_FRESH), absent={_TEXT}, room=made.size)
    machine.run(code)
    assert (machine.records, machine.counters) == ([], {3: (1, 0)})
    machine.run(code)
    assert machine.counters == {3: (2, 0)}
    machine.room = made.size
    machine.run(code)
    assert len(machine.records) == 1
    assert machine.counters == {3: (2, 0)}


# ------------------------------------------------------------------ too deep


def test_depth_is_limited_by_the_stack() -> None:
    def nested(depth: int) -> str:
        return "arg1+(" * depth + "arg1" + ")" * depth

    machine = Machine(context=registers(rax=1))
    made = plan(nested(20), (_POINTER, _NUMBER))
    machine.run(program(made))
    assert [*shown(made, machine)[0].values()] == [21]
    with pytest.raises(TracingError, match="nested too deeply for the BPF stack; simplify it"):
        program(plan(nested(40), (_POINTER, _NUMBER)))
