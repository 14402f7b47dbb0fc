"""Values of two registers, of which a note names the first: the low half can be read."""

from __future__ import annotations

import pytest

from usdt.arch.locations import Register, ValueClass, ValueType
from usdt.arch.operands import arch_of
from usdt.cli.files.info import operand_line
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.plan import make_plan
from usdt.engine.compiler.record.columns import Column, IntColumn
from usdt.engine.compiler.record.layout import BadLayout, RecordField
from usdt.engine.language import parse_items
from usdt.probes.argspec import parse_arguments


@pytest.mark.parametrize(
    ("machine", "text", "low"),
    [
        ("x86_64", "16@%rdi", 8),
        ("x86_64", "-16@%rax", 8),
        ("i386", "-8@%eax", 4),
        ("aarch64", "16@x6", 8),
        ("arm", "-8@r0", 4),
        ("riscv64", "16@a0", 8),
        ("riscv32", "8@a0", 4),
        ("ppc64le", "16@30", 8),
        ("mips64el", "16@$4", 8),
        ("loongarch64", "16@$r4", 8),
    ],
)
def test_the_low_half_is_a_number(machine: str, text: str, low: int) -> None:
    (operand,) = parse_arguments(text, machine)
    arch = arch_of(machine)
    assert arch is not None
    assert operand.error is None
    assert operand.to_json()["size"] == 2 * low
    assert operand.to_json()["bytes"] == low
    assert arch.value_type(operand) == ValueType(ValueClass.UNSIGNED, low)
    found = arch.fetch(operand, symbol_address=str, location=0, machine=machine, elf_type=3)
    (alone,) = parse_arguments(text.replace(str(2 * low), str(low)), machine)
    expected = arch.fetch(alone, symbol_address=str, location=0, machine=machine, elf_type=3)
    assert isinstance(found, Register)
    assert found == expected
    assert f"the low {low} bytes in register" in operand_line(operand)


@pytest.mark.parametrize(
    ("machine", "text"),
    [
        pytest.param("s390x", "16@%r10", id="the first register has the high half"),
        pytest.param("ppc64", "16@30", id="so on every big-endian CPU"),
        pytest.param("x86_64", "24@%rdi", id="three registers"),
        pytest.param("x86_64", "16@%eax", id="half of the first register"),
        pytest.param("x86_64", "16f@%rdi", id="a long double"),
        pytest.param("aarch64", "8@w6", id="half of one register"),
    ],
)
def test_other_parts_are_not_read(machine: str, text: str) -> None:
    (operand,) = parse_arguments(text, machine)
    assert operand.kind == "register"
    assert operand.error is not None
    assert "holds a part of its" in operand.error


_HALF = Argument("arg0", ValueType(ValueClass.UNSIGNED, 8), Register(112, 8), part_of=16)
_QUARTER = Argument("arg0", ValueType(ValueClass.UNSIGNED, 4), Register(80, 4), part_of=8)


def _column(argument: Argument, item: str) -> Column:
    found = make_plan(parse_items(item), [argument], text=item, probe="a:b", declared=1)
    return found.outputs[0].column


@pytest.mark.parametrize(
    "item",
    ["arg0", "hex(arg0)", "arg0 + 1", "hex(arg0 >> 3)", "-arg0", "(arg0 > 5) + 0", "arg0 * pid"],
)
def test_what_is_computed_from_a_low_half_is_marked(item: str) -> None:
    column = _column(_HALF, item)
    assert isinstance(column, IntColumn)
    assert column.part_of == 16
    field = RecordField(item, column, 40)
    assert RecordField.from_json(field.to_json()) == field


@pytest.mark.parametrize(
    "item", ["(int)arg0", "(long)arg0", "*(int *)arg0", "((int *)arg0)[2]", "pid + 1"]
)
def test_what_does_not_depend_on_the_high_half_is_not_marked(item: str) -> None:
    column = _column(_HALF, item)
    assert isinstance(column, IntColumn)
    assert column.part_of == 0


def test_a_wider_result_is_its_low_part() -> None:
    """On a 32-bit CPU: of eight bytes, four are known, also of the sum."""
    column = _column(_QUARTER, "arg0 + 1l")
    assert isinstance(column, IntColumn)
    assert (column.type.size, column.part_of) == (4, 8)


def test_recordings_keep_the_mark() -> None:
    column = IntColumn(ValueType(ValueClass.UNSIGNED, 8), part_of=16)
    field = RecordField("arg0", column, 40)
    data = field.to_json()
    assert data["part_of"] == 16
    assert RecordField.from_json(data) == field
    with pytest.raises(BadLayout, match="part_of: a number from 9"):
        RecordField.from_json(data | {"part_of": 8})
