"""Values of two registers, of which a note names the first: the low half can be read."""

from __future__ import annotations

import pytest

from usdt.arch.locations import Register, ValueClass, ValueType
from usdt.arch.operands import arch_of
from usdt.cli.files.info import operand_line
from usdt.engine.compiler.record.columns import IntColumn
from usdt.engine.compiler.record.layout import BadLayout, RecordField
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


def test_recordings_keep_the_mark() -> None:
    column = IntColumn(ValueType(ValueClass.UNSIGNED, 8), part_of=16)
    field = RecordField("arg0", column, 40)
    data = field.to_json()
    assert data["part_of"] == 16
    assert RecordField.from_json(data) == field
    with pytest.raises(BadLayout, match="part_of: a number from 9"):
        RecordField.from_json(data | {"part_of": 8})
