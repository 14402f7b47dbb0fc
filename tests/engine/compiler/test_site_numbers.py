"""Sites that differ in numbers share code, and their records are those of programs of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bpfmachine import Machine
from hits import RAX, RDI, RIP, registers
from planning import INTEGERS, argument, plan

from usdt.arch.locations import Address, Constant, Memory, Register
from usdt.base.frozen import replace
from usdt.bpf._uapi import Helper
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.entry_return import EntryReturnMatch, EntryReturnRole
from usdt.engine.compiler.site_numbers import SharedCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.locations import Location

_MEMORY = 0x7F0000001000
_REGISTERS = registers(rdi=_MEMORY, rax=0xFFFF_FFFF_0000_0003, rip=0x400000)
_FAR = 1 << 40
_INT = Memory(RDI, None, 1, 0, 8, 4)


def _memory(n: int) -> Location:
    return Memory(RDI, RAX if n % 2 else None, 4, 4 * n, 4 if n % 2 else 8, 4)


_SHAPES: dict[str, Callable[[int], Location]] = {
    "a negative constant": lambda n: Constant(-n),
    "a constant of eight bytes": lambda n: Constant((1 << 64) - 1 - n),
    "a displacement": lambda n: replace(_INT, displacement=n),
    "a displacement that no instruction holds": lambda n: replace(_INT, displacement=_FAR + n),
    "an index, and addresses of four bytes": _memory,
    "an address relative to ip": lambda n: Address(RIP, n - 50, 8),
    "a short address": lambda n: Address(RIP, n - 50, 4, 4),
}


def _variants(
    shape: Callable[[int], Location], kind: str = "s64", items: str = "", count: int = 40
) -> list[ProgramVariant]:
    # Of ten probes; the second argument is equal at all sites.
    second = argument(1, "s32", Register(RAX, 4))
    return [
        ProgramVariant(7 + n, n % 10, plan(items, (argument(0, kind, shape(n)), second)))
        for n in range(count)
    ]


def _machine(cookie: int, *, room: int = 1 << 20, readable: bool = True) -> Machine:
    data = bytes(n * 7 & 0xFF for n in range(256))
    user = {start & (1 << 64) - 1: data for start in (_MEMORY, _MEMORY + _FAR, 0x1000, 0x100C)}
    return Machine(_REGISTERS, cookie=cookie, room=room, user=user if readable else {})


@pytest.mark.parametrize("sleepable", [False, True], ids=["stays awake", "may sleep"])
@pytest.mark.parametrize("items", ["", "arg0 == 3, arg1, arg0 + arg1", "str(arg0), arg1 > 5"])
@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES)
def test_records_are_those_of_programs_of_their_own(
    shape: Callable[[int], Location], items: str, sleepable: bool
) -> None:
    variants = _variants(shape, items=items)
    table = SharedCode(variants).table(variants)
    bodies, rows, first = (variants, {}, None)
    if table is not None:
        bodies, rows, first = [*table.bodies], table.rows, table.first
    shared = generate(bodies, TaskFilter(), sleepable=sleepable, first_row=first)
    for variant in variants:
        own = generate([variant], TaskFilter(), sleepable=sleepable)
        for settings in ({}, {"room": 0}, {"readable": False}):
            expected, machine = (_machine(variant.number, **settings) for _ in range(2))
            expected.run(own)
            machine.sites = rows
            machine.run(shared)
            assert machine.records == expected.records
            assert machine.counters == expected.counters


@pytest.mark.parametrize("shape", _SHAPES.values(), ids=_SHAPES)
def test_one_body_serves_all_sites(shape: Callable[[int], Location]) -> None:
    variants = _variants(shape)
    table = SharedCode(variants).table(variants)
    assert table is not None
    assert len(table.bodies) == (2 if shape is _memory else 1)
    assert {*table.rows} == {*range(40)}


def test_a_cookie_of_nobody_is_no_hit() -> None:
    variants = _variants(_SHAPES["a displacement"])[::2]
    table = SharedCode(variants).table(variants)
    assert table is not None
    code = generate(table.bodies, TaskFilter(), sleepable=False, first_row=table.first)
    for cookie in (0, 6, 8, 46, (1 << 64) - 1):
        machine = _machine(cookie)
        machine.sites = table.rows
        machine.run(code)
        assert machine.records == []


def test_sites_that_share_nothing_keep_their_code_beside_others() -> None:
    shared = _variants(_SHAPES["a displacement"])
    alone = ProgramVariant(99, 3, plan("", (argument(0, "u8", Constant(5)),)))
    code = SharedCode([*shared, alone])
    assert code.body_of(alone) == 99
    table = code.table([*shared, alone])
    assert table is not None
    assert [body.plan for body in table.bodies[1:]] == [alone.plan]
    expected, machine = _machine(99), _machine(99)
    expected.run(generate([alone], TaskFilter(), sleepable=False))
    machine.sites = table.rows
    machine.run(generate(table.bodies, TaskFilter(), sleepable=False, first_row=table.first))
    assert machine.records == expected.records


def test_few_sites_share_nothing() -> None:
    variants = _variants(_SHAPES["a negative constant"], count=15)
    assert SharedCode(variants).table(variants) is None
    assert SharedCode(variants).body_of(variants[3]) == 10


def test_neither_do_sites_that_differ_in_more() -> None:
    variants = [
        ProgramVariant(number, 0, plan("", (argument(0, kind, Constant(number)),)))
        for number, kind in enumerate([*INTEGERS] * 3, 1)
    ]
    assert SharedCode(variants).table(variants) is None


def test_neither_do_functions_that_keep_their_entry() -> None:
    role = EntryReturnRole(entry=True, pair=7, size=24, stack=EntryReturnMatch(Register(RAX, 8)))
    variants = [
        replace(variant, call=role) for variant in _variants(_SHAPES["a negative constant"])
    ]
    assert SharedCode(variants).table(variants) is None


def test_a_hit_asks_for_its_cookie_once_and_for_its_row_once() -> None:
    variants = _variants(_SHAPES["a negative constant"])
    table = SharedCode(variants).table(variants)
    assert table is not None
    machine = _machine(8)
    machine.sites = table.rows
    machine.run(generate(table.bodies, TaskFilter(), sleepable=False, first_row=table.first))
    assert machine.calls.count(Helper.GET_ATTACH_COOKIE) == 1
    assert machine.calls.count(Helper.MAP_LOOKUP_ELEM) == 1
