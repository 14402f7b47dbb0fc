"""Operands of s390x: big-endian, an index before the base, register 0 that is no address."""

from __future__ import annotations

import pytest
from operands import fetch_of, mem, one, reason_of, slot

from usdt.arch.locations import Constant, Location, Memory, Register

M = "s390x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@12", Constant(12), id="a bare number is a constant"),
        pytest.param("1@-1", Constant(255), id="wrapped to its size"),
        pytest.param("-8@-1", Constant(-1), id="signed"),
        pytest.param("8@0", Constant(0), id="zero"),
        pytest.param("8@%r2", Register(40, 8), id="a whole register"),
        pytest.param("-4@%r2", Register(44, 4), id="its last four bytes"),
        pytest.param("2@%r2", Register(46, 2), id="its last two"),
        pytest.param("-1@%r3", Register(55, 1), id="its last one"),
        pytest.param("4@%r0", Register(28, 4), id="register 0 has a value"),
        pytest.param("8f@%r1", Register(32, 8), id="a double in a general register"),
        pytest.param("4f@%r1", Register(36, 4), id="a float in one"),
        pytest.param("%r5", Register(64, 8), id="without a size"),
        pytest.param("8@168(%r15)", mem(M, "r15", 168), id="the stack"),
        pytest.param("-4@-4(%r11)", mem(M, "r11", -4, size=4), id="below a base"),
        pytest.param("8@(%r2)", mem(M, "r2"), id="no displacement"),
        pytest.param("-4@0(%r5,%r4)", mem(M, "r4", 0, "r5", size=4), id="index and base"),
        pytest.param("-4@160(%r11,%r15)", mem(M, "r15", 160, "r11", size=4), id="all three"),
        pytest.param("8@8(%r0)", mem(M, None, 8), id="base 0 is no register"),
        pytest.param("8@8(%r0,%r2)", mem(M, "r2", 8), id="index 0 neither"),
        pytest.param("8@-8+16(%r2)", mem(M, "r2", 8), id="a sum"),
        pytest.param("16@160(%r15)", mem(M, "r15", 160, size=16), id="an aggregate in memory"),
    ],
)
def test_what_a_program_fetches(text: str, expected: Location) -> None:
    assert fetch_of(text, M) == expected


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        pytest.param("8f@%f0", "register", "f0 is not saved", id="floating point"),
        pytest.param("16@%v24", "register", "v24 is not saved", id="a vector"),
        pytest.param("4@%a1", "register", "a1 is not saved", id="an access register"),
        pytest.param("16@%r10", "register", "holds a part of its 16 bytes", id="half of a pair"),
        pytest.param("3@%r10", "register", "3 bytes in a register", id="an odd size"),
        pytest.param("8@%r16", "unknown", "no register 'r16'", id="no such register"),
        pytest.param("8@%rax", "unknown", "no register 'rax'", id="another CPU's register"),
        pytest.param("8@$5", "unknown", "neither a number", id="another CPU's constant"),
        pytest.param("8@sv", "unknown", "neither a number", id="a symbol"),
        pytest.param("8@8(%r1,%r2,%r3)", "unknown", "no registers", id="three registers"),
        pytest.param("8@8(r1)", "unknown", "no registers", id="without its sigil"),
        pytest.param("8@8()", "unknown", "no registers", id="no register"),
        pytest.param("8@8(%f1)", "unknown", "'f1'", id="an address in floating point"),
        pytest.param("8@x(%r1)", "memory", "x is not a displacement", id="a symbol and a base"),
        pytest.param("8@", "unknown", "not one operand", id="nothing"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str, reason: str) -> None:
    assert one(text, M).kind == kind
    assert reason in reason_of(text, M)


def test_a_31_bit_process_has_its_registers_in_the_ends_of_slots() -> None:
    assert fetch_of("4@%r2", "s390") == Register(44, 4)
    assert fetch_of("-1@%r2", "s390") == Register(47, 1)
    assert fetch_of("4@96(%r15)", "s390") == Memory(slot("s390", "r15"), None, 1, 96, 4, 4)
    assert slot("s390", "r15") == slot(M, "r15") + 4
    assert "holds a part of its 8 bytes" in reason_of("8@%r2", "s390")
