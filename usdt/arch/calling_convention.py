"""Registers and stack slots of integer arguments and results, per CPU.

Each integer or pointer of up to a word takes one register or one stack slot. Wider values and
floating-point numbers have their own rules (:mod:`usdt.arch.abi`). Register names are those of
:mod:`usdt.arch.pt_regs`. Sources: the processor supplements of the System V ABI, AAPCS and AAPCS64,
the RISC-V and LoongArch psABIs, the ELF v2 ABI of Power.
"""

from __future__ import annotations

from usdt.base.frozen import frozen

__all__ = ("CONVENTIONS", "KERNEL_CONVENTIONS", "Convention")


@frozen
class Convention:
    """A calling convention at a function's first instruction.

    Attributes:
        arguments: registers of the first arguments, in order.
        result: register of the result, at the return.
        sp: the stack pointer.
        stack: offset from the stack pointer of the first argument without a register; the others
            follow, one word each.
        link: register with the return address; None if the address is at the stack pointer.
        second_result: register of the second word of a result; None if unknown, or if such results
            are in memory.
    """

    arguments: tuple[str, ...]
    result: str
    sp: str
    stack: int
    link: str | None = None
    second_result: str | None = None


def _names(prefix: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(first, last + 1))


_AARCH64 = Convention(_names("x", 0, 7), "x0", "sp", 0, "x30", "x1")
_ARM = Convention(_names("r", 0, 3), "r0", "sp", 0, "lr", "r1")
_LOONGARCH = Convention(_names("r", 4, 11), "r4", "r3", 0, "r1", "r5")
_MIPS_O32 = Convention(_names("$", 4, 7), "$2", "$29", 16, "$31")
_MIPS_N64 = Convention(_names("$", 4, 11), "$2", "$29", 0, "$31")
_PPC32 = Convention(_names("r", 3, 10), "r3", "r1", 8, "link")
# The first eight doublewords of the parameter save area are those of the register arguments.
_PPC64_ELF1 = Convention(_names("r", 3, 10), "r3", "r1", 48 + 64, "link")
_PPC64_ELF2 = Convention(_names("r", 3, 10), "r3", "r1", 32 + 64, "link", "r4")
_RISCV = Convention(_names("a", 0, 7), "a0", "sp", 0, "ra", "a1")

#: Machine -> convention of C programs.
CONVENTIONS: dict[str, Convention] = {
    "x86_64": Convention(
        ("rdi", "rsi", "rdx", "rcx", "r8", "r9"), "rax", "rsp", 8, second_result="rdx"
    ),
    "i386": Convention((), "rax", "rsp", 4, second_result="rdx"),
    "aarch64": _AARCH64,
    "aarch64_be": _AARCH64,
    "arm": _ARM,
    "armeb": _ARM,
    "s390x": Convention(_names("r", 2, 6), "r2", "r15", 160, "r14"),
    "s390": Convention(_names("r", 2, 6), "r2", "r15", 96, "r14"),
    "ppc": _PPC32,
    "ppcle": _PPC32,
    "ppc64": _PPC64_ELF1,
    "ppc64le": _PPC64_ELF2,
    "riscv32": _RISCV,
    "riscv64": _RISCV,
    "mips": _MIPS_O32,
    "mipsel": _MIPS_O32,
    "mips64": _MIPS_N64,
    "mips64el": _MIPS_N64,
    "loongarch32": _LOONGARCH,
    "loongarch64": _LOONGARCH,
}

#: Machine -> convention of kernel functions. i386 kernels use -mregparm=3 (arch/x86/Makefile).
KERNEL_CONVENTIONS: dict[str, Convention] = CONVENTIONS | {
    "i386": Convention(("rax", "rdx", "rcx"), "rax", "rsp", 4),
}
