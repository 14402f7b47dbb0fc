"""Operands of arm64, with and without ``#``, and of its big-endian kind."""

from __future__ import annotations

import pytest
from operands import ET_EXEC, LOCATION, SYMBOLS, fetch_of, mem, one, reason_of

from usdt.arch.locations import Address, Constant, Location, Memory, Register, ValueClass, ValueType

M = "aarch64"
S32, U32 = ValueType(ValueClass.SIGNED, 4), ValueType(ValueClass.UNSIGNED, 4)
SV = SYMBOLS["sv"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@12", Constant(12), id="a bare number is a constant"),
        pytest.param("-4@#12", Constant(12), id="and one with a hash"),
        pytest.param("1@-1", Constant(255), id="wrapped to its size"),
        pytest.param("8@x0", Register(0, 8), id="a register"),
        pytest.param("-4@x10", Register(80, 4), id="its low four bytes"),
        pytest.param("-4@w10", Register(80, 4), id="under the name of its half"),
        pytest.param("1@w30", Register(240, 1), id="one byte"),
        pytest.param("8@sp", Register(248, 8), id="the stack pointer"),
        pytest.param("8@lr", Register(240, 8), id="the link register"),
        pytest.param("8@xzr", Constant(0), id="the zero register"),
        pytest.param("8f@x4", Register(32, 8), id="a double in a general register"),
        pytest.param("8@[x0]", mem(M, "x0"), id="memory"),
        pytest.param("-4@[sp, 12]", mem(M, "sp", 12, size=4), id="the stack"),
        pytest.param("-4@[sp, #12]", mem(M, "sp", 12, size=4), id="with a hash"),
        pytest.param("-4@[sp,12]", mem(M, "sp", 12, size=4), id="without a blank"),
        pytest.param("-4@[x31,-40]", mem(M, "sp", -40, size=4), id="register 31 is the stack"),
        pytest.param("8@[x29, -8]", mem(M, "x29", -8), id="below a base"),
        pytest.param("1@[x1, x3]", mem(M, "x1", 0, "x3", size=1), id="an index"),
        pytest.param("8@[x1, x3, lsl 3]", mem(M, "x1", 0, "x3", 8), id="scaled"),
        pytest.param("8@[x1, x3, lsl #3]", mem(M, "x1", 0, "x3", 8), id="scaled, with a hash"),
        pytest.param("8@[x1, x3, sxtx 3]", mem(M, "x1", 0, "x3", 8), id="sxtx changes nothing"),
        pytest.param(
            "4@[x1, w3, sxtw 2]",
            mem(M, "x1", 0, "x3", 4, size=4, index_type=S32),
            id="a signed narrow index",
        ),
        pytest.param(
            "1@[x1, w3, uxtw]",
            mem(M, "x1", 0, "x3", 1, size=1, index_type=U32),
            id="an unsigned narrow index",
        ),
        pytest.param("8@[x1, xzr]", mem(M, "x1"), id="an index of zero"),
        pytest.param(
            "8@[x6, #:lo12:sv]", mem(M, "pc", SV - LOCATION), id="the low bits of a symbol"
        ),
        pytest.param(
            "8@[x6, #:lo12:sv+8]", mem(M, "pc", SV + 8 - LOCATION), id="of a symbol and a number"
        ),
        pytest.param("8@[x6, :lo12:sv]", mem(M, "pc", SV - LOCATION), id="as clang spells it"),
        pytest.param("8@sv", Address(256, SV - LOCATION, 8, 8), id="a symbol's address"),
        pytest.param("24@[x6]", mem(M, "x6", size=24), id="an aggregate"),
    ],
)
def test_what_a_program_fetches(text: str, expected: Location) -> None:
    assert fetch_of(text, M) == expected


def test_a_program_at_its_link_time_address_has_constant_addresses() -> None:
    assert fetch_of("8@sv+8", M, ET_EXEC) == Constant(SV + 8)


def test_big_endian_registers_have_their_low_bytes_last() -> None:
    assert fetch_of("-4@w10", "aarch64_be") == Register(84, 4)
    assert fetch_of("1@[x1, w3, uxtw]", "aarch64_be") == Memory(8, 28, 1, 0, 8, 1, U32)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        *(
            pytest.param(f"8f@{name}", "register", f"{name} is not saved", id=name)
            for name in ("v0", "d8", "s31", "q1", "h2", "b3", "z4", "p5")
        ),
        pytest.param("8@w6", "register", "holds a part of its 8 bytes", id="more than a half"),
        pytest.param("8@[x6, #:tprel_lo12_nc:tl]", "memory", "thread-local", id="thread-local"),
        pytest.param("8@[x6, #:got_lo12:sv]", "memory", "cannot be followed", id="the GOT"),
        pytest.param("8@[x6, #:lo12:.LANCHOR1]", "memory", "no .LANCHOR1", id="a label"),
        pytest.param("8@x31", "constant", "no x31", id="no register, so a symbol"),
        pytest.param("8@[v0]", "unknown", "'v0'", id="an address in a vector"),
        pytest.param("8@[w0]", "unknown", "'w0'", id="an address in half a register"),
        pytest.param("8@[x0, w1]", "unknown", "'w1'", id="a narrow index that is not extended"),
        pytest.param("8@[x0, x1, sxtw 2]", "unknown", "not an extension", id="a wide one that is"),
        pytest.param("8@[x0, x1, lsl 9]", "unknown", "not an extension", id="shifted too far"),
        pytest.param("8@[x0, 8, lsl 3]", "unknown", "too many parts", id="a scaled number"),
        pytest.param("8@[x0, 8]!", "unknown", "changes its base", id="pre-indexed"),
        pytest.param("8@[x0", "unknown", "changes its base", id="no end"),
        pytest.param("8@[]", "unknown", "''", id="nothing inside"),
        pytest.param("8@[x0, :lo12]", "unknown", "unknown relocation", id="half a relocation"),
        pytest.param("8@$5", "constant", "no $5", id="another CPU's constant"),
        pytest.param("8@%rdi", "unknown", "neither a number", id="another CPU's register"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str, reason: str) -> None:
    assert one(text, M).kind == kind
    assert reason in reason_of(text, M)
