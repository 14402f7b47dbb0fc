"""Whether this machine's kernel can probe code that was built for some machine."""

from __future__ import annotations

from usdt.base.machine import KERNEL_MACHINE

__all__ = ("foreign_machine_reason",)

# Each 64-bit machine, and the 32-bit one whose programs its kernel runs and traces.
_COMPATIBLE = {
    "mips64": "mips",
    "mips64el": "mipsel",
    "ppc64": "ppc",
    "ppc64le": "ppcle",
    "riscv64": "riscv32",
    "s390x": "s390",
    "x86_64": "i386",
}
# Programs that the kernel runs but cannot trace (arch_uprobe_analyze_insn() in
# arch/arm64/kernel/probes/uprobes.c).
_NOT_TRACED = {("aarch64", "arm"), ("aarch64_be", "armeb")}


def foreign_machine_reason(machine: str) -> str | None:
    """Return why this machine never executes code for ``machine`` natively; None if it does.

    An emulator may map a file of another machine. A breakpoint in that file would corrupt the
    emulated program, so such files must be refused.
    """
    if machine in (KERNEL_MACHINE, _COMPATIBLE.get(KERNEL_MACHINE)):
        return None
    if (KERNEL_MACHINE, machine) in _NOT_TRACED:
        return "a 32-bit ARM program: Linux on arm64 runs it but has no uprobes for it"
    return f"a program for {machine} does not run on this machine ({KERNEL_MACHINE})"
