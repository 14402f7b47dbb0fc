"""Code that reads the task that hit a probe."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.arch.locations import CurrentTask
from usdt.base.frozen import frozen
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R9, Alu
from usdt.bpf.features import have_loops, links_filter_processes, takes_loads_from_task
from usdt.btf.kernel_offsets import member_offsets
from usdt.engine.compiler.ir import ArgumentValue, Arithmetic, LValue, Number, PointerExpr

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.compiler.ir import Node

__all__ = (
    "TaskOffsets",
    "emit_comm",
    "emit_ids",
    "emit_member",
    "emit_task",
    "member_offset",
    "task_offsets",
)

_SIZE = 16  # TASK_COMM_LEN, with the NUL


@frozen
class TaskOffsets:
    """Offsets in struct task_struct: of the name, and of the IDs of the thread and the process."""

    comm: int
    pid: int
    tgid: int


def emit_comm(asm: Assembler, base: Reg, offset: int) -> None:
    """Emit code that stores the name of the current task, padded with NULs.

    Two loads take a tenth of the time of bpf_get_current_comm().

    Args:
        asm: the assembler.
        base: with ``offset``, where to store 16 bytes; r6 to r10.
        offset: a multiple of eight.
    """
    offsets = task_offsets()
    if offsets is None:
        for part in range(0, _SIZE, 8):  # kernels such as 6.1 put nothing behind the NUL
            asm.store(base, offset + part, 0)
        asm.mov(R1, base)
        asm.add(R1, offset)
        asm.mov(R2, _SIZE)
        asm.call(Helper.GET_CURRENT_COMM)
        return
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    _copy_comm(asm, base, offset, offsets)


def emit_task(asm: Assembler, base: Reg, offset: int) -> None:
    """Emit code that stores the IDs of the current thread and process, and what emit_comm() does.

    pid_tgid in r9 is not used where the IDs are in the task that has the name: if nothing else
    needs it, the program is spared a helper call.

    Args:
        asm: the assembler.
        base: with ``offset``, where to store the IDs, four bytes each; r6 to r8.
        offset: a multiple of eight; the name is stored 16 bytes behind.
    """
    offsets = task_offsets()
    if offsets is None or not asm.is_optional(R9):  # r9 has the IDs of a PID namespace
        emit_ids(asm, base, offset)
        emit_comm(asm, base, offset + _SIZE)
        return
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    for part, member in enumerate((offsets.pid, offsets.tgid)):
        asm.load(R1, R0, member, 4)
        asm.store(base, offset + 4 * part, R1, 4)
    _copy_comm(asm, base, offset + _SIZE, offsets)


def emit_ids(asm: Assembler, base: Reg, offset: int) -> None:
    """Emit code that stores pid_tgid in r9 as :func:`emit_task` stores the IDs."""
    asm.store(base, offset, R9, 4)
    asm.mov(R1, R9)
    asm.alu(Alu.RSH, R1, 32)
    asm.store(base, offset + 4, R1, 4)


def _copy_comm(asm: Assembler, base: Reg, offset: int, offsets: TaskOffsets) -> None:
    # The task is in r0.
    for part in range(0, _SIZE, 8):
        asm.load(R1, R0, offsets.comm + part)
        asm.store(base, offset + part, R1)


def member_offset(address: Node, size: int) -> int | None:
    """Return the offset in struct task_struct of a number that programs can load from there.

    Args:
        address: where the number is.
        size: of it, in bytes.

    Returns:
        None if the address is not in the current task, or if this kernel wants it read.
    """
    offset, found = 0, address
    while not isinstance(found, ArgumentValue):
        match found:
            case PointerExpr(address=inner) | LValue(address=inner):
                found = inner
            case Arithmetic(op="+", left=left, right=Number(value=value)):
                offset, found = offset + value, left
            case _:
                return None
    if not isinstance(found.fetch, CurrentTask):
        return None
    fits = 0 <= offset < 1 << 15  # of an instruction
    return offset if fits and takes_loads_from_task(offset, size) else None


def emit_member(asm: Assembler, offset: int, size: int) -> None:
    """Emit code that loads a number at a :func:`member_offset` into r0.

    It takes a few nanoseconds, bpf_probe_read_kernel() twenty.
    """
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    asm.load(R0, R0, offset, size)


@functools.cache
def task_offsets() -> TaskOffsets | None:
    """Return where struct task_struct has what records show; None if it cannot be loaded there."""
    # Before Linux 5.17 (06c5088aeeda, "fs/exec: replace strlcpy with strscpy_pad in
    # __set_task_comm") it has remains of longer names behind its NUL; bpf_loop() is as old. What
    # most traces have asked already is newer.
    padded = links_filter_processes() or have_loops()
    found = member_offsets("task_struct", "comm", "pid", "tgid") if padded else None
    return TaskOffsets(*found) if found and takes_loads_from_task(found[0]) else None
