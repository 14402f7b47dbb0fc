"""eBPF instructions: registers, operation codes and their eight-byte encoding.

Source: ``Documentation/bpf/standardization/instruction-set.rst``.

    byte    0        1             2–3      4–7
            opcode   dst and src   offset   immediate
"""

from __future__ import annotations

import struct
import sys

from usdt.base.frozen import Numbers

__all__ = (
    "R0",
    "R1",
    "R2",
    "R3",
    "R4",
    "R5",
    "R6",
    "R7",
    "R8",
    "R9",
    "R10",
    "Alu",
    "Jump",
    "Reg",
    "encode",
    "size_code",
)


class Reg(Numbers):
    """A register. r0: result; r1–r5: arguments, clobbered; r6–r9: preserved; r10: frame pointer."""

    R0 = 0
    R1 = 1
    R2 = 2
    R3 = 3
    R4 = 4
    R5 = 5
    R6 = 6
    R7 = 7
    R8 = 8
    R9 = 9
    R10 = 10


R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = Reg


class Alu(Numbers):
    """BPF_OP of arithmetic instructions."""

    ADD = 0x00
    SUB = 0x10
    MUL = 0x20
    DIV = 0x30
    OR = 0x40
    AND = 0x50
    LSH = 0x60
    RSH = 0x70
    NEG = 0x80
    MOD = 0x90
    XOR = 0xA0
    MOV = 0xB0
    ARSH = 0xC0


class Jump(Numbers):
    """BPF_OP of jump instructions."""

    ALWAYS = 0x00
    EQ = 0x10
    GT = 0x20
    GE = 0x30
    SET = 0x40
    NE = 0x50
    SGT = 0x60
    SGE = 0x70
    LT = 0xA0
    LE = 0xB0
    SLT = 0xC0
    SLE = 0xD0


_SIZES = {1: 0x10, 2: 0x08, 4: 0x00, 8: 0x18}  # BPF_B BPF_H BPF_W BPF_DW
_LITTLE = sys.byteorder == "little"
_STRUCT = struct.Struct("=BBhi")


def size_code(size: int) -> int:
    """Return the BPF_SIZE bits for an access of 1, 2, 4 or 8 bytes."""
    return _SIZES[size]


def encode(opcode: int, dst: int = 0, src: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """Encode one instruction in this machine's byte order; ``immediate`` modulo 2^32."""
    # The two register nibbles are a C bit-field, so big-endian machines store them swapped.
    registers = dst | src << 4 if _LITTLE else dst << 4 | src
    signed = (immediate & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
    return _STRUCT.pack(opcode, registers, offset, signed)
