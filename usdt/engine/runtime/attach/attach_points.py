"""Attach points: sites of files, and targets in the kernel.

    EventTarget          a trace event; its record is the program's context. Each needs a perf
                         event; the kernel closes them one at a time, tens of milliseconds each.
    RawTracepointTarget  the arguments of the same tracepoint without a record: attaches and
                         detaches fast.
    SyscallTarget        the raw tracepoints sys_enter and sys_exit, which every system call passes.
                         One program and one link serve any set of calls, distinguished by number.
    CounterTarget        a perf counter: a timer, or counted events of the kernel or the CPU.
    FunctionTarget       a function's entry or return, or an instruction in it.

:mod:`usdt.engine.runtime.attach.kernel_events` attaches to events and system calls,
:mod:`usdt.engine.runtime.attach.kernel_functions` to functions.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from usdt.arch.context_registers import ContextRegisters
from usdt.base.errors import NotSupported
from usdt.base.frozen import frozen
from usdt.base.machine import KERNEL_MACHINE

if TYPE_CHECKING:
    from usdt.bpf.kprobes import KprobeMethod
    from usdt.bpf.perf.breakpoints import Breakpoint
    from usdt.bpf.perf.counters import Counter
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.entry_return import EntryReturnMatch
    from usdt.engine.compiler.scope import TypeProvider

__all__ = (
    "TS_COMPAT",
    "AttachPoint",
    "CounterTarget",
    "EventTarget",
    "FunctionTarget",
    "KernelTarget",
    "RawTracepointTarget",
    "SyscallRegisters",
    "SyscallTarget",
    "compat_status",
    "syscall_registers",
)


@frozen
class EventTarget:
    """A trace event of the kernel.

    Attributes:
        name: name for error messages, such as ``sched:sched_switch``.
        number: its ID.
        size: bytes of its record up to the end of its last field. The kernel rejects a program that
            reads beyond (trace_event_get_offsets()).
    """

    name: str
    number: int
    size: int


@frozen
class RawTracepointTarget:
    """A raw tracepoint, by name; ``fallback`` is the trace event used if it cannot be attached."""

    name: str
    fallback: EventTarget | None = None


@frozen
class SyscallTarget:
    """A system call by number, at its entry or its return.

    If the attach point has a ``call``, the entry is traced as well.
    """

    number: int
    returns: bool = False


@frozen
class FunctionTarget:
    """A function of the kernel, and its attach method.

    Attributes:
        name: ``[MODULE:]FUNCTION[+OFFSET]``, for error messages.
        symbol: its name in the kernel's symbol table.
        address: address of the instruction; 0 if unknown.
        offset: offset of the instruction in the function, in bytes.
        method: the attach method.
        module: the kernel module; "" for the kernel itself.
        btf_id: type ID of the function in the BTF of the module or kernel; 0 if there is none.
    """

    name: str
    symbol: str
    address: int
    offset: int
    method: KprobeMethod
    module: str = ""
    btf_id: int = 0


@frozen
class CounterTarget:
    """A perf counter.

    Attributes:
        name: for error messages.
        counter: what it counts, and how often it fires.
        any_task: whether it fires whatever task runs, also if only some processes are traced.
    """

    name: str
    counter: Counter
    any_task: bool = False


@frozen
class BreakpointTarget:
    """Memory that is watched, in the kernel or in the traced processes.

    Attributes:
        name: for error messages.
        breakpoint: the memory, and the accesses that count.
    """

    name: str
    breakpoint: Breakpoint


KernelTarget = (
    EventTarget
    | RawTracepointTarget
    | SyscallTarget
    | CounterTarget
    | BreakpointTarget
    | FunctionTarget
)


@frozen
class AttachPoint:
    """A location to attach to: a site in a file, or a target in the kernel.

    Attributes:
        probe: name to show, ``provider:name``.
        path: the file, as shown to users.
        open_path: the path that the kernel opens.
        offset: offset of the instruction in the file.
        ref_ctr_offset: offset of the semaphore in the file; 0 if there is none.
        arguments: the arguments, as this site passes them.
        pid: the one process to attach in; 0 means every process that maps the file.
        function: the value of ``func``; by default the probe's name.
        call: for a function's first instruction: how its return is matched to the entry.
        kernel_target: the target in the kernel, instead of a file.
        types: the source of the types of its arguments, if there is one.
        both_ends: for a function and a probe without items: whether the entry, with structures in
            short, and the return are shown.
        registers: the registers of a program's context.
        nop10: whether the nop at ``offset`` is followed by the long nop that kernels optimize.
    """

    probe: str
    path: str
    open_path: str
    offset: int
    ref_ctr_offset: int
    arguments: tuple[Argument, ...]
    pid: int = 0
    function: str = ""
    call: EntryReturnMatch | None = None
    kernel_target: KernelTarget | None = None
    types: TypeProvider | None = None
    both_ends: bool = False
    registers: ContextRegisters = ContextRegisters()
    nop10: bool = False

    @property
    def fastest_offset(self) -> int:
        """The offset of the instruction where a probe costs least: that of the long nop or nop."""
        if not self.nop10:
            return self.offset
        from usdt.bpf.optimized_nops import optimizes_nop10  # noqa: PLC0415 - rare

        return self.offset + int(optimizes_nop10())


@frozen
class SyscallRegisters:
    """The offsets of a system call's number and arguments in the kernel's ``struct pt_regs``.

    Attributes:
        number: offset of the call's number, which is still valid when the call returns.
        width: bytes of the number.
        arguments: offsets of the six arguments; the return value overwrites none of them.
        mode: offset of a value that identifies calls of 32-bit programs; -1 if there are none.
        mask, wide: the value under ``mask`` equals ``wide`` in a call of a 64-bit program.
        replaced: the number at the return of execve(), once the process runs another program; -1
            if the number stays.
    """

    number: int
    width: int
    arguments: tuple[int, ...]
    mode: int = -1
    mask: int = 0
    wide: int = 0
    replaced: int = -1


# arch/*/include/asm/ptrace.h and syscall.h, of kernels whose own pt_regs start with those of the
# ABI.
_REGISTERS = {
    # orig_rax; rdi rsi rdx r10 r8 r9; cs is 0x33 (__USER_CS) for 64-bit code
    "x86_64": SyscallRegisters(120, 8, (112, 104, 96, 56, 72, 64), 136, 0xFFFF, 0x33),
    # syscallno; orig_x0 x1…x5; pstate, PSR_MODE32_BIT
    "aarch64": SyscallRegisters(280, 4, (272, 8, 16, 24, 32, 40), 264, 0x10, 0),
    # a7; orig_a0 a1…a5
    "riscv64": SyscallRegisters(136, 8, (280, 88, 96, 104, 112, 120)),
    # r11; orig_a0 r5…r9
    "loongarch64": SyscallRegisters(88, 8, (256, 40, 48, 56, 64, 72)),
    # the low half of int_code; orig_gpr2 gprs[3]…; the upper word of the PSW's mask, PSW_MASK_EA
    "s390x": SyscallRegisters(162, 2, (152, 48, 56, 64, 72, 80), 4, 1, 1),
    # gpr[0]; orig_gpr3 gpr[4]…
    "ppc64": SyscallRegisters(0, 8, (272, 32, 40, 48, 56, 64)),
    "ppc64le": SyscallRegisters(0, 8, (272, 32, 40, 48, 56, 64)),
    # orig_ax; bx cx dx si di bp
    "i386": SyscallRegisters(44, 4, (0, 4, 8, 12, 16, 20)),
    # r7; orig_r0 r1…r5; start_thread() in asm/processor.h makes all registers 0
    "arm": SyscallRegisters(28, 4, (68, 4, 8, 12, 16, 20), replaced=0),
}


#: Flag of a system call by a 32-bit number, arch/x86/include/asm/thread_info.h.
TS_COMPAT = 2


@functools.cache
def compat_status() -> int:
    """Return the offset of ``thread_info.status`` in a task of x86-64; -1 if unknown.

    A 64-bit program can make 32-bit calls (``int $0x80``), which no register identifies.
    """
    if KERNEL_MACHINE != "x86_64":
        return -1
    from usdt.btf.format import Kind  # noqa: PLC0415
    from usdt.btf.reader import Btf  # noqa: PLC0415 - only for system calls
    from usdt.btf.types import Composite  # noqa: PLC0415

    with contextlib.suppress(NotSupported):
        btf = Btf.from_kernel()
        for number in btf.find("thread_info", Kind.STRUCT):  # task_struct starts with it
            found = btf.type(number)
            for member in found.members if isinstance(found, Composite) else ():
                if member.name == "status":
                    return member.bit_offset // 8
    return -1


def syscall_registers() -> SyscallRegisters:
    """Return where this kernel keeps the number and arguments of a system call.

    Raises:
        NotSupported: unknown for this CPU.
    """
    found = _REGISTERS.get(KERNEL_MACHINE)
    if found is None:
        raise NotSupported(f"tracing system calls by number on {KERNEL_MACHINE}", None)
    return found
