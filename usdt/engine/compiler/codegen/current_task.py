"""Code that reads the task that hit a probe."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.arch.locations import CurrentTask
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2
from usdt.bpf.features import have_loops, links_filter_processes, takes_loads_from_task
from usdt.btf.kernel_offsets import member_offsets
from usdt.engine.compiler.ir import ArgumentValue, Arithmetic, LValue, Number, PointerExpr

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.compiler.ir import Node

__all__ = ("comm_offset", "emit_comm", "emit_member", "member_offset")

_SIZE = 16  # TASK_COMM_LEN, with the NUL


def emit_comm(asm: Assembler, base: Reg, offset: int) -> None:
    """Emit code that stores the name of the current task, padded with NULs.

    Two loads take a tenth of the time of bpf_get_current_comm().

    Args:
        asm: the assembler.
        base: with ``offset``, where to store 16 bytes; r6 to r10.
        offset: a multiple of eight.
    """
    comm = comm_offset()
    if comm is None:
        for part in range(0, _SIZE, 8):  # kernels such as 6.1 put nothing behind the NUL
            asm.store(base, offset + part, 0)
        asm.mov(R1, base)
        asm.add(R1, offset)
        asm.mov(R2, _SIZE)
        asm.call(Helper.GET_CURRENT_COMM)
        return
    asm.call(Helper.GET_CURRENT_TASK_BTF)
    for part in range(0, _SIZE, 8):
        asm.load(R1, R0, comm + part)
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
def comm_offset() -> int | None:
    """Return where struct task_struct has ``comm``; None if programs cannot load it from there."""
    # Before Linux 5.17 (06c5088aeeda, "fs/exec: replace strlcpy with strscpy_pad in
    # __set_task_comm") it has remains of longer names behind its NUL; bpf_loop() is as old. What
    # most traces have asked already is newer.
    padded = links_filter_processes() or have_loops()
    found = member_offsets("task_struct", "comm") if padded else None
    return found[0] if found and takes_loads_from_task(found[0]) else None
