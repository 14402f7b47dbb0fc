"""Register names in definitions of events: ``regs_query_register_offset()`` of each CPU.

Tables: ``regoffset_table`` in ``arch/*/kernel/ptrace.c`` (powerpc: ``kernel/ptrace/ptrace.c``);
s390 has names only for its sixteen general registers.
"""

from __future__ import annotations

import functools

from usdt.arch.pt_regs import PT_REGS
from usdt.base.frozen import frozen
from usdt.base.machine import BIG_ENDIAN, word_size

__all__ = ("RegisterPart", "register_part_at")

#: Machine → hardware's name → kernel's name, if they differ; "": the kernel has none.
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
_POINTERS = ("rip", "pc", "pswa", "nip", "epc", "era")  # instruction pointers


@frozen
class RegisterPart:
    """A part of a saved register.

    Attributes:
        name: the kernel's name of the register; "": it has none.
        shift: bits of the register below the part.
        width: bits of the register.
        pointer: whether it is the instruction pointer.
    """

    name: str
    shift: int
    width: int
    pointer: bool


@functools.cache
def register_part_at(kernel: str, offset: int, size: int) -> RegisterPart | None:
    """Return the register with ``size`` bytes at an offset of ``struct pt_regs``, or None."""
    word = word_size(kernel)
    for name, start in PT_REGS.get(kernel, {}).items():
        if start <= offset and offset + size <= start + word:
            below = start + word - offset - size if kernel in BIG_ENDIAN else offset - start
            own = _NAMES.get(kernel, {}).get(name, name)
            return RegisterPart(own, 8 * below, 8 * word, pointer=name in _POINTERS)
    return None
