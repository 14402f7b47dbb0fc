"""Code that looks up whether a process is traced, and programs that maintain the set of tasks.

:mod:`usdt.engine.runtime.follow` defines the set, and attaches the programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R7, R9, R10, Alu, Jump
from usdt.engine.compiler.codegen.map_calls import emit_map_call, emit_map_key
from usdt.engine.compiler.codegen.model import EXIT
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT, PIDNS_SLOT, READ_SLOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.asm.assembler import Code
    from usdt.bpf.asm.insn import Reg

__all__ = (
    "ALIVE",
    "ANY_LEVEL",
    "CGROUPS",
    "ENDED",
    "FOLLOWED",
    "UNFOLLOWED",
    "emit_cgroup_membership",
    "emit_current_process",
    "emit_membership",
    "exit_program",
    "fork_program",
    "free_program",
)

FOLLOWED = "followed"  # hash: u64 key of a process or task → u8 ALIVE or ENDED
UNFOLLOWED = (
    "unfollowed"  # array of u64: tasks that did not fit into the set, hits without a process ID
)
CGROUPS = "cgroups"  # hash: u64 ID of a cgroup → u8
ANY_LEVEL = (1 << 64) - 1  # no ID: in CGROUPS, it says that cgroups may be at further levels
ALIVE, ENDED = 1, 2
_NO_ROOM, _NO_NUMBER = 0, 1  # indexes in UNFOLLOWED
_EXIST = 2  # BPF_EXIST: change an existing element only


def emit_current_process(asm: Assembler, namespace: tuple[int, int] | None, outside: str) -> None:
    """Emit code that leaves pid_tgid in r9, as the PID namespace ``namespace`` sees it.

    ``namespace`` is (device, inode), or None for the initial one. The code goes to ``outside`` if
    the current task has no ID in the namespace.
    """
    if namespace is None:
        start = len(asm)
        asm.call(Helper.GET_CURRENT_PID_TGID)
        asm.mov(R9, R0)
        asm.only_for(R9, start)
        return
    device, inode = namespace
    asm.mov(R1, device)
    asm.mov(R2, inode)
    asm.mov(R3, R10)
    asm.add(R3, PIDNS_SLOT)
    asm.mov(R4, 8)
    asm.call(Helper.GET_NS_CURRENT_PID_TGID)
    asm.jump(Jump.NE, R0, 0, outside)
    asm.load(R9, R10, PIDNS_SLOT + 4, 4)
    asm.alu(Alu.LSH, R9, 32)
    asm.load(R1, R10, PIDNS_SLOT, 4)
    asm.alu(Alu.OR, R9, R1)


def emit_membership(asm: Assembler, *, outside: str, exit_label: str) -> None:
    """Emit code that falls through if the process in r9 or the current task is in the set.

    Otherwise the code goes to ``exit_label``. It also defines the label ``outside``, to which
    :func:`emit_current_process` goes if a task has no ID: the code there counts the hit if the
    task is in the set, and goes to ``exit_label``.
    """
    _process_lookup(asm, "followed")
    _task_lookup(asm, "followed")
    asm.goto(exit_label)
    asm.label(outside)
    _task_lookup(asm, "unnumbered")
    asm.goto(exit_label)
    asm.label("unnumbered")
    _count(asm, _NO_NUMBER, exit_label)
    asm.label("followed")


def emit_cgroup_membership(
    asm: Assembler, levels: Sequence[int], more: Sequence[int], reject: str
) -> None:
    """Emit code that falls through if the current task is in a cgroup of the set, or below one.

    Otherwise the code goes to ``reject``.

    Args:
        asm: the assembler.
        levels: the levels at which cgroups of the set are.
        more: the levels at which others may be once :data:`ANY_LEVEL` is in the set.
        reject: a label.
    """
    _ancestor_lookups(asm, levels)
    if more:
        asm.mov(R0, ANY_LEVEL)
        asm.store(R10, KEY_SLOT, R0)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, CGROUPS)
        asm.jump(Jump.EQ, R0, 0, reject)
        _ancestor_lookups(asm, more)
    asm.goto(reject)
    asm.label("in_cgroup")


def _ancestor_lookups(asm: Assembler, levels: Sequence[int]) -> None:
    for level in levels:
        asm.mov(R1, level)
        asm.call(Helper.GET_CURRENT_ANCESTOR_CGROUP_ID)
        asm.store(R10, KEY_SLOT, R0)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, CGROUPS)
        asm.jump(Jump.NE, R0, 0, "in_cgroup")


def _process_lookup(asm: Assembler, found: str) -> None:
    asm.mov(R0, R9)
    asm.alu(Alu.RSH, R0, 32)
    asm.alu(Alu.LSH, R0, 1)
    asm.alu(Alu.OR, R0, 1)
    _lookup(asm, found)


def _task_lookup(asm: Assembler, found: str) -> None:
    asm.call(Helper.GET_CURRENT_TASK)
    _one_form(asm, R0)
    _lookup(asm, found)


def _one_form(asm: Assembler, task: Reg) -> None:
    # On 32-bit kernels, the helper sign-extends an address (bpf_get_current_task() in
    # kernel/trace/bpf_trace.c), and tracepoints zero-extend it (__CAST_TO_U64() in
    # trace/bpf_probe.h). Zero-extend it here.
    done = asm.new_label("task")
    asm.mov(R1, task)
    asm.alu(Alu.ARSH, R1, 32)
    asm.jump(Jump.NE, R1, -1, done)
    asm.alu(Alu.LSH, task, 32)
    asm.alu(Alu.RSH, task, 32)
    asm.label(done)


def _lookup(asm: Assembler, found: str) -> None:
    # Go to ``found`` if the key in r0 is in the set.
    asm.store(R10, KEY_SLOT, R0)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, FOLLOWED)
    asm.jump(Jump.NE, R0, 0, found)


def _count(asm: Assembler, index: int, done: str) -> None:
    asm.store(R10, KEY_SLOT, index, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, UNFOLLOWED)
    asm.jump(Jump.EQ, R0, 0, done)
    asm.mov(R1, 1)
    asm.atomic_add(R0, 0, R1)
    asm.goto(done)


def fork_program(namespace: tuple[int, int] | None) -> Code:
    """Return the program for ``sched_process_fork``.

    It adds the child to the set if the parent is in it, and removes it otherwise. The
    tracepoint's arguments are the parent, which is the current task, and the child.
    """
    asm = Assembler()
    asm.load(R7, R1, 8)
    _one_form(asm, R7)
    emit_current_process(asm, namespace, "task")
    _process_lookup(asm, "followed")
    asm.label("task")
    _task_lookup(asm, "followed")
    asm.store(R10, KEY_SLOT, R7)
    emit_map_call(asm, Helper.MAP_DELETE_ELEM, FOLLOWED)
    asm.goto(EXIT)
    asm.label("followed")
    _update(asm, ALIVE, 0)
    asm.jump(Jump.EQ, R0, 0, EXIT)
    _count(asm, _NO_ROOM, EXIT)
    return _finished(asm)


def _update(asm: Assembler, state: int, flags: int) -> None:
    # Set the state of the task in r7.
    asm.store(R10, KEY_SLOT, R7)
    asm.store(R10, READ_SLOT, state, 1)
    emit_map_key(asm, FOLLOWED)
    asm.mov(R3, R10)
    asm.add(R3, READ_SLOT)
    asm.mov(R4, flags)
    asm.call(Helper.MAP_UPDATE_ELEM)


def exit_program() -> Code:
    """Return the program for ``sched_process_exit``.

    It marks the task as ended, but leaves it in the set. The tracepoint's first argument is the
    task that ends, which is the current one.
    """
    asm = Assembler()
    asm.load(R7, R1, 0)
    _one_form(asm, R7)
    _update(asm, ENDED, _EXIST)
    return _finished(asm)


def free_program() -> Code:
    """Return the program for ``sched_process_free``, which removes the task from the set.

    The tracepoint's argument is the task, which has run for the last time and has been reaped.
    """
    asm = Assembler()
    asm.load(R7, R1, 0)
    _one_form(asm, R7)
    asm.store(R10, KEY_SLOT, R7)
    emit_map_call(asm, Helper.MAP_DELETE_ELEM, FOLLOWED)
    return _finished(asm)


def _finished(asm: Assembler) -> Code:
    asm.label(EXIT)
    asm.mov(R0, 0)
    asm.exit()
    return asm.assemble()
