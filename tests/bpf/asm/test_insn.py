"""usdt.bpf.asm.insn: eight bytes, as the instruction set's specification has them."""

from __future__ import annotations

import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usdt.bpf.asm import insn
from usdt.bpf.asm.insn import R0, R1, R2, R6, R9, R10, Alu, Jump, Reg, encode, size_code

little_endian = pytest.mark.skipif(sys.byteorder != "little", reason="needs a little-endian CPU")


@little_endian
@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        pytest.param(encode(0x95), "95 00 00 00 00 00 00 00", id="exit"),
        pytest.param(encode(0xB7, R0, 0, 0, 1), "b7 00 00 00 01 00 00 00", id="r0 = 1"),
        pytest.param(encode(0xBF, R6, R1), "bf 16 00 00 00 00 00 00", id="r6 = r1"),
        pytest.param(encode(0xBF, R2, R10), "bf a2 00 00 00 00 00 00", id="r2 = r10"),
        pytest.param(encode(0x07, R2, 0, 0, -8), "07 02 00 00 f8 ff ff ff", id="r2 += -8"),
        pytest.param(
            encode(0x79, R9, R1, 0x60), "79 19 60 00 00 00 00 00", id="r9 = *(u64 *)(r1 + 96)"
        ),
        pytest.param(
            encode(0x7B, R10, R0, -16), "7b 0a f0 ff 00 00 00 00", id="*(u64 *)(r10 - 16) = r0"
        ),
        pytest.param(encode(0x85, 0, 0, 0, 131), "85 00 00 00 83 00 00 00", id="call 131"),
    ],
)
def test_instructions_are_those_of_the_specification(instruction: bytes, expected: str) -> None:
    assert instruction.hex(" ") == expected


def test_big_endian_machines_swap_the_register_nibbles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insn, "_LITTLE", True)
    assert encode(0xBF, R6, R1)[1] == 0x16
    monkeypatch.setattr(insn, "_LITTLE", False)
    assert encode(0xBF, R6, R1)[1] == 0x61


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        pytest.param(0, 0, id="zero"),
        pytest.param(0x7FFFFFFF, 0x7FFFFFFF, id="the greatest"),
        pytest.param(0x80000000, -0x80000000, id="beyond the greatest is the least"),
        pytest.param(0xFFFFFFFF, -1, id="unsigned all ones is -1"),
        pytest.param(-1, -1, id="-1"),
        pytest.param(-0x80000000, -0x80000000, id="the least"),
        pytest.param(1 << 32, 0, id="what lies above 32 bits is cut off"),
        pytest.param((1 << 63) | 5, 5, id="whatever lies above"),
    ],
)
def test_immediates_are_taken_modulo_two_to_the_32(given_value: int, expected: int) -> None:
    assert struct.unpack("=i", encode(0xB7, R0, 0, 0, given_value)[4:]) == (expected,)


@settings(deadline=None)
@given(
    st.integers(0, 255),
    st.sampled_from(list(Reg)),
    st.sampled_from(list(Reg)),
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_every_field_can_be_read_back(
    opcode: int, dst: Reg, src: Reg, offset: int, immediate: int
) -> None:
    encoded = encode(opcode, dst, src, offset, immediate)
    low, high = encoded[1] & 15, encoded[1] >> 4
    assert (low, high) == ((dst, src) if sys.byteorder == "little" else (src, dst))
    assert struct.unpack("=Bxhi", encoded) == (opcode, offset, immediate)


@pytest.mark.parametrize("offset", [-(1 << 15) - 1, 1 << 15])
def test_an_offset_out_of_reach_is_never_cut_off(offset: int) -> None:
    with pytest.raises(struct.error):
        encode(0x79, R0, R1, offset)


@pytest.mark.parametrize(("size", "code"), [(1, 0x10), (2, 0x08), (4, 0x00), (8, 0x18)])
def test_sizes(size: int, code: int) -> None:
    assert size_code(size) == code


@pytest.mark.parametrize("size", [0, 3, 16])
def test_other_sizes_do_not_exist(size: int) -> None:
    with pytest.raises(KeyError):
        size_code(size)


def test_registers_are_their_numbers() -> None:
    assert [reg.value for reg in Reg] == list(range(11))
    assert R10 is Reg.R10


def test_operations_use_the_upper_nibble_only() -> None:
    assert all(not op & 0x0F for op in [*Alu, *Jump])
    assert len(set(Alu)) == 13
    assert len(set(Jump)) == 12
