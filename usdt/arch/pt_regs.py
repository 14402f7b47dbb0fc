"""Where the kernel saves each register: ``struct pt_regs`` as tracing programs see it.

The context of a program on a uprobe or kprobe is ``bpf_user_pt_regs_t``
(``arch/*/include/uapi/asm/bpf_perf_event.h``). This is ``struct pt_regs``, or, on CPUs that do not
export it, ``struct user_pt_regs`` or a similar structure. The layout is kernel ABI
(``arch/*/include/uapi/asm/ptrace.h`` unless another header is named). Register names are those of
the hardware.
"""

from __future__ import annotations

from usdt.base.machine import BIG_ENDIAN, KERNEL_MACHINE, word_size

__all__ = (
    "INSTRUCTION_POINTERS",
    "PT_REGS",
    "PT_REGS_X86_64",
    "instruction_pointer",
    "pt_regs_size",
    "saved_registers",
)

#: Names of the instruction pointer; a CPU has one of them.
INSTRUCTION_POINTERS = ("rip", "pc", "pswa", "nip", "epc", "era")


def _slots(names: str, word: int, start: int = 0) -> dict[str, int]:
    return {name: start + word * index for index, name in enumerate(names.split())}


def _numbered(prefix: str, count: int) -> str:
    return " ".join(f"{prefix}{number}" for number in range(count))


# x86-64, <asm/ptrace.h>: 21 unsigned longs. A 32-bit process on a 64-bit kernel is saved in the
# same structure; the upper halves of its registers are undefined.
PT_REGS_X86_64: dict[str, int] = _slots(
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss", 8
)
# i386: named as on x86-64, because one module parses the operands of both.
_I386 = _slots("rbx rcx rdx rsi rdi rbp rax ds es fs gs orig_rax rip cs eflags rsp ss", 4)
# arm64, struct user_pt_regs.
_AARCH64 = _slots(f"{_numbered('x', 31)} sp pc pstate", 8)
# arm, struct pt_regs: uregs[18].
_ARM = _slots(f"{_numbered('r', 13)} sp lr pc cpsr orig_r0", 4)
# s390x, user_pt_regs: args[1], psw_t psw (mask, addr), gprs[16].
_S390X = _slots(f"args pswm pswa {_numbered('r', 16)}", 8)


def _powerpc(word: int) -> dict[str, int]:
    # struct user_pt_regs (64-bit), struct pt_regs (32-bit): they differ in the word size.
    return _slots(f"{_numbered('r', 32)} nip msr orig_r3 ctr link xer ccr", word)


def _riscv(word: int) -> dict[str, int]:
    # struct user_regs_struct.
    saved = "pc ra sp gp tp t0 t1 t2 s0 s1 a0 a1 a2 a3 a4 a5 a6 a7"
    return _slots(f"{saved} s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 t3 t4 t5 t6", word)


def _mips(word: int) -> dict[str, int]:
    # struct pt_regs, arch/mips/include/asm/ptrace.h (the kernel's own structure is the
    # context here). On 32-bit kernels it begins with eight words of argument space.
    start = 8 * word if word == 4 else 0
    return _slots(f"{_numbered('$', 32)} status hi lo badvaddr cause epc", word, start)


# loongarch, struct user_pt_regs.
_LOONGARCH64 = _slots(f"{_numbered('r', 32)} orig_a0 era badv", 8)
_LOONGARCH32 = _slots(f"{_numbered('r', 32)} orig_a0 era badv", 4)

#: Machine of the kernel -> register -> byte offset of its slot, which is one machine word wide.
PT_REGS: dict[str, dict[str, int]] = {
    "x86_64": PT_REGS_X86_64,
    "i386": _I386,
    "aarch64": _AARCH64,
    "aarch64_be": _AARCH64,
    "arm": _ARM,
    "armeb": _ARM,
    "s390x": _S390X,
    "ppc": _powerpc(4),
    "ppcle": _powerpc(4),
    "ppc64": _powerpc(8),
    "ppc64le": _powerpc(8),
    "riscv32": _riscv(4),
    "riscv64": _riscv(8),
    "mips": _mips(4),
    "mipsel": _mips(4),
    "mips64": _mips(8),
    "mips64el": _mips(8),
    "loongarch32": _LOONGARCH32,
    "loongarch64": _LOONGARCH64,
}

# Slots in which a 64-bit kernel saves the registers of 32-bit processes, if their names differ.
# arm64: Documentation/arch/arm64, "AArch32 registers": r13 and r14 of user mode are x13 and x14.
_ARM_ON_ARM64 = {f"r{n}": f"x{n}" for n in range(13)} | {"sp": "x13", "lr": "x14", "pc": "pc"}
_SAME: dict[str, str] = {}

# (process, kernel) -> slot names. Other 32-bit processes run only on kernels of the same machine.
_ON_64_BIT = {
    ("i386", "x86_64"): _SAME,
    ("arm", "aarch64"): _ARM_ON_ARM64,
    ("armeb", "aarch64_be"): _ARM_ON_ARM64,
    ("s390", "s390x"): _SAME,
    ("ppc", "ppc64"): _SAME,
    ("ppcle", "ppc64le"): _SAME,
    ("mips", "mips64"): _SAME,
    ("mipsel", "mips64el"): _SAME,
    ("riscv32", "riscv64"): _SAME,
}


def pt_regs_size(machine: str) -> int:
    """Return the bytes of a 64-bit kernel's ``struct pt_regs``, as far as :data:`PT_REGS` goes."""
    return 8 + max(PT_REGS[machine].values())


def saved_registers(machine: str, kernel: str = KERNEL_MACHINE) -> dict[str, int]:
    """Return the byte offsets in ``struct pt_regs`` of a process's registers, by name.

    A register is as wide as the process's word. In the wider slot of a 64-bit kernel it is the
    lower half, which lies at the end of the slot on big-endian CPUs.

    Args:
        machine: the process's CPU. The result is empty for an unknown one.
        kernel: the kernel's CPU. If it cannot run such processes, the result is that of a kernel
            that can, so that files of any machine can be inspected.
    """
    names = _ON_64_BIT.get((machine, kernel))
    if names is None:
        native = machine if machine in PT_REGS else _WIDER.get(machine, machine)
        if native == machine:
            return PT_REGS.get(machine, {})
        kernel, names = native, _ON_64_BIT[machine, native]
    shift = word_size(kernel) - word_size(machine) if kernel in BIG_ENDIAN else 0
    slots = PT_REGS[kernel]
    if names:
        return {name: slots[slot] + shift for name, slot in names.items()}
    return {name: offset + shift for name, offset in slots.items()}


def instruction_pointer(machine: str, kernel: str = KERNEL_MACHINE) -> int | None:
    """Return the offset of a process's instruction pointer; None for an unknown CPU.

    The arguments are those of :func:`saved_registers`.
    """
    saved = saved_registers(machine, kernel)
    return next((saved[name] for name in INSTRUCTION_POINTERS if name in saved), None)


# Machines that only 64-bit kernels support.
_WIDER = {"s390": "s390x"}
