"""Operands of PowerPC: a bare number is a register, a constant begins with i."""

from __future__ import annotations

import pytest
from operands import ET_EXEC, LOCATION, SYMBOLS, fetch_of, mem, one, reason_of

from usdt.arch.locations import Constant, Location, Register

M = "ppc64le"
SV = SYMBOLS["sv"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@i12", Constant(12), id="a constant"),
        pytest.param("1@i-1", Constant(255), id="wrapped to its size"),
        pytest.param("-8@i1311768467463790320", Constant(0x123456789ABCDEF0), id="of 64 bits"),
        pytest.param("8@9", Register(72, 8), id="a bare number is a register"),
        pytest.param("-4@31", Register(248, 4), id="its low four bytes"),
        pytest.param("8@r3", Register(24, 8), id="by its name"),
        pytest.param("8@%r3", Register(24, 8), id="with a sigil"),
        pytest.param("8@0", Register(0, 8), id="register 0 has a value"),
        pytest.param("8f@9", Register(72, 8), id="a double in a general register"),
        pytest.param("8@ctr", Register(280, 8), id="the count register"),
        pytest.param("8@lr", Register(288, 8), id="the link register"),
        pytest.param("8@0(9)", mem(M, "r9"), id="memory"),
        pytest.param("-4@-8(31)", mem(M, "r31", -8, size=4), id="below a base"),
        pytest.param("8@8(r1)", mem(M, "r1", 8), id="a named base"),
        pytest.param("8@8(0)", mem(M, None, 8), id="base 0 is no register"),
        pytest.param("-4@7,8", mem(M, "r7", 0, "r8", size=4), id="an index is not scaled"),
        pytest.param("1@30,31", mem(M, "r30", 0, "r31", size=1), id="r30 and r31"),
        pytest.param("8@0,9", mem(M, None, 0, "r9"), id="nothing but an index"),
        pytest.param(
            "4@sv@toc@l(9)", mem(M, "nip", SV - LOCATION, size=4), id="relative to the TOC"
        ),
        pytest.param(
            "4@sv+8@toc@l(9)", mem(M, "nip", SV + 8 - LOCATION, size=4), id="and a number"
        ),
        pytest.param("16@0(9)", mem(M, "r9", size=16), id="an aggregate"),
    ],
)
def test_what_a_program_fetches(text: str, expected: Location) -> None:
    assert fetch_of(text, M) == expected


@pytest.mark.parametrize(
    ("machine", "expected"),
    [("ppc64", Register(79, 1)), ("ppc", Register(39, 1)), ("ppcle", Register(36, 1))],
)
def test_byte_orders_and_words(machine: str, expected: Register) -> None:
    assert fetch_of("1@9", machine) == expected


def test_an_absolute_address_needs_a_program_at_its_link_time_address() -> None:
    assert fetch_of("4@sv@l(9)", "ppc", ET_EXEC) == mem("ppc", "r9", 0x4A38, size=4)
    assert "depends on where" in reason_of("4@sv@l(9)", "ppc")


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        pytest.param("8f@f1", "register", "f1 is not saved", id="floating point"),
        pytest.param("16@vs34", "register", "vs34 is not saved", id="a vector"),
        pytest.param("8@sv@tprel@l(9)", "memory", "thread-local", id="thread-local"),
        pytest.param("8@sv@got@l(9)", "memory", "cannot be followed", id="the GOT"),
        pytest.param("8@.L5@toc@l(9)", "memory", "no .L5", id="a label"),
        pytest.param("8@i", "unknown", "not a number", id="a constant of nothing"),
        pytest.param("8@isv", "unknown", "not a number", id="a constant of a symbol"),
        pytest.param("8@32", "unknown", "no register 'r32'", id="no such register"),
        pytest.param("8@-1", "unknown", "no register '-1'", id="a negative register"),
        pytest.param("8@0(32)", "unknown", "'r32'", id="no such base"),
        pytest.param("8@3,4,5", "unknown", "'4,5'", id="three registers"),
        pytest.param("8@0()", "unknown", "''", id="no base"),
        pytest.param("8@$5", "unknown", "no register '$5'", id="another CPU's constant"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str, reason: str) -> None:
    assert one(text, M).kind == kind
    assert reason in reason_of(text, M)
