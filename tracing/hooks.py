"""The kernel's own places that programs are attached to: events, raw tracepoints, system calls.

    EventHook     a tracepoint as tracefs has it: the context is its record. One perf event each,
                  and the kernel closes them one after the other, tens of milliseconds each.
    RawHook       the same tracepoint's arguments, without a record: quick to attach and to leave.
    SyscallHook   the raw tracepoints sys_enter and sys_exit, which every system call passes: one
                  program and one link for any number of them, chosen by the call's number.

:mod:`tracing.hooking` attaches to them.
"""

from __future__ import annotations

from bpf.errors import NotSupported
from bpf.frozen import frozen
from bpf.host import KERNEL

__all__ = (
    "EventHook",
    "Hook",
    "RawHook",
    "SyscallHook",
    "SyscallRegisters",
    "syscall_registers",
)


@frozen
class EventHook:
    """An event of the kernel.

    Attributes:
        name: ``sched:sched_switch``, for messages.
        number: its ID.
        size: bytes of its record up to the end of its last field; no program that reads beyond
            may be attached (trace_event_get_offsets()).
    """

    name: str
    number: int
    size: int


@frozen
class RawHook:
    """A raw tracepoint, by name; ``fallback``: the event that stands for it where it is none."""

    name: str
    fallback: EventHook | None = None


@frozen
class SyscallHook:
    """A system call by number, at its begin or when it returns."""

    number: int
    returns: bool = False


Hook = EventHook | RawHook | SyscallHook


@frozen
class SyscallRegisters:
    """Where ``struct pt_regs`` of the kernel has what a system call was given.

    Attributes:
        number: offset of the call's number, as it still is when the call returns.
        width: bytes of it.
        arguments: offsets of the six; what is returned overwrites none of them.
        mode: offset of a word that tells a 32-bit program's call, -1: there are none.
        mask, wide: the word under the mask is this in a call of a 64-bit program.
    """

    number: int
    width: int
    arguments: tuple[int, ...]
    mode: int = -1
    mask: int = 0
    wide: int = 0


# arch/*/include/asm/ptrace.h and syscall.h, of kernels whose own pt_regs begin as the ABI's do.
_REGISTERS = {
    # orig_rax; rdi rsi rdx r10 r8 r9; cs is 0x33 (__USER_CS) for 64-bit code
    "x86_64": SyscallRegisters(120, 8, (112, 104, 96, 56, 72, 64), 136, 0xFFFF, 0x33),
    # syscallno; orig_x0 x1…x5; pstate, PSR_MODE32_BIT
    "aarch64": SyscallRegisters(280, 4, (272, 8, 16, 24, 32, 40), 264, 0x10, 0),
    # a7; orig_a0 a1…a5
    "riscv64": SyscallRegisters(136, 8, (280, 88, 96, 104, 112, 120)),
    # r11; orig_a0 r5…r9
    "loongarch64": SyscallRegisters(88, 8, (256, 40, 48, 56, 64, 72)),
}


def syscall_registers() -> SyscallRegisters:
    """Where this kernel keeps the arguments of a system call.

    Raises:
        NotSupported: it is not known of this CPU.
    """
    found = _REGISTERS.get(KERNEL)
    if found is None:
        raise NotSupported(f"tracing system calls by number on {KERNEL}", None)
    return found
