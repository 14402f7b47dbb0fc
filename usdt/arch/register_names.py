"""Names of registers: those of the hardware and of assemblers, and those of the kernel.

The kernel's names are those of ``regs_query_register_offset()``, which definitions of events use:
``regoffset_table`` in ``arch/*/kernel/ptrace.c`` (powerpc: ``kernel/ptrace/ptrace.c``); s390 has
names only for its sixteen general registers.
"""

from __future__ import annotations

import functools

from usdt.arch.pt_regs import saved_registers

__all__ = ("KERNEL_NAMES", "register_offsets")

_X86 = {f"r{name}": name for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip")}
_X86 |= {"orig_rax": "orig_ax", "eflags": "flags"}
_POWER = {f"r{number}": f"gpr{number}" for number in range(32)} | {"orig_r3": ""}
_MIPS = {f"${number}": f"r{number}" for number in range(32)}
_MIPS |= {"status": "c0_status", "badvaddr": "c0_badvaddr", "cause": "c0_cause", "epc": "c0_epc"}
_LOONGARCH = {"era": "csr_era", "badv": ""}  # csr_badvaddr, which some versions call csr_badv

#: Machine → hardware's name → kernel's name, if they differ; "": the kernel has none.
KERNEL_NAMES: dict[str, dict[str, str]] = {
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


@functools.cache
def register_offsets(machine: str) -> dict[str, int]:
    """Return the byte offsets in ``struct pt_regs`` of a CPU's registers, by all their names.

    These are the names of assemblers (``rax``, ``eax`` on i386) and those of the kernel (``ax``).
    The result is empty for an unknown CPU.
    """
    saved = saved_registers(machine)
    if machine == "i386":  # which has the names of x86-64 there, but not all of its registers
        saved = {name: at for name, at in saved.items() if not name[1:].isdecimal()}
    names = {_in_assembler(name, machine): offset for name, offset in saved.items()}
    kernels = KERNEL_NAMES.get(machine, {})
    for name, offset in saved.items():
        names.setdefault(kernels.get(name) or _in_assembler(name, machine), offset)
    return names


def _in_assembler(name: str, machine: str) -> str:
    if machine == "i386" and name == "orig_rax":
        return "orig_eax"
    return f"e{name[1:]}" if machine == "i386" and name.startswith("r") else name
