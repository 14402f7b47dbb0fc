"""One plan as two, at a function's entry and its return."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from planning import argument, plan
from support.planning import form

from usdt.arch.locations import AtFunctionReturn, Captured, Memory, Register, ValueClass, ValueType
from usdt.base.errors import LanguageError
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.codegen.model import ProgramVariant, TaskFilter
from usdt.engine.compiler.codegen.program import generate
from usdt.engine.compiler.entry_return import (
    EntryReturnMatch,
    EntryReturnRole,
    for_32bit_process,
    split_entry_return,
)
from usdt.engine.compiler.ir import ArgumentValue, Deref
from usdt.engine.compiler.record.layout import RecordLayout

if TYPE_CHECKING:
    from usdt.engine.compiler.plan import ProbePlan

_ARGUMENTS = (
    *(argument(number, "s64", Register(8 * number, 8)) for number in range(3)),
    argument(3, "s64", Memory(56, None, 1, 8, 8, 8)),
    Argument(
        "return", ValueType(ValueClass.SIGNED, 8), AtFunctionReturn(Register(80, 8)), hidden=True
    ),
)


def ends(items: str) -> tuple[ProbePlan | None, ProbePlan]:
    made = split_entry_return(plan(items, _ARGUMENTS))
    assert made is not None
    return made.entry, made.returned


def test_a_plan_without_return_stays_one() -> None:
    assert split_entry_return(plan("arg0, str(arg1), arg2 > 3", _ARGUMENTS)) is None
    assert split_entry_return(plan("", _ARGUMENTS)) is None


@pytest.mark.parametrize(
    "items", ["return", "return, pid, comm", "return > 0, return", "return, pid > 1"]
)
def test_what_needs_no_entry_value_has_no_entry(items: str) -> None:
    entry, returned = ends(items)
    assert entry is None
    assert returned.returns


def test_records_look_the_same_wherever_values_were_taken() -> None:
    whole = plan("arg0, str(arg1), return, arg3", _ARGUMENTS)
    _, returned = ends("arg0, str(arg1), return, arg3")
    assert [(one.key, form(one), one.offset, one.size) for one in returned.outputs] == [
        (one.key, form(one), one.offset, one.size) for one in whole.outputs
    ]
    assert (returned.size, returned.bitmap_offset) == (whole.size, whole.bitmap_offset)
    layout = returned.layout
    assert layout.returns
    assert RecordLayout.from_json(layout.to_json()) == layout


def test_each_value_is_kept_once() -> None:
    entry, _ = ends('arg0, arg0 + return, hex(arg0), str(arg1), str(arg1) == "x", return')
    assert entry is not None
    assert [form(one) for one in entry.outputs] == ["integer", "string"]
    assert len(entry.predicates) == 1


def test_parts_without_return_are_taken_at_entry() -> None:
    entry, returned = ends("*(long *)(arg0 + 8) + return")
    assert entry is not None
    (kept,) = entry.outputs
    assert kept.may_fault
    (shown,) = returned.outputs
    assert shown.may_fault
    assert "memory not readable" in returned.layout.fields[0].reason


def test_a_buffer_whose_length_is_returned_is_read_at_return() -> None:
    entry, returned = ends("buf(arg1, return), buf(arg1, arg2)")
    assert entry is not None
    assert [form(one) for one in entry.outputs] == ["integer", "buffer"]
    late, early = returned.outputs
    assert late.captured is None
    assert isinstance(late.node, ArgumentValue)
    assert isinstance(late.node.fetch, Captured)
    assert early.captured is not None


def test_out_reads_memory_at_return_from_addresses_of_the_entry() -> None:
    entry, returned = ends("*(int *)arg0, out(*(int *)arg0), buf(arg1, out(*(long *)arg2))")
    assert entry is not None
    first = plan("*(int *)arg0", _ARGUMENTS).outputs[0].node
    arguments = {ArgumentValue(one.fetch, one.type) for one in _ARGUMENTS[:3]}
    assert {output.node for output in entry.outputs} == {first, *arguments}
    early, late, text = returned.outputs
    assert isinstance(early.node, ArgumentValue)
    assert isinstance(late.node, Deref)
    assert text.captured is None
    assert isinstance(text.length, Deref)


@pytest.mark.parametrize(
    "items",
    ["out(*(int *)arg3)", "str(out(arg3))", "out(str(arg3))", 'out(str(arg3)) == "x"',
     'out(str(arg3) == "x")', "out(*(int *)arg3) > 2", "hex(out(*(u8 *)arg3))", "out(arg3)",
     "buf(out(arg3), 4)", "out(((int *)arg3)[2])", "out(*(int *)arg3 + *(int *)arg0)"],
)  # fmt: skip
def test_out_alone_makes_the_return_the_hit(items: str) -> None:
    entry, returned = ends(items)
    assert entry is not None
    assert returned.returns
    assert {type(output.node) for output in entry.outputs} == {ArgumentValue}


def test_out_of_what_has_no_return_is_refused() -> None:
    message = "out() reads memory when a function returns, and this probe is no function's entry"
    with pytest.raises(LanguageError) as caught:
        plan("out(*(int *)arg0)", _ARGUMENTS[:-1])
    assert caught.value.reason == message
    with pytest.raises(LanguageError, match=r"leads to; pid is none"):
        plan("out(pid)", _ARGUMENTS)


def test_predicates_are_decided_as_soon_as_they_can_be() -> None:
    entry, returned = ends("return, arg0 > 1, return > 2, arg1 < return")
    assert entry is not None
    assert len(entry.predicates) == 1
    assert len(returned.predicates) == 2


def test_an_entry_predicate_alone_makes_a_pair() -> None:
    entry, _ = ends("return, arg0 > 1")
    assert entry is not None
    assert entry.outputs == ()


def test_addresses_of_32_bits_have_no_sign() -> None:
    whole = plan("str(arg0), *(int *)arg1, arg2", _ARGUMENTS)
    made = for_32bit_process(whole)
    assert made != whole
    assert made.outputs[2] == whole.outputs[2]


def test_a_duration_needs_the_time_of_the_entry_alone() -> None:
    made = split_entry_return(plan("duration > 1ms, arg0", _ARGUMENTS), arguments_stay=True)
    assert made is not None
    assert made.entry is not None
    assert (made.timed, made.entry.outputs, made.entry.predicates) == (True, (), ())
    assert split_entry_return(plan("return", _ARGUMENTS), arguments_stay=True) is None


_SHAPES = (
    "arg0, return",
    "str(arg0), arg3, return > 0, arg1 > 2 && arg2 != 3, return",
    'str(arg0) == "x" || *(long *)arg1 == 0, buf(arg0, return), buf(arg1, arg2), return / arg2',
    "*(int *)(arg0 + 8) + return, ustack, comm, func, arg3, return == arg3",
    'out(*(int *)arg3), out(str(arg0)) == "x", buf(arg1, out(*(long *)arg2)), arg3 > 1',
    "arg0, duration, duration / arg1 > 10ms, arg2 > 1",
)


@pytest.mark.parametrize("sleepable", [False, True])
@pytest.mark.parametrize("items", _SHAPES)
def test_programs_of_both_ends_are_whole(items: str, *, sleepable: bool) -> None:
    """No two labels of one name, no label without a place: in any case's number."""
    made = split_entry_return(plan(items, _ARGUMENTS))
    assert made is not None
    assert made.entry is not None
    stack = EntryReturnMatch(Register(152, 8), (8, 16))
    for number in range(1, 12):
        for accept in (TaskFilter(), TaskFilter((1, 2), (3, 4))):
            for entry, ours in ((True, made.entry), (False, made.returned)):
                part = EntryReturnRole(
                    entry=entry, pair=1, size=made.size, stack=stack, timed=made.timed
                )
                others = [ProgramVariant(number + 100 * n, 0, ours, part) for n in range(3)]
                assert len(generate(others, accept, sleepable=sleepable)) > 3 * 20
