"""Operands of RISC-V."""

from __future__ import annotations

import pytest
from operands import ET_DYN, ET_EXEC, LOCATION, SYMBOLS, fetch_of, mem, one, reason_of

from usdt.arch.locations import Address, Constant, Location, Register

M = "riscv64"
SV = SYMBOLS["sv"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@12", Constant(12), id="a bare number is a constant"),
        pytest.param("1@-1", Constant(255), id="wrapped to its size"),
        pytest.param("8@a0", Register(80, 8), id="a register"),
        pytest.param("-4@a7", Register(136, 4), id="its low four bytes"),
        pytest.param("8@x10", Register(80, 8), id="by its number"),
        pytest.param("8@s11", Register(216, 8), id="s11"),
        pytest.param("8@t6", Register(248, 8), id="t6"),
        pytest.param("8@ra", Register(8, 8), id="the return address"),
        pytest.param("8@fp", Register(64, 8), id="the frame pointer is s0"),
        pytest.param("8@zero", Constant(0), id="the zero register"),
        pytest.param("8f@t1", Register(48, 8), id="a double in a general register"),
        pytest.param("-8@-24(s0)", mem(M, "s0", -24), id="memory"),
        pytest.param("8@(sp)", mem(M, "sp"), id="no displacement"),
        pytest.param("8@8(zero)", mem(M, None, 8), id="no base"),
        pytest.param("8@sv", Address(0, SV - LOCATION, 8, 8), id="a symbol's address"),
    ],
)
def test_what_a_program_fetches(text: str, expected: Location) -> None:
    assert fetch_of(text, M) == expected


@pytest.mark.parametrize("elf_type", [ET_EXEC, ET_DYN])
@pytest.mark.parametrize(
    ("text", "distance"),
    [
        pytest.param("-4@%lo(sv)(a5)", SV - LOCATION, id="a symbol"),
        pytest.param("-4@%lo(sv+8)(a5)", SV + 8 - LOCATION, id="a symbol and a number"),
    ],
)
def test_the_low_half_of_an_address_is_all_of_it(text: str, distance: int, elf_type: int) -> None:
    # The linker deletes the lui that was to put the other half into a5, and uses gp.
    assert fetch_of(text, M, elf_type) == mem(M, "pc", distance, size=4)


def test_32_bits() -> None:
    assert fetch_of("4@a0", "riscv32") == Register(40, 4)
    assert fetch_of("8@8(sp)", "riscv32") == mem("riscv32", "sp", 8)
    assert fetch_of("8@a0", "riscv32") == Register(40, 4)  # the low half of a pair


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        pytest.param("8f@fa0", "register", "fa0 is not saved", id="floating point"),
        pytest.param("8f@f10", "register", "f10 is not saved", id="by its number"),
        pytest.param("16@v8", "register", "v8 is not saved", id="a vector"),
        pytest.param("8@%tprel_lo(tl)(a5)", "memory", "thread-local", id="thread-local"),
        pytest.param("8@%pcrel_lo(.L5)(a5)", "memory", "cannot be followed", id="relative to pc"),
        pytest.param("8@%lo(.LC0)(a5)", "memory", "no .LC0", id="a label"),
        pytest.param("8@sv(a5)", "memory", "not a displacement", id="a symbol and a base"),
        pytest.param("8@8(fa0)", "unknown", "'fa0'", id="an address in floating point"),
        pytest.param("8@8(%a0)", "unknown", "'%a0'", id="with a sigil"),
        pytest.param("8@%lo(sv(a5)", "unknown", "unknown relocation", id="unbalanced"),
        pytest.param("8@%(sv)(a5)", "unknown", "unknown relocation", id="no name"),
        pytest.param("8@%lo(%hi(sv))(a5)", "unknown", "neither a number", id="nested"),
        pytest.param("8@8()", "unknown", "no base register", id="no base"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str, reason: str) -> None:
    assert one(text, M).kind == kind
    assert reason in reason_of(text, M, ET_EXEC)
