"""usdt.bpf.asm.assembler: labels, wide constants and named maps, without a kernel."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.base.errors import TracingError
from usdt.bpf.asm.assembler import Assembler, Code, CodeTooLarge
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R9, R10, Alu, Jump, encode
from usdt.bpf.program import ProgramSpec


def fields(code: Code | bytes) -> list[tuple[int, int, int]]:
    """(opcode, offset, immediate) of each slot."""
    return list(struct.iter_unpack("=Bxhi", code.insns if isinstance(code, Code) else code))


def one(asm: Assembler) -> bytes:
    """The only instruction of an assembler."""
    code = asm.assemble()
    assert len(code) == 1
    return code.insns


def constant(code: Code) -> int:
    """What ``mov`` of an integer loads, by the specification: 64 bits, unsigned."""
    opcode, _, low = fields(code)[0]
    if opcode == 0xB7:
        assert len(code) == 1
        return low % (1 << 64)  # sign-extended
    assert opcode == 0x18
    assert len(code) == 2
    assert fields(code)[1][0] == 0
    return low % (1 << 32) | fields(code)[1][2] % (1 << 32) << 32


def test_alu_with_a_register_or_a_constant_on_64_or_32_bits() -> None:
    asm = Assembler()
    asm.alu(Alu.ADD, R1, R2)
    asm.alu(Alu.ADD, R1, 5)
    asm.alu(Alu.ARSH, R1, R2, width=32)
    asm.alu(Alu.MOV, R1, 5, width=32)
    asm.alu(Alu.NEG, R1)
    assert fields(asm.assemble()) == [
        *((0x0F, 0, 0), (0x07, 0, 5), (0xCC, 0, 0), (0xB4, 0, 5), (0x87, 0, 0)),
    ]


@pytest.mark.parametrize(
    ("size", "opcodes"),
    [
        pytest.param(1, (0x71, 0x73, 0x72), id="u8"),
        pytest.param(2, (0x69, 0x6B, 0x6A), id="u16"),
        pytest.param(4, (0x61, 0x63, 0x62), id="u32"),
        pytest.param(8, (0x79, 0x7B, 0x7A), id="u64"),
    ],
)
def test_memory_accesses_have_a_size(size: int, opcodes: tuple[int, int, int]) -> None:
    asm = Assembler()
    asm.load(R1, R2, -8, size)
    asm.store(R1, 16, R2, size)
    asm.store(R1, 24, -3, size)
    load, store, store_constant = opcodes
    expected = [(load, -8, 0), (store, 16, 0), (store_constant, 24, -3)]
    assert fields(asm.assemble()) == expected


@pytest.mark.parametrize(
    ("op", "opcode"),
    [
        *((Jump.EQ, 0x15), (Jump.NE, 0x55), (Jump.GT, 0x25), (Jump.LT, 0xA5), (Jump.SET, 0x45)),
        *((Jump.SGT, 0x65), (Jump.SLE, 0xD5)),
    ],
)
def test_jumps_compare_with_a_constant_or_a_register(op: Jump, opcode: int) -> None:
    asm = Assembler()
    asm.jump(op, R1, -7, "end")
    asm.jump(op, R1, R2, "end")
    asm.label("end")
    asm.exit()
    assert fields(asm.assemble())[:2] == [(opcode, 1, -7), (opcode | 8, 0, 0)]


def test_atomic_add_call_and_exit() -> None:
    asm = Assembler()
    asm.atomic_add(R0, 8, R1)
    asm.call(131)
    asm.exit()
    assert fields(asm.assemble()) == [(0xDB, 8, 0), (0x85, 0, 131), (0x95, 0, 0)]


def test_what_would_do_nothing_is_left_out() -> None:
    asm = Assembler()
    asm.mov(R1, R1)
    asm.add(R1, 0)
    assert len(asm) == 0
    asm.mov(R1, R2)
    asm.add(R1, R2)
    asm.add(R1, -1)
    assert len(asm) == 3


@pytest.mark.parametrize(
    ("value", "slots"),
    [
        pytest.param(0, 1, id="zero"),
        pytest.param(-1, 1, id="minus one is sign-extended"),
        pytest.param((1 << 31) - 1, 1, id="the greatest of 31 bits"),
        pytest.param(1 << 31, 2, id="one more would be negative"),
        pytest.param(-(1 << 31), 1, id="the least of 32 bits"),
        pytest.param(-(1 << 31) - 1, 2, id="one less needs 64"),
        pytest.param((1 << 32) - 1, 2, id="all ones of 32 bits"),
        pytest.param((1 << 64) - 1, 2, id="all ones of 64 bits"),
        pytest.param(-(1 << 63), 2, id="the least of 64 bits"),
    ],
)
def test_constants_take_one_slot_or_two(value: int, slots: int) -> None:
    asm = Assembler()
    asm.mov(R3, value)
    assert len(asm) == slots
    assert constant(asm.assemble()) == value % (1 << 64)


@settings(deadline=None)
@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_every_constant_of_64_bits_is_loaded_as_it_is(value: int) -> None:
    asm = Assembler()
    asm.mov(R3, value)
    assert constant(asm.assemble()) == value % (1 << 64)


def test_labels_count_slots_and_not_calls() -> None:
    asm = Assembler()
    asm.label("start")
    asm.jump(Jump.EQ, R0, 0, "end")
    asm.mov(R1, 1 << 40)
    asm.load_map(R2, "events")
    asm.goto("start")
    asm.label("end")
    asm.exit()
    found = fields(asm.assemble())
    assert len(found) == len(asm) == 7
    assert found[0] == (0x15, 5, 0)
    assert found[5] == (0x05, -6, 0)


def test_a_label_may_have_company() -> None:
    asm = Assembler()
    asm.jump(Jump.EQ, R0, 0, "a")
    asm.jump(Jump.EQ, R0, 1, "b")
    asm.label("a")
    asm.label("b")
    asm.exit()
    assert [offset for _, offset, _ in fields(asm.assemble())] == [1, 0, 0]


def test_a_label_stands_once() -> None:
    asm = Assembler()
    asm.label("a")
    with pytest.raises(ValueError, match="label a is defined twice"):
        asm.label("a")


def test_a_jump_to_nowhere_is_a_mistake_of_the_caller() -> None:
    asm = Assembler()
    asm.goto("nowhere")
    with pytest.raises(KeyError, match="nowhere"):
        asm.assemble()


def test_new_labels_are_unlike_each_other() -> None:
    asm = Assembler()
    names = [asm.new_label("loop") for _ in range(100)]
    assert len(set(names)) == 100
    assert all(name.startswith("loop") for name in names)


def _jump_over(count: int, *, back: bool) -> Code:
    # A jump over ``count`` instructions; backwards it crosses itself as well.
    asm = Assembler()
    if not back:
        asm.jump(Jump.EQ, R0, 0, "there")
    asm.label("back")
    for _ in range(count):
        asm.alu(Alu.MOV, R0, 0)
    if back:
        asm.goto("back")
    asm.label("there")
    asm.exit()
    return asm.assemble()


def test_jumps_reach_as_far_as_16_bits() -> None:
    assert fields(_jump_over(32767, back=False))[0] == (0x15, 32767, 0)
    assert fields(_jump_over(32767, back=True))[32767] == (0x05, -32768, 0)


@pytest.mark.parametrize("back", [False, True], ids=["forward", "back"])
def test_a_jump_beyond_reach_is_an_error_to_split_the_work_on(back: bool) -> None:
    with pytest.raises(CodeTooLarge, match=r"-?3276\d instructions") as caught:
        _jump_over(32768, back=back)
    assert isinstance(caught.value, TracingError)


def test_what_nothing_reaches_is_left_out() -> None:
    asm = Assembler()
    asm.jump(Jump.EQ, R0, 0, "far")
    asm.goto("end")
    asm.load_map(R1, "unused")
    asm.label("never")
    asm.mov(R1, 1 << 40)
    asm.goto("never")
    asm.label("far")
    asm.load_map(R1, "events")
    asm.label("end")
    asm.exit()
    asm.mov(R0, 3)
    code = asm.assemble()
    assert [opcode for opcode, _, _ in fields(code)] == [0x15, 0x05, 0x18, 0x00, 0x95]
    assert [offset for _, offset, _ in fields(code)] == [1, 2, 0, 0, 0]
    assert code.maps == {2: ("events", R1)}


@pytest.mark.parametrize("use", ["nothing", "store", "jump", "operand"])
def test_a_value_that_nothing_uses_is_not_computed(use: str) -> None:
    asm = Assembler()
    start = len(asm)
    asm.call(14)
    asm.mov(R9, R0)
    asm.only_for(R9, start)
    asm.mov(R1, 9)
    if use == "store":
        asm.store(R10, -8, R9)
    elif use == "jump":
        asm.jump(Jump.EQ, R9, 0, "end")
    elif use == "operand":
        asm.alu(Alu.ADD, R9, 1)
    asm.label("end")
    asm.exit()
    computed = [opcode for opcode, *_ in fields(asm.assemble())][:2] == [0x85, 0xBF]
    assert computed is (use != "nothing")


def test_jumps_pass_over_what_is_not_computed() -> None:
    asm = Assembler()
    asm.jump(Jump.EQ, R0, 0, "end")
    start = len(asm)
    asm.mov(R9, R0)
    asm.only_for(R9, start)
    asm.mov(R0, 0)
    asm.label("end")
    asm.exit()
    assert [(opcode, offset) for opcode, offset, _ in fields(asm.assemble())] == [
        (0x15, 1),
        (0xB7, 0),
        (0x95, 0),
    ]


Step = tuple[str, int]  # "mark", "wide", "branch", "goto" or "exit"; a value or a target
kinds = st.sampled_from(["mark", "mark", "wide", "branch", "goto", "exit"])
steps = st.tuples(kinds, st.integers())


def _written(program: list[Step]) -> Code:
    asm = Assembler()
    for index, (kind, value) in enumerate(program):
        asm.label(str(index))
        target = str(value % len(program))
        if kind in ("mark", "wide"):
            asm.mov(R1, index + (1 << 40 if kind == "wide" else 0))
        elif kind == "branch":
            asm.jump(Jump.EQ, R0, 0, target)
        elif kind == "goto":
            asm.goto(target)
        else:
            asm.exit()
    return asm.assemble()


def _meant(program: list[Step], ways: list[bool]) -> list[int]:
    # The marks that are passed when branches are taken as ``ways`` say.
    marks, index, decisions = [], 0, iter(ways)
    for _ in range(60):
        kind, value = program[index]
        index += 1
        if kind in ("mark", "wide"):
            marks.append(index - 1)
        elif kind == "goto" or (kind == "branch" and next(decisions)):
            index = value % len(program)
        elif kind == "exit":
            break
    return marks


def _done(code: Code, ways: list[bool]) -> list[int]:
    found = fields(code)
    marks, index, decisions = [], 0, iter(ways)
    for _ in range(60):
        opcode, offset, low = found[index]
        index += 1
        if opcode in (0xB7, 0x18):
            marks.append(low)
            index += opcode == 0x18
        elif opcode == 0x05 or (opcode == 0x15 and next(decisions)):
            index += offset
        elif opcode == 0x95:
            break
    return marks


@settings(deadline=None)
@given(st.lists(steps, max_size=25), st.lists(st.booleans(), min_size=60, max_size=60))
def test_leaving_out_does_not_change_what_a_program_does(
    program: list[Step], ways: list[bool]
) -> None:
    program = [*program, ("exit", 0)]
    assert _done(_written(program), ways) == _meant(program, ways)


def test_maps_are_names_until_they_are_linked() -> None:
    asm = Assembler()
    asm.mov(R6, R1)
    asm.load_map(R1, "events")
    asm.load_map(R2, "counts")
    asm.load_map(R3, "events")
    asm.exit()
    code = asm.assemble()
    assert code.maps == {1: ("events", R1), 3: ("counts", R2), 5: ("events", R3)}
    insns = code.link({"events": 7, "counts": 9, "unused": 11})
    assert len(insns) == 8 * len(code) == 64
    loads = [insns[8 * slot : 8 * slot + 8] for slot in (1, 3, 5)]
    assert loads == [
        encode(0x18, R1, 1, 0, 7),
        encode(0x18, R2, 1, 0, 9),
        encode(0x18, R3, 1, 0, 7),
    ]
    assert [insns[8 * slot : 8 * slot + 8] for slot in (2, 4, 6)] == [bytes(8)] * 3
    assert insns[:8] == code.insns[:8]
    assert code.link({"events": 3, "counts": 4}) != insns  # linking changes nothing in the code


def test_linking_needs_every_map() -> None:
    asm = Assembler()
    asm.load_map(R1, "events")
    with pytest.raises(KeyError, match="events"):
        asm.assemble().link({})


def test_code_does_not_change_with_its_assembler() -> None:
    asm = Assembler()
    asm.load_map(R1, "events")
    code = asm.assemble()
    asm.load_map(R2, "counts")
    assert len(code) == 2
    assert code.link({"events": 5})


def test_code_and_specs_are_values() -> None:
    def program() -> Code:
        asm = Assembler()
        asm.load_map(R1, "events")
        asm.store(R10, -8, 0)
        asm.exit()
        return asm.assemble()

    assert program() == program()
    assert ProgramSpec(program(), name="a") == ProgramSpec(program(), name="a")
    assert ProgramSpec(program(), name="a") != ProgramSpec(program(), name="b")


def test_one_instruction_each() -> None:
    asm = Assembler()
    asm.exit()
    assert one(asm) == encode(0x95)
