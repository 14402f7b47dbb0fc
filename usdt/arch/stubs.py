"""Per CPU: the function a :class:`usdt.provider.Probe` calls, and where its arguments are then.

A stub is two instructions, a nop (the probe's site) and a return. As the nop is the function's
first instruction, every argument is where the CPU's calling convention puts it for a callee:
in registers, then in slots of eight bytes on the stack. Every argument is passed as a 64-bit
integer or a pointer, floats as their bits: no tracer can read a floating-point register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.base.machine import ByteOrder

__all__ = ("STUBS", "Stub")

_SLOT = 8  # bytes of an argument on the stack


@frozen
class Stub:
    """What an object for one CPU is made of.

    Attributes:
        e_machine: of the ELF header.
        order: byte order.
        page: the largest page size the ABI allows; segments are aligned to it.
        nop, ret: the two instructions.
        registers: of the first arguments, by size in bytes, as the CPU's assembler spells them.
        stack: offset from the stack pointer of the first argument that is in memory.
        slot: spells an offset from the stack pointer.
        hash_entry: bytes of a word of .hash; Linux on s390x is the exception to the gABI.
        flags: of the ELF header, by which a dynamic linker tells the ABIs of a CPU apart.
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
        """Where the argument ``index`` of ``size`` bytes is at the nop, as a note spells it."""
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

#: The CPU of a process, as :mod:`usdt.base.machine` names it → its stub. Conventions: the processor
#: supplements of the System V ABI (x86-64 3.2.3; AAPCS64 6.8.2; s390x 1.2.2, with the caller's
#: 160 bytes below its arguments; ELFv2 of ppc64 2.2.3, whose save area begins at 32 and has places
#: for the eight in registers as well; RISC-V's "Integer Calling Convention").
STUBS: dict[str, Stub] = {
    "x86_64": Stub(
        62,
        "little",
        0x1000,
        nop=b"\x90",
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
        flags=2,  # ELFv2: a function's address is that of its code
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
        flags=4,  # EF_RISCV_FLOAT_ABI_DOUBLE: what Linux's distributions have
    ),
}
