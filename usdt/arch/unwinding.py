"""What unwinding of stacks needs to know of a CPU: registers, frame pointers, trampolines.

Register numbers are those of the psABI of x86-64 (figure 3.36) and of "DWARF for the Arm 64-bit
Architecture" (section 4.1).
"""

from __future__ import annotations

from usdt.arch.pt_regs import PT_REGS
from usdt.base.frozen import frozen

__all__ = ("CPUS", "STACK_POINTERS", "STACK_UNIT", "Cpu")

#: CPU of the kernel → offset of the stack pointer in ``struct pt_regs``, where stacks are copied.
STACK_POINTERS = {"x86_64": PT_REGS["x86_64"]["rsp"], "aarch64": PT_REGS["aarch64"]["sp"]}
STACK_UNIT = 4096  # bytes: the copy of a stack begins at a multiple of it, at or below its top


@frozen
class Cpu:
    """What unwinding needs to know of a CPU.

    Attributes:
        word: bytes of an address.
        registers: DWARF number → name in ``struct pt_regs``.
        pc: name of the program counter in ``struct pt_regs``.
        sp, frame_pointer: DWARF numbers.
        pc_number: DWARF number of the program counter, which expressions use; None: they do not.
        link: DWARF number of the register with the return address at a function's entry; None: it
            is on the stack.
        preserved: the registers that a function preserves for its caller.
        trampoline: the instructions of a signal trampoline without unwind table; b"" if unknown.
        context: offset from the stack pointer in the trampoline to the saved registers.
        saved: DWARF number → offset in the saved registers; the program counter is at ``saved_pc``.
        saved_pc: the offset of the interrupted instruction's address there.
        code_mask: the bits of an address of code; others are a signature (pointer authentication).
        narrow: the word of ``struct pt_regs``, its bits and their value in 32-bit programs; None:
            the CPU's kernels run none, or it is one.
    """

    word: int
    registers: dict[int, str]
    pc: str
    sp: int
    pc_number: int | None
    frame_pointer: int
    link: int | None
    preserved: frozenset[int]
    trampoline: bytes
    context: int
    saved: dict[int, int]
    saved_pc: int
    code_mask: int
    narrow: tuple[str, int, int] | None = None


_X86_64 = [
    *("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"),
    *(f"r{number}" for number in range(8, 16)),
]
# struct sigcontext_64, <asm/sigcontext.h>; the instruction pointer follows.
_SIGCONTEXT = [
    *(f"r{number}" for number in range(8, 16)),
    *("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp"),
]

#: CPU as ``uname -m`` names it → its data. Unwind tables of i386 are not read: frame pointers are.
CPUS: dict[str, Cpu] = {
    "x86_64": Cpu(
        word=8,
        registers=dict(enumerate(_X86_64)),
        pc="rip",
        sp=7,
        pc_number=16,
        frame_pointer=6,
        link=None,
        preserved=frozenset({3, 6, 12, 13, 14, 15}),
        trampoline=bytes.fromhex("48c7c00f0000000f05"),  # mov $15 (rt_sigreturn), %rax; syscall
        context=40,  # ucontext.uc_mcontext; the stack pointer is at the ucontext
        saved={_X86_64.index(name): 8 * index for index, name in enumerate(_SIGCONTEXT)},
        saved_pc=8 * len(_SIGCONTEXT),
        code_mask=(1 << 64) - 1,
        narrow=("cs", 0xFFFF, 0x23),  # __USER32_CS, <asm/segment.h>
    ),
    "i386": Cpu(
        word=4,
        registers={4: "rsp", 5: "rbp"},
        pc="rip",
        sp=4,
        pc_number=None,
        frame_pointer=5,
        link=None,
        preserved=frozenset(),
        trampoline=b"",
        context=0,
        saved={},
        saved_pc=0,
        code_mask=(1 << 32) - 1,
    ),
    "aarch64": Cpu(
        word=8,
        registers={**{number: f"x{number}" for number in range(31)}, 31: "sp"},
        pc="pc",
        sp=31,
        pc_number=None,
        frame_pointer=29,
        link=30,
        preserved=frozenset({*range(19, 30)}),
        trampoline=bytes.fromhex("681180d2010000d4"),  # mov x8, #139 (rt_sigreturn); svc #0
        context=128 + 176 + 8,  # siginfo, then ucontext.uc_mcontext.regs after fault_address
        saved={number: 8 * number for number in range(32)},
        saved_pc=8 * 32,
        code_mask=(1 << 48) - 1,
        narrow=("pstate", 0x10, 0x10),  # PSR_MODE32_BIT, <asm/ptrace.h>
    ),
}
