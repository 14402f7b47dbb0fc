"""Operands of 32-bit ARM, both byte orders; Thumb code spells them alike."""

from __future__ import annotations

import struct

import pytest
from operands import ET_EXEC, LOCATION, SYMBOLS, fetch_of, mem, one, reason_of

from usdt.arch.locations import Address, Constant, Location, Register
from usdt.arch.pt_regs import saved_registers

M = "arm"
SV = SYMBOLS["sv"]


def bits(value: float, layout: str) -> int:
    return int.from_bytes(struct.pack(layout, value), "little")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("-4@#12", Constant(12), id="a constant"),
        pytest.param("-4@12", Constant(12), id="without its hash"),
        pytest.param("1@#-1", Constant(255), id="wrapped to its size"),
        pytest.param("-8@#-1", Constant(-1), id="of eight bytes"),
        pytest.param("8f@#2.5e+0", Constant(bits(2.5, "<d")), id="a double"),
        pytest.param("8f@#1.000000001e+0", Constant(bits(1.000000001, "<d")), id="ten digits"),
        pytest.param("4f@#-1.0000000149012e-1", Constant(bits(-0.1, "<f")), id="a long float"),
        pytest.param("4f@#-1.0e-1", Constant(bits(-0.1, "<f")), id="a float"),
        pytest.param("8f@#-Inf", Constant(bits(float("-inf"), "<d")), id="infinity"),
        pytest.param("4f@#+QNaN", Constant(bits(float("nan"), "<f")), id="no number"),
        pytest.param("4@r3", Register(12, 4), id="a register"),
        pytest.param("-1@r3", Register(12, 1), id="its low byte"),
        pytest.param("4f@ip", Register(48, 4), id="a float in a general register"),
        pytest.param("4@fp", Register(44, 4), id="the frame pointer"),
        pytest.param("4@sp", Register(52, 4), id="the stack pointer"),
        pytest.param("4@lr", Register(56, 4), id="the link register"),
        pytest.param("4@sl", Register(40, 4), id="r10"),
        pytest.param("4@v5", Register(32, 4), id="r8 by the procedure call standard"),
        pytest.param("-8@[fp, #-12]", mem(M, "r11", -12, size=8), id="eight bytes of memory"),
        pytest.param("8@[sp, #12]", mem(M, "sp", 12), id="the stack"),
        pytest.param("-4@[r12]", mem(M, "r12", size=4), id="no offset"),
        pytest.param("-4@[r2, r0, lsl #2]", mem(M, "r2", 0, "r0", 4, size=4), id="a scaled index"),
        pytest.param("1@[r2, r0]", mem(M, "r2", 0, "r0", size=1), id="an index"),
        pytest.param("1@[r2, +r0]", mem(M, "r2", 0, "r0", size=1), id="added explicitly"),
        pytest.param("4@sv+8", Address(60, SV + 8 - LOCATION, 4, 4), id="clang's address"),
        pytest.param("4@#sv+8", Address(60, SV + 8 - LOCATION, 4, 4), id="gcc's address"),
    ],
)
def test_what_a_program_fetches(text: str, expected: Location) -> None:
    assert fetch_of(text, M) == expected


def test_a_program_at_its_link_time_address_has_constant_addresses() -> None:
    assert fetch_of("4@#sv", M, ET_EXEC) == Constant(SV)


def test_big_endian_registers_have_their_low_bytes_last() -> None:
    assert fetch_of("-1@r3", "armeb") == Register(15, 1)


def test_a_64_bit_kernel_saves_them_under_names_of_its_own() -> None:
    saved = saved_registers(M, "aarch64")
    assert (saved["r3"], saved["sp"], saved["lr"], saved["pc"]) == (24, 104, 112, 256)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        pytest.param("8f@r2", "register", "holds a part of its 8 bytes", id="half of a double"),
        pytest.param("8f@d0", "register", "d0 is not saved", id="a double's register"),
        pytest.param("4f@s15", "register", "s15 is not saved", id="a float's register"),
        pytest.param("16@q3", "register", "q3 is not saved", id="a vector"),
        pytest.param("8f@#1.7976931349e+308", "constant", "a rounded number", id="DBL_MAX"),
        pytest.param("8f@#-1.0000000001e-1", "constant", "a rounded number", id="eleven digits"),
        pytest.param("4@[r2, -r0]", "memory", "subtracted", id="a subtracted index"),
        pytest.param("4@[r2, r0, asr #2]", "memory", "shifted by asr", id="a right shift"),
        pytest.param("4@[pc, #8]", "memory", "relative to the instruction", id="the literal pool"),
        pytest.param("4@#.LANCHOR1+300", "constant", "no .LANCHOR1", id="a label"),
        pytest.param("4@[r2, r0, lsl]", "unknown", "not a shift", id="a shift by nothing"),
        pytest.param("4@[r2, r0, lsl #99]", "unknown", "not a shift", id="too far a shift"),
        pytest.param("4@[r2, #4, lsl #2]", "unknown", "too many parts", id="a shifted number"),
        pytest.param("4@[r2, #4]!", "unknown", "changes its base", id="pre-indexed"),
        pytest.param("4@[d2]", "unknown", "'d2'", id="an address in floating point"),
        pytest.param("8f@#1e400x", "unknown", "neither a number", id="no number"),
        pytest.param("4@#2.5e+0", "unknown", "neither a number", id="a float where none is"),
        pytest.param("4@#", "unknown", "neither a number", id="nothing behind the hash"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str, reason: str) -> None:
    assert one(text, M).kind == kind
    assert reason in reason_of(text, M)
