"""Registers as definitions name them: ``regs_query_register_offset()`` of each CPU.

Tables: ``regoffset_table`` in ``arch/*/kernel/ptrace.c`` (powerpc: ``kernel/ptrace/ptrace.c``);
s390 names its sixteen general registers and no more.
"""

from __future__ import annotations

import functools

from usdt.arch.pt_regs import PT_REGS
from usdt.base.frozen import frozen
from usdt.base.machine import BIG_ENDIAN, word_size

__all__ = ("RegisterPart", "register_part_at")

#: Kernel's machine → the hardware's own name → the kernel's, where they differ; "": it has none.
_X86 = {f"r{name}": name for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip")}
_X86 |= {"orig_rax": "orig_ax", "eflags": "flags"}
_POWER = {f"r{number}": f"gpr{number}" for number in range(32)} | {"orig_r3": ""}
_MIPS = {f"${number}": f"r{number}" for number in range(32)}
_MIPS |= {"status": "c0_status", "badvaddr": "c0_badvaddr", "cause": "c0_cause", "epc": "c0_epc"}
_LOONGARCH = {"era": "csr_era", "badv": ""}  # csr_badvaddr, which some versions call csr_badv
_NAMES: dict[str, dict[str, str]] = {
    "x86_64": _X86,
    "i386": _X86,
    "aarch64": {"x30": "lr"},
    "aarch64_be": {"x30": "lr"},
    "arm": {"r11": "fp", "r12": "ip", "orig_r0": "ORIG_r0"},
    "armeb": {"r11": "fp", "r12": "ip", "orig_r0": "ORIG_r0"},
    "s390x": {"args": "", "pswm": "", "pswa": ""},
    **dict.fromkeys(("ppc", "ppcle", "ppc64", "ppc64le"), _POWER),
    "riscv32": {"pc": "epc"},
    "riscv64": {"pc": "epc"},
    **dict.fromkeys(("mips", "mipsel", "mips64", "mips64el"), _MIPS),
    **dict.fromkeys(("loongarch32", "loongarch64"), _LOONGARCH),
}
_POINTERS = ("rip", "pc", "pswa", "nip", "epc", "era")  # who points at the instruction


@frozen
class RegisterPart:
    """Bytes of a saved register.

    Attributes:
        name: the register, as the kernel has it; "": it has no name for it.
        shift: bits of it below them.
        width: bits of it.
        pointer: whether it points at the instruction.
    """

    name: str
    shift: int
    width: int
    pointer: bool


@functools.cache
def register_part_at(kernel: str, offset: int, size: int) -> RegisterPart | None:
    """The register that has ``size`` bytes at an offset of ``struct pt_regs``, or None."""
    word = word_size(kernel)
    for name, start in PT_REGS.get(kernel, {}).items():
        if start <= offset and offset + size <= start + word:
            below = start + word - offset - size if kernel in BIG_ENDIAN else offset - start
            own = _NAMES.get(kernel, {}).get(name, name)
            return RegisterPart(own, 8 * below, 8 * word, pointer=name in _POINTERS)
    return None
