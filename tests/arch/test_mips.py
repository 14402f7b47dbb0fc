"""Operands of MIPS: $4 is a register and a bare number is not."""

from __future__ import annotations

import pytest
from operands import ET_EXEC, SYMBOLS, fetch_of, mem, one, reason_of

from usdt.arch.locations import Constant, Location, Register

M = "mips64el"
SV = SYMBOLS["sv"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@12", Constant(12), id="a bare number is a constant"),
        pytest.param("1@-1", Constant(255), id="wrapped to its size"),
        pytest.param("8@$4", Register(32, 8), id="a register"),
        pytest.param("-4@$31", Register(248, 4), id="its low four bytes"),
        pytest.param("8@$fp", Register(240, 8), id="the frame pointer"),
        pytest.param("8@$sp", Register(232, 8), id="the stack pointer"),
        pytest.param("8@$a0", Register(32, 8), id="by its name"),
        pytest.param("8@$0", Constant(0), id="the zero register"),
        pytest.param("8f@$4", Register(32, 8), id="a double in a general register"),
        pytest.param("8@8($sp)", mem(M, "$29", 8), id="the stack"),
        pytest.param("-4@-8($4)", mem(M, "$4", -8, size=4), id="below a base"),
        pytest.param("8@($4)", mem(M, "$4"), id="no displacement"),
        pytest.param("8@8($0)", mem(M, None, 8), id="no base"),
        pytest.param(
            "8@%got_ofst(sv)($3)", mem(M, "$3", 0x4A38), id="what is beyond the symbol's page"
        ),
        pytest.param(
            "8@%got_ofst(high)($3)", mem(M, "$3", 0xF900 - 0x10000), id="or falls short of it"
        ),
        pytest.param("8@%gp_rel(sv)($28)", mem(M, "$28", SV - SYMBOLS["_gp"]), id="relative to gp"),
    ],
)
def test_what_a_program_fetches(text: str, expected: Location) -> None:
    assert fetch_of(text, M) == expected


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("mips64", Register(39, 1)),
        ("mips", Register(4 * 8 + 4 * 4 + 3, 1)),
        ("mipsel", Register(4 * 8 + 4 * 4, 1)),
    ],
)
def test_byte_orders_and_words(machine: str, expected: Register) -> None:
    assert fetch_of("1@$4", machine) == expected


def test_low_bits_of_an_absolute_address() -> None:
    assert fetch_of("4@%lo(high+4)($2)", "mips", ET_EXEC) == mem(
        "mips", "$2", 0xF904 - 0x10000, size=4
    )
    assert "depends on where" in reason_of("4@%lo(sv)($2)", "mips")


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        pytest.param("8f@$f12", "register", "f12 is not saved", id="floating point"),
        pytest.param("16@$w1", "register", "w1 is not saved", id="a vector"),
        pytest.param("-8@%tprel_lo(tl)($3)", "memory", "thread-local", id="thread-local"),
        pytest.param("8@%got_disp(sv)($28)", "memory", "cannot be followed", id="the GOT"),
        pytest.param("8f@%got_ofst(.LC0)($3)", "memory", "no .LC0", id="a label"),
        pytest.param("8@$32", "unknown", "no register 'r32'", id="no such register"),
        pytest.param("8@$", "unknown", "no register ''", id="no register"),
        pytest.param("8@8(4)", "unknown", "no base register", id="without its sigil"),
        pytest.param("8@8($f1)", "unknown", "'f1'", id="an address in floating point"),
        pytest.param("8@nowhere", "constant", "no nowhere", id="a symbol that is not there"),
        pytest.param("8@%eax", "unknown", "neither a number", id="another CPU's register"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str, reason: str) -> None:
    assert one(text, M).kind == kind
    assert reason in reason_of(text, M)
