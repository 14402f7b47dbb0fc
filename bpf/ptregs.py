"""Where the kernel saves each register: ``struct pt_regs`` as tracing programs see it.

The layout is kernel ABI (``arch/*/include/uapi/asm/ptrace.h``); names are the hardware's own.
Both fronts read registers by these offsets, so they live below both.
"""

from __future__ import annotations

__all__ = ("PT_REGS_X86_64",)

# x86-64 struct pt_regs, <asm/ptrace.h>: 21 unsigned longs. A 32-bit process on a 64-bit kernel
# is saved in the same structure; the upper halves of its registers are not defined.
_X86_64 = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8"),
    *("rax", "rcx", "rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss"),
)
PT_REGS_X86_64: dict[str, int] = {name: 8 * position for position, name in enumerate(_X86_64)}
