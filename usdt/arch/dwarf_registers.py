"""Numbers of registers in debug information → their names in ``struct pt_regs``.

Sources: the processor supplements of the System V ABI for x86-64 (figure 3.36), i386 (table 2.14),
s390x, Power and RISC-V, and Arm's documents about DWARF for its architectures (section 4.1).
"""

from __future__ import annotations

import functools

from usdt.arch.unwinding import CPUS

__all__ = ("register_name", "unsaved_name")

_ARM = [*(f"r{number}" for number in range(13)), "sp", "lr", "pc"]
_RISCV = [
    *("", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *(f"a{number}" for number in range(8)),
    *(f"s{number}" for number in range(2, 12)),
    *("t3", "t4", "t5", "t6"),
]
_R16 = [f"r{number}" for number in range(16)]
_R32 = [f"r{number}" for number in range(32)]
_DOLLAR = [f"${number}" for number in range(32)]

_NAMES = {
    "x86_64": [*CPUS["x86_64"].registers.values(), "rip"],
    "i386": ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "rip"],
    "aarch64": [*CPUS["aarch64"].registers.values()],
    "aarch64_be": [*CPUS["aarch64"].registers.values()],
    **dict.fromkeys(("arm", "armeb"), _ARM),
    **dict.fromkeys(("s390", "s390x"), _R16),
    **dict.fromkeys(("ppc", "ppcle", "ppc64", "ppc64le"), _R32),
    **dict.fromkeys(("riscv32", "riscv64"), _RISCV),
    **dict.fromkeys(("mips", "mipsel", "mips64", "mips64el"), _DOLLAR),
    **dict.fromkeys(("loongarch32", "loongarch64"), _R32),
}

#: Machine → (first number, last number, name of the first) of registers that no probe has.
_UNSAVED = {
    "x86_64": ((17, 32, "xmm"), (33, 40, "st")),
    "i386": ((11, 18, "st"), (21, 28, "xmm")),
    "aarch64": ((64, 95, "v"),),
    "aarch64_be": ((64, 95, "v"),),
    **dict.fromkeys(("arm", "armeb"), ((64, 95, "s"), (256, 287, "d"))),
    **dict.fromkeys(("riscv32", "riscv64"), ((32, 63, "f"),)),
    **dict.fromkeys(("ppc64", "ppc64le"), ((32, 63, "f"), (77, 108, "vr"))),
    **dict.fromkeys(("s390", "s390x"), ((16, 31, "f"),)),
}


@functools.cache
def register_name(machine: str, number: int) -> str:
    """Return the name in ``struct pt_regs`` of a register; "" if probes do not have it."""
    names = _NAMES.get(machine, [])
    return names[number] if 0 <= number < len(names) else ""


def unsaved_name(machine: str, number: int) -> str:
    """Return the name of a register that probes do not have, as far as it is known."""
    for first, last, prefix in _UNSAVED.get(machine, ()):
        if first <= number <= last:
            return f"register {prefix}{number - first}"
    return f"register {number} of the debug information"
