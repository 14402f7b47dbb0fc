"""The long nops of x86-64 that kernels turn into a call when a uprobe is on them.

``<usdt.h>`` of libbpf's project puts one of them behind the nop of a USDT probe. A probe on the
long nop is *optimized*: from its second hit on, the nop is a call of a trampoline and a system call
instead of a breakpoint. Linux 6.18 optimizes the nop of 5 bytes (commit
ba2bfc97b462). Its call writes below the stack pointer, where a function that calls no other may
keep its variables: the red zone. Linux 7.2 optimizes the nop of 10 bytes instead (commit
554ba38456da), which has room for an instruction that moves the stack pointer below the red zone.
Older kernels refuse probes on that nop, because of its segment prefix.
"""

from __future__ import annotations

__all__ = ("NOP5", "NOP10", "NOP_NOP10")

NOP5 = bytes.fromhex("0f1f440000")
NOP10 = bytes.fromhex("662e0f1f840000000000")
NOP_NOP10 = b"\x90" + NOP10
