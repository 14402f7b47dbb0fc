"""Code generation: plans in, one eBPF program out.

A program serves one or more *cases*, each a plan with a probe's index. With several, the
attach cookie of the site that was hit says which, by a binary search in the code itself. Values
are read straight from ``struct pt_regs``: no interpreter, no map look-up.

    start             which process is it, is it wanted; which case
    for every case:
      predicates      all of them before anything is reserved, looked up or copied
      body            what is done at a hit: a record (:mod:`usdt.engine.compiler.codegen.record`)
      unless another
                      :class:`ActionEmitter` is given
    tails             counting what was lost or could not be decided; the end

Register use: r6 context, r9 pid_tgid; r7 and r8 belong to the body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.assembler import Assembler, Code
from usdt.bpf.asm.insn import R0, R1, R2, R6, R7, R8, R9, R10, Alu, Jump
from usdt.engine.compiler.codegen.entry_state import (
    emit_entry,
    emit_find_entry_state,
    emit_forget,
    emit_remove_entry_state,
)
from usdt.engine.compiler.codegen.expressions import KEY_SLOT, ExpressionEmitter
from usdt.engine.compiler.codegen.model import COUNTERS, lost_label, unread_label
from usdt.engine.compiler.codegen.record import RECORD_ACTION
from usdt.engine.compiler.codegen.stack_slots import ENTRY_STATE_SLOT
from usdt.engine.compiler.codegen.task_filter import emit_current_process, emit_membership

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.codegen.model import (
        ActionEmitter,
        ProgramVariant,
        TaskFilter,
        VariantDispatch,
    )

__all__ = ("generate", "generate_indexed")


def generate(
    cases: Sequence[ProgramVariant],
    accept: TaskFilter,
    *,
    sleepable: bool,
    body: ActionEmitter = RECORD_ACTION,
    select: VariantDispatch | None = None,
    result: int = 0,
    skipped: int | None = None,
    uprobe: bool = False,
) -> Code:
    """The program of ``cases``.

    Args:
        cases: served by one program.
        accept: which processes count.
        sleepable: whether the program is loaded so that it may take page faults.
        body: writes what each case does at a hit.
        select: how to find out which case was hit; None: by the cookie.
        result: what the program returns.
        skipped: what it returns instead of a process that does not count.
        uprobe: whether uprobes run it.

    Raises:
        CodeTooLarge: too many cases for one program; give fewer.
    """
    asm = Assembler()
    if uprobe:
        _keep_own_stack(asm)
    asm.mov(R6, R1)
    frames = {case.call.size for case in cases if case.call is not None and not case.call.entry}
    leave = "leave" if frames else "exit"
    _process(asm, accept, leave if skipped is None else "skip")
    if frames:
        asm.store(R10, ENTRY_STATE_SLOT, 0)
    if select is not None:
        select.write(asm)
        _dispatch(asm, sorted(select.keys))
    elif len(cases) > 1:
        asm.mov(R1, R6)
        asm.call(Helper.GET_ATTACH_COOKIE)
        _dispatch(asm, sorted((case.number, case.number) for case in cases))
    for case in cases:
        asm.label(f"case.{case.number}")
        _case(asm, case, body, sleepable=sleepable and case.plan.faultable)
    _tails(asm, frames, result)
    if skipped is not None:
        asm.label("skip")
        asm.mov(R0, skipped)
        asm.exit()
    return asm.assemble()


def generate_indexed(
    accept: TaskFilter,
    *,
    count: Callable[[Assembler, str], object],
    select: Callable[[Assembler], object] | None,
    probe: int,
) -> Code:
    """A program of any number of cases that differ in their number alone.

    Args:
        accept: which processes count.
        count: writes what is done, with the case's number less one in ``KEY_SLOT``; given where to
            go with a hit that finds no room.
        select: leaves the case's number in r0, or goes to ``exit``; None: the cookie is it.
        probe: which is said to have lost such hits.
    """
    asm = Assembler()
    asm.mov(R6, R1)
    _process(asm, accept, "exit")
    if select is not None:
        select(asm)
    else:
        asm.mov(R1, R6)
        asm.call(Helper.GET_ATTACH_COOKIE)
    asm.add(R0, -1)
    asm.store(R10, KEY_SLOT, R0, 4)
    count(asm, "lost")
    _counted(asm, "lost", probe, 0)
    _tails(asm, set(), 0)
    return asm.assemble()


def _keep_own_stack(asm: Assembler) -> None:
    # A program of type kprobe with 64 bytes of stack or more has one stack a CPU since Linux 6.13
    # (a76ab5731e32, "bpf: Find eligible subprogs for private stack support", in 6.12.y as well),
    # as such programs do not run twice on a CPU. Those of uprobes do: they are preempted, and sleep
    # for pages, and another thread would write over what they hold. Programs with a tail call are
    # left alone; this one is never made, and the verifier takes it out.
    asm.mov(R0, 0)
    asm.jump(Jump.EQ, R0, 0, "begin")
    asm.call(Helper.TAIL_CALL)
    asm.label("begin")


def _process(asm: Assembler, accept: TaskFilter, leave: str) -> None:
    # r9 = pid_tgid; leave if the process is none of those wanted, or outside our namespace, where
    # it has no number.
    follow = accept.followed is not None
    emit_current_process(asm, accept.namespace, "outside" if follow else leave)
    if follow:
        emit_membership(asm, outside="outside", exit_label=leave)
    elif accept.pids:
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        for pid in accept.pids:
            asm.jump(Jump.EQ, R1, pid, "accepted")
        asm.goto(leave)
        asm.label("accepted")
    elif accept.excluded:
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        asm.jump(Jump.EQ, R1, accept.excluded, leave)


def _dispatch(asm: Assembler, numbers: list[tuple[int, int]]) -> None:
    # Binary search for the number in r0, among pairs of a number and its case.
    if len(numbers) == 1:
        asm.jump(Jump.EQ, R0, numbers[0][0], f"case.{numbers[0][1]}")
        asm.goto("exit")
        return
    middle = len(numbers) // 2
    upper = asm.new_label("from")
    asm.jump(Jump.GE, R0, numbers[middle][0], upper)
    _dispatch(asm, numbers[:middle])
    asm.label(upper)
    _dispatch(asm, numbers[middle:])


def _case(asm: Assembler, case: ProgramVariant, body: ActionEmitter, *, sleepable: bool) -> None:
    if case.plan.always_false:
        asm.goto("exit")
        return
    unread = unread_label(case)
    if case.call is not None and not case.call.entry:
        emit_find_entry_state(asm, case.call, "exit")
    if case.gate is not None and not case.gate.entry:
        case.gate.write(asm, lost_label(case))
    elif case.gate is not None and case.plan.predicates:
        case.gate.settle(asm)
    entry = case.call if case.call is not None and case.call.entry else None
    no, fail = "exit", unread
    if entry is not None:  # what a call left at this place must not be found by this one's return
        no, fail = f"unfollowed.{case.number}", f"undecided.{case.number}"
    writer = ExpressionEmitter(asm, sleepable=sleepable, fail=fail, kernel=case.plan.kernel)
    for node in case.plan.predicates:
        writer.branch(node, no, when=False)
    if case.gate is not None and case.gate.entry:
        case.gate.write(asm, lost_label(case))
    if entry is None:
        body.emit(asm, case, sleepable=sleepable)
    else:
        emit_entry(asm, case, entry, sleepable=sleepable)
        for label, after in ((no, "exit"), (fail, unread)):
            asm.label(label)
            emit_forget(asm, entry)
            asm.goto(after)
    _counted(asm, lost_label(case), case.probe, 0)
    _counted(asm, unread, case.probe, 1)


def _counted(asm: Assembler, label: str, probe: int, counter: int) -> None:
    asm.label(label)
    asm.mov(R8, probe)
    asm.mov(R7, counter)
    asm.goto("count")


def _tails(asm: Assembler, frames: set[int], result: int) -> None:
    # Shared ends: r8 = probe index, r7 = offset of the counter to increment. Frames are of one size
    # in one program.
    asm.label("count")
    asm.store(R10, KEY_SLOT, R8, 4)
    asm.load_map(R1, COUNTERS)
    asm.mov(R2, R10)
    asm.add(R2, KEY_SLOT)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.EQ, R0, 0, "exit")
    asm.mov(R1, 1)
    second = asm.new_label("second")
    asm.jump(Jump.NE, R7, 0, second)
    asm.atomic_add(R0, 0, R1)
    asm.goto("exit")
    asm.label(second)
    asm.atomic_add(R0, 8, R1)
    asm.label("exit")
    for size in frames:
        emit_remove_entry_state(asm, size)
        asm.label("leave")
    asm.mov(R0, result)
    asm.exit()
