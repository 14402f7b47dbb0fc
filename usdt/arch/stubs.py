"""Probe stubs: the function that a :class:`usdt.provider.Probe` calls, per CPU.

A stub is a nop, which is the probe's site, and a return. On x86-64, a nop of ten bytes is between
them, for kernels that optimize probes on it (:mod:`usdt.arch.nops`). The nop is the first
instruction, so every argument is where the CPU's calling convention passes it: in a register, or in
an 8-byte slot on the stack. Every argument is a 64-bit integer or a pointer. Floats are passed as
their bits, because tracers cannot read floating-point registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.nops import NOP_NOP10
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.base.machine import ByteOrder

__all__ = ("STUBS", "Stub")

_SLOT = 8  # bytes of an argument on the stack


@frozen
class Stub:
    """The parts of a probe object for one CPU.

    Attributes:
        e_machine: machine number of the ELF header.
        order: byte order.
        page: the largest page size the ABI allows; segments are aligned to it.
        nop, ret: the instructions; ``nop`` begins with the site.
        registers: argument size in bytes -> registers of the first arguments, in assembler syntax.
        stack: offset from the stack pointer of the first argument in memory.
        slot: returns the operand for an offset from the stack pointer.
        hash_entry: bytes of a word of .hash: 4 by the gABI, 8 on s390x.
        flags: e_flags of the ELF header, which tell the dynamic linker the ABI.
    """

    e_machine: int
    order: ByteOrder
    page: int
    nop: bytes
    ret: bytes
    registers: dict[int, tuple[str, ...]]
    stack: int
    slot: Callable[[int], str]
    hash_entry: int = 4
    flags: int = 0

    def operand(self, index: int, size: int) -> str:
        """Return the operand of argument ``index`` at the nop, in the syntax of a note."""
        registers = self.registers[size]
        if index < len(registers):
            return registers[index]
        offset = self.stack + _SLOT * (index - len(registers))
        return self.slot(offset + (_SLOT - size if self.order == "big" else 0))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_X = _names("x0 x1 x2 x3 x4 x5 x6 x7")
_W = _names("w0 w1 w2 w3 w4 w5 w6 w7")
_S390X = _names("%r2 %r3 %r4 %r5 %r6")
_PPC64 = _names("3 4 5 6 7 8 9 10")
_RISCV = _names("a0 a1 a2 a3 a4 a5 a6 a7")

#: CPU of a process, as named by :mod:`usdt.base.machine` -> its stub. Conventions: the System V ABI
#: processor supplements of x86-64 (3.2.3) and s390x (1.2.2: 160 bytes of the caller's frame lie
#: below the arguments), AAPCS64 (6.8.2), ELFv2 of ppc64 (2.2.3: the parameter save area is at 32
#: and also has slots for the eight register arguments), RISC-V ("Integer Calling Convention").
STUBS: dict[str, Stub] = {
    "x86_64": Stub(
        62,
        "little",
        0x1000,
        nop=NOP_NOP10,
        ret=b"\xc3",
        registers={
            1: _names("%dil %sil %dl %cl %r8b %r9b"),
            2: _names("%di %si %dx %cx %r8w %r9w"),
            4: _names("%edi %esi %edx %ecx %r8d %r9d"),
            8: _names("%rdi %rsi %rdx %rcx %r8 %r9"),
        },
        stack=8,  # above the return address
        slot=lambda offset: f"{offset}(%rsp)",
    ),
    "aarch64": Stub(
        183,
        "little",
        0x10000,
        nop=bytes.fromhex("1f2003d5"),
        ret=bytes.fromhex("c0035fd6"),
        registers={1: _W, 2: _W, 4: _W, 8: _X},
        stack=0,
        slot=lambda offset: f"[sp, {offset}]" if offset else "[sp]",
    ),
    "s390x": Stub(
        22,
        "big",
        0x1000,
        nop=bytes.fromhex("0707"),
        ret=bytes.fromhex("07fe"),
        registers=dict.fromkeys((1, 2, 4, 8), _S390X),
        stack=160,
        slot=lambda offset: f"{offset}(%r15)",
        hash_entry=8,
    ),
    "ppc64le": Stub(
        21,
        "little",
        0x10000,
        nop=bytes.fromhex("00000060"),
        ret=bytes.fromhex("2000804e"),
        registers=dict.fromkeys((1, 2, 4, 8), _PPC64),
        stack=96,
        slot=lambda offset: f"{offset}(1)",
        flags=2,  # ELFv2: a function's address is that of its code, not of a descriptor
    ),
    "riscv64": Stub(
        243,
        "little",
        0x1000,
        nop=bytes.fromhex("13000000"),
        ret=bytes.fromhex("67800000"),
        registers=dict.fromkeys((1, 2, 4, 8), _RISCV),
        stack=0,
        slot=lambda offset: f"{offset}(sp)",
        flags=4,  # EF_RISCV_FLOAT_ABI_DOUBLE, as Linux distributions use
    ),
}
