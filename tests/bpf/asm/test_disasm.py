"""Instructions as text: each kind, in the kernel's words (live tests compare with its log)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.disasm import disassemble, listing
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R10, Alu, Jump, encode

_ONE = [
    (encode(0xBF, 6, 1), "(bf) r6 = r1"),
    (encode(0xBC, 6, 1), "(bc) w6 = w1"),
    (encode(0xB7, 0, 0, 0, -5), "(b7) r0 = -5"),
    (encode(0x07, 2, 0, 0, -8), "(07) r2 += -8"),
    (encode(0x04, 2, 0, 0, 7), "(04) w2 += 7"),
    (encode(0xC7, 3, 0, 0, 32), "(c7) r3 s>>= 32"),
    (encode(0x87, 0), "(87) r0 = -r0"),
    (encode(0x3F, 0, 1), "(3f) r0 /= r1"),
    (encode(0x3F, 0, 1, 1), "(3f) r0 s/= r1"),
    (encode(0x9F, 0, 1, 1), "(9f) r0 s%= r1"),
    (encode(0xBF, 0, 1, 8), "(bf) r0 = (s8)r1"),
    (encode(0xDC, 1, 0, 0, 16), "(dc) r1 = be16 r1"),
    (encode(0xD4, 1, 0, 0, 64), "(d4) r1 = le64 r1"),
    (encode(0xD7, 1, 0, 0, 32), "(d7) r1 = bswap32 r1"),
    (encode(0x79, 1, 6, 112), "(79) r1 = *(u64 *)(r6 +112)"),
    (encode(0x71, 1, 10, -1), "(71) r1 = *(u8 *)(r10 -1)"),
    (encode(0x81, 1, 6, 0), "(81) r1 = *(s32 *)(r6 +0)"),
    (encode(0x63, 10, 8, -8), "(63) *(u32 *)(r10 -8) = r8"),
    (encode(0x6A, 10, 0, -16, 9), "(6a) *(u16 *)(r10 -16) = 9"),
    (encode(0xDB, 0, 1, 8), "(db) lock *(u64 *)(r0 +8) += r1"),
    (encode(0xC3, 0, 1, 8, 0x40), "(c3) lock *(u32 *)(r0 +8) |= r1"),
    (encode(0xDB, 0, 1, 8, 0x01), "(db) r1 = atomic64_fetch_add((u64 *)(r0 +8), r1)"),
    (encode(0xDB, 0, 1, 8, 0xE1), "(db) r1 = atomic64_xchg((u64 *)(r0 +8), r1)"),
    (encode(0xDB, 0, 1, 8, 0xF1), "(db) r0 = atomic64_cmpxchg((u64 *)(r0 +8), r0, r1)"),
    (encode(0x15, 0, 0, 3, 0), "(15) if r0 == 0x0 goto pc+3"),
    (encode(0xC5, 0, 0, -3, -1), "(c5) if r0 s< 0xffffffff goto pc-3"),
    (encode(0x2D, 3, 4, 9), "(2d) if r3 > r4 goto pc+9"),
    (encode(0x46, 3, 0, 9, 1), "(46) if w3 & 0x1 goto pc+9"),
    (encode(0x05, 0, 0, -1), "(05) goto pc-1"),
    (encode(0x06, 0, 0, 0, 70000), "(06) goto pc+70000"),
    (encode(0x85, 0, 0, 0, 5), "(85) call bpf_ktime_get_ns#5"),
    (encode(0x85, 0, 0, 0, 9999), "(85) call unknown#9999"),
    (encode(0x85, 0, 1, 0, 12), "(85) call pc+12"),
    (encode(0x85, 0, 2, 0, 12), "(85) call kernel-function#12"),
    (encode(0x95), "(95) exit"),
    (encode(0x20, 0, 0, 0, 12), "(20) unknown: r0 r0 +0 0xc"),
    (encode(0xE7, 1, 2, 3, 4), "(e7) unknown: r1 r2 +3 0x4"),
    (encode(0xDB, 1, 2, 3, 0x77), "(db) unknown: r1 r2 +3 0x77"),
    (encode(0x18, 1), "(18) unknown: r1 r0 +0 0x0"),
]


@pytest.mark.parametrize(("insn", "text"), _ONE, ids=[text for _, text in _ONE])
def test_each_kind(insn: bytes, text: str) -> None:
    assert list(disassemble(insn)) == [f"   0: {text}"]


def test_a_program_has_its_maps_names_and_indices_of_slots() -> None:
    asm = Assembler()
    asm.mov(R6, R1)
    asm.mov(R3, 1 << 40)
    asm.load_map(R1, "events")
    asm.mov(R2, R10)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.NE, R0, 0, "out")
    asm.alu(Alu.XOR, R0, R6)
    asm.label("out")
    asm.exit()
    assert listing(asm.assemble()) == [
        "   0: (bf) r6 = r1",
        "   1: (18) r3 = 0x10000000000",
        "   3: (18) r1 = map[events]",
        "   5: (bf) r2 = r10",
        "   6: (85) call bpf_map_lookup_elem#1",
        "   7: (55) if r0 != 0x0 goto pc+1",
        "   8: (af) r0 ^= r6",
        "   9: (95) exit",
    ]
    linked = asm.assemble().link({"events": 7})
    assert "   3: (18) r1 = map[fd:7]" in disassemble(linked)
    value = encode(0x18, 1, 2, 0, 7) + encode(0, 0, 0, 0, 16)
    assert list(disassemble(value)) == ["   0: (18) r1 = map[fd:7][0]+16"]


@given(st.binary(max_size=100))
def test_any_bytes_have_a_text(insns: bytes) -> None:
    lines = list(disassemble(insns))
    assert len(lines) <= len(insns) // 8 + 1
    assert all(re.fullmatch(r" *\d+: .+", line) for line in lines)
    wide = sum(line[4:9] == ": (18" and "unknown" not in line for line in lines)
    assert len(lines) + wide == -(-len(insns) // 8)
