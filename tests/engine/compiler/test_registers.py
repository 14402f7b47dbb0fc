"""``reg(NAME)`` and ``caller``: what they are at a probe, and where they are none."""

from __future__ import annotations

import pytest
from planning import EVERY_TYPE, INTEGERS, register
from support.planning import form

from usdt.arch.context_registers import ContextRegisters
from usdt.arch.locations import AtFunctionReturn, Memory, Register
from usdt.base.errors import LanguageError
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.entry_return import split_entry_return
from usdt.engine.compiler.ir import U64, ArgumentValue
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.compiler.record.columns import SymbolColumn, SymbolKind
from usdt.engine.compiler.record.layout import RecordField
from usdt.engine.language import parse_probe, render

ENTRY = ContextRegisters("x86_64", entry=True)
RESULT = Argument("return", INTEGERS["s64"], AtFunctionReturn(register()), hidden=True)
_CALLER = ArgumentValue(Memory(152, None, 1, 0, 8, 8), U64)


def plan(items: str, registers: ContextRegisters | None = ENTRY) -> ProbePlan:
    text = f"uprobe:x:f({items})"
    return make_plan(
        parse_probe(text).items,
        (*EVERY_TYPE, RESULT),
        text=text,
        probe="uprobe:x:f",
        declared=13,
        registers=registers,
    )


@pytest.mark.parametrize("written", ["reg(di)", 'reg("di")', "reg(rdi)", 'reg("%rdi")'])
def test_a_register_is_a_number(written: str) -> None:
    node = ArgumentValue(Register(112, 8), U64)
    (output,) = plan(written).outputs
    assert (output.node, form(output), output.key) == (node, "hex", written)
    assert not output.may_fault
    (predicate,) = plan(f"{written} == 5, pid").predicates
    assert predicate.left == node


def test_the_name_of_a_register_is_none_of_an_argument() -> None:
    tree = parse_probe("p:n(reg(arg0) + arg1)").items[0].expression
    assert render(tree) == 'reg("arg0") + arg1'
    with pytest.raises(LanguageError, match="x86_64 has no register arg0"):
        plan("reg(arg0)")


@pytest.mark.parametrize("kernel", [False, True], ids=["of a process", "of the kernel"])
def test_the_caller_is_a_symbol_and_a_number(kernel: bool) -> None:
    (output,) = plan("caller", ContextRegisters("x86_64", kernel, entry=True)).outputs
    assert output.node == ArgumentValue(Memory(152, None, 1, 0, 8, 8, kernel=kernel), U64)
    assert output.column == SymbolColumn(
        U64, SymbolKind.KERNEL_CALLER if kernel else SymbolKind.USER_CALLER
    )
    field = RecordField("caller", output.column, 40)
    assert RecordField.from_json(field.to_json()) == field
    assert form(plan("hex(caller)").outputs[0]) == "hex"
    assert plan("caller != 0, pid").predicates[0].left == _CALLER


def test_beside_the_return_the_caller_is_that_of_the_entry() -> None:
    ends = split_entry_return(plan("caller, reg(di), return"))
    assert ends is not None
    assert ends.entry is not None
    assert [output.node for output in ends.entry.outputs] == [
        _CALLER,
        ArgumentValue(Register(112, 8), U64),
    ]


@pytest.mark.parametrize(
    ("items", "registers", "reason"),
    [
        (
            "reg(rdj)",
            ENTRY,
            r"reg\(\): x86_64 has no register rdj, at column 16 of .*; did you mean rd",
        ),
        ("reg(xmm0)", ENTRY, "saves no vector and floating-point registers at probes"),
        ("reg(di)", None, r"only functions \(uprobe:, kprobe:\) and USDT probes have registers"),
        ("caller", None, "caller is the return address at a function's entry, which uprobe:x:f is"),
        ("caller", ContextRegisters("x86_64"), "is not; ustack and kstack show the callers"),
        ("out(caller)", ENTRY, "caller is none"),
        ("out(caller + 1)", ENTRY, "caller is none"),
        ("caller", ContextRegisters("sparc", entry=True), "calling convention of sparc is unknown"),
    ],
)
def test_what_is_not_there_is_said(
    items: str, registers: ContextRegisters | None, reason: str
) -> None:
    with pytest.raises(LanguageError, match=reason):
        plan(items, registers)


@pytest.mark.parametrize("items", ["reg(1)", "reg(arg0 + 1)", 'reg("d*")', "reg(str(arg0))"])
def test_a_register_is_named(items: str) -> None:
    with pytest.raises(LanguageError, match="takes the name of a register"):
        plan(items)
