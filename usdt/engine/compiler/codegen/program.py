"""Generation of eBPF programs from plans.

A program serves one or more *variants*, each a plan at a probe. If it serves several, the attach
cookie of the site is the number of the variant, which the code finds by binary search. Arguments
are read directly from ``struct pt_regs``, without an interpreter or a map lookup.

    start             reject processes that are not traced; dispatch
    for each variant:
      predicates      all of them, before a record is reserved or filled
      action          the code of an :class:`ActionEmitter`; by default it writes a record
    tails             counters of lost and undecided hits; the exit

Registers: r6 context, r9 pid_tgid; r7 and r8 are for the action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.assembler import Assembler, Code
from usdt.bpf.asm.insn import R0, R1, R6, R7, R8, R9, R10, Alu, Jump
from usdt.engine.compiler.codegen.expressions import KEY_SLOT, ExpressionEmitter
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.compiler.codegen.model import COUNTERS, EXIT, SITE_ROWS, UNPAIRED, Labels
from usdt.engine.compiler.codegen.record import RECORD_ACTION
from usdt.engine.compiler.codegen.stack_slots import ENTRY_STATE_SLOT, SITE_SLOT
from usdt.engine.compiler.codegen.task_filter import (
    emit_cgroup_membership,
    emit_current_process,
    emit_membership,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.compiler.codegen.model import (
        ActionEmitter,
        ProgramVariant,
        TaskFilter,
        VariantDispatch,
    )

__all__ = ("generate", "generate_indexed")

_LEAVE = "leave"  # label after the removal of entry state
_REJECT = "reject"  # label of the code that returns ``reject_result``
_LOST, _UNDECIDED = 0, 1  # the counters of a probe


def generate(
    variants: Sequence[ProgramVariant],
    task_filter: TaskFilter,
    *,
    sleepable: bool,
    action: ActionEmitter = RECORD_ACTION,
    dispatch: VariantDispatch | None = None,
    result: int = 0,
    reject_result: int | None = None,
    uprobe: bool = False,
    first_row: int | None = None,
) -> Code:
    """Return a program for ``variants``.

    Args:
        variants: the variants that the program serves.
        task_filter: which processes are traced.
        sleepable: whether the program is loaded as sleepable, so that it may handle page faults.
        action: emits the action of each variant at a hit.
        dispatch: finds the variant that was hit; None: the attach cookie identifies it.
        result: the value that the program returns.
        reject_result: the value for processes that are not traced; None: ``result``.
        uprobe: whether the program is attached to uprobes.
        first_row: if the variants are bodies of a
            :class:`usdt.engine.compiler.site_numbers.SiteTable`, its ``first``. With a
            ``dispatch``, its key is the index of the row.

    Raises:
        CodeTooLarge: there are too many variants for one program.
    """
    asm = Assembler()
    if uprobe:
        _avoid_private_stack(asm)
    asm.mov(R6, R1)
    # All entry state of a program has one size.
    ending = next((variant for variant in variants if variant.at_end), None)
    reject = EXIT if ending is None else _LEAVE
    _filter_tasks(asm, task_filter, reject if reject_result is None else _REJECT)
    if ending is not None:
        asm.store(R10, ENTRY_STATE_SLOT, 0)
    if first_row is not None:
        if dispatch is None:
            asm.mov(R1, R6)
            asm.call(Helper.GET_ATTACH_COOKIE)
            asm.add(R0, -first_row)
        else:
            dispatch.emit(asm)
        _emit_find_row(asm)
        _emit_search(asm, [(variant.number, variant.number) for variant in variants])
    elif dispatch is not None:
        dispatch.emit(asm)
        _emit_search(asm, sorted(dispatch.keys))
    elif len(variants) > 1:
        asm.mov(R1, R6)
        asm.call(Helper.GET_ATTACH_COOKIE)
        _emit_search(asm, sorted((variant.number, variant.number) for variant in variants))
    for variant in variants:
        asm.label(_variant_label(variant.number))
        _emit_variant(asm, variant, action, sleepable=sleepable and variant.faultable)
    _emit_tails(asm, ending, result)
    if reject_result is not None:
        asm.label(_REJECT)
        asm.mov(R0, reject_result)
        asm.exit()
    return asm.assemble()


def generate_indexed(
    task_filter: TaskFilter,
    *,
    count: Callable[[Assembler, str], object],
    find_variant: Callable[[Assembler], object] | None,
    probe_index: int,
) -> Code:
    """Return a program for any number of variants that differ only in their number.

    Args:
        task_filter: which processes are traced.
        count: emits the action, which finds the variant's number minus one in ``KEY_SLOT``; its
            second argument is the label of lost hits.
        find_variant: emits code that leaves the variant's number in r0 or goes to ``EXIT``; None:
            the attach cookie is the number.
        probe_index: the index in ``COUNTERS`` under which lost hits are counted.
    """
    asm = Assembler()
    asm.mov(R6, R1)
    _filter_tasks(asm, task_filter, EXIT)
    if find_variant is not None:
        find_variant(asm)
    else:
        asm.mov(R1, R6)
        asm.call(Helper.GET_ATTACH_COOKIE)
    asm.add(R0, -1)
    asm.store(R10, KEY_SLOT, R0, 4)
    lost = asm.new_label("lost")
    count(asm, lost)
    _emit_count(asm, lost, probe_index, _LOST)
    _emit_tails(asm, None, 0)
    return asm.assemble()


def _variant_label(number: int) -> str:
    return f"variant.{number}"


def _avoid_private_stack(asm: Assembler) -> None:
    # Since Linux 6.13 (a76ab5731e32, "bpf: Find eligible subprogs for private stack support", in
    # 6.12.y as well), a program of type kprobe with 64 bytes of stack or more has a private stack
    # per CPU, on the assumption that it does not run twice at a time on a CPU. A program on uprobes
    # may: it can be preempted, and sleeps while pages are faulted in, and another thread would then
    # overwrite its stack. The kernel gives programs with a tail call no private stack. This call is
    # never reached, and the verifier removes it.
    asm.mov(R0, 0)
    asm.jump(Jump.EQ, R0, 0, "begin")
    asm.call(Helper.TAIL_CALL)
    asm.label("begin")


def _filter_tasks(asm: Assembler, task_filter: TaskFilter, reject: str) -> None:
    # Leave pid_tgid in r9. Reject hits that are too early, processes that are not traced, and those
    # that have no ID in the tracer's PID namespace.
    if task_filter.since:
        asm.call(Helper.KTIME_GET_NS)
        asm.mov(R1, task_filter.since)
        asm.jump(Jump.LT, R0, R1, reject)
    follow = task_filter.followed is not None
    if task_filter.outsiders:
        _emit_any_process(asm, task_filter.namespace)
    else:
        emit_current_process(asm, task_filter.namespace, "outside" if follow else reject)
    if follow:
        emit_membership(asm, outside="outside", exit_label=reject)
    elif task_filter.pids:
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        for pid in task_filter.pids:
            asm.jump(Jump.EQ, R1, pid, "accepted")
        asm.goto(reject)
        asm.label("accepted")
    elif task_filter.excluded:
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        asm.jump(Jump.EQ, R1, task_filter.excluded, reject)
    if task_filter.cgroups is not None:
        cgroups = task_filter.cgroups
        emit_cgroup_membership(asm, cgroups.levels, cgroups.more_levels, reject)


def _emit_any_process(asm: Assembler, namespace: tuple[int, int] | None) -> None:
    emit_current_process(asm, namespace, "outside")
    if namespace is not None:
        asm.goto("numbered")
        asm.label("outside")
        asm.mov(R9, 0)
        asm.label("numbered")


def _emit_find_row(asm: Assembler) -> None:
    # Replace the index of the row in r0 by that of its body.
    asm.store(R10, KEY_SLOT, R0, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, SITE_ROWS)
    asm.jump(Jump.EQ, R0, 0, EXIT)
    asm.store(R10, SITE_SLOT, R0)
    asm.load(R0, R0, 8, 4)


def _emit_search(asm: Assembler, keys: list[tuple[int, int]]) -> None:
    # Emit a binary search for the key in r0; ``keys`` are pairs of a key and a variant's number.
    if len(keys) == 1:
        asm.jump(Jump.EQ, R0, keys[0][0], _variant_label(keys[0][1]))
        asm.goto(EXIT)
        return
    middle = len(keys) // 2
    upper = asm.new_label("from")
    asm.jump(Jump.GE, R0, keys[middle][0], upper)
    _emit_search(asm, keys[:middle])
    asm.label(upper)
    _emit_search(asm, keys[middle:])


def _emit_variant(
    asm: Assembler, variant: ProgramVariant, action: ActionEmitter, *, sleepable: bool
) -> None:
    plan, condition = variant.plan, variant.condition
    if plan.always_false:
        asm.goto(EXIT)
        return
    labels = Labels(asm.new_label("lost"), asm.new_label("undecided"))
    if variant.at_end:
        _emit_find(asm, variant, labels, sleepable=sleepable)
    if condition is not None and not condition.after_predicates:
        condition.emit(asm, labels.lost)
    elif condition is not None and plan.predicates:
        condition.prepare(asm)
    false, unreadable = EXIT, labels.undecided
    if variant.at_entry:  # the return must not find the state of an earlier call at this address
        false, unreadable = asm.new_label("false"), asm.new_label("unreadable")
    emitter = ExpressionEmitter(asm, sleepable=sleepable, fail=unreadable, kernel=plan.kernel)
    for node in plan.predicates:
        emitter.branch(node, false, when=False)
    if condition is not None and condition.after_predicates:
        condition.emit(asm, labels.lost)
    if variant.at_entry:
        _emit_begin(asm, variant, labels, (false, unreadable), sleepable=sleepable)
    else:
        action.emit(asm, variant, labels, sleepable=sleepable)
    probe_index = None if variant.in_row else variant.probe_index
    _emit_count(asm, labels.lost, probe_index, _LOST)
    _emit_count(asm, labels.undecided, probe_index, _UNDECIDED)


def _emit_find(asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool) -> None:
    # Find the entry state. The end of a span without one is counted.
    from usdt.engine.compiler.codegen.entry_state import emit_find_entry_state  # noqa: PLC0415 - for functions

    role = variant.call
    if role is not None and role.start is None:
        emit_find_entry_state(asm, role, EXIT)
        return
    missing, found = asm.new_label("missing"), asm.new_label("found")
    if variant.pair is not None:
        variant.pair.emit_find(asm, labels, missing, sleepable=sleepable)
    elif role is not None:
        emit_find_entry_state(asm, role, missing)
    asm.goto(found)
    asm.label(missing)
    asm.store(R10, KEY_SLOT, 0, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, UNPAIRED)
    asm.jump(Jump.EQ, R0, 0, EXIT)
    asm.mov(R1, 1)
    asm.atomic_add(R0, 0, R1)
    asm.goto(EXIT)
    asm.label(found)


def _emit_begin(
    asm: Assembler,
    variant: ProgramVariant,
    labels: Labels,
    refused: tuple[str, str],
    *,
    sleepable: bool,
) -> None:
    # The action at an entry. ``refused``: labels for a predicate that is false, or undecided.
    from usdt.engine.compiler.codegen.entry_state import emit_entry, emit_forget  # noqa: PLC0415 - for functions

    role, pair = variant.call, variant.pair
    if pair is not None:
        pair.emit_start(asm, variant, labels, sleepable=sleepable)
    elif role is not None:
        emit_entry(asm, variant, role, labels, sleepable=sleepable)
    if not variant.plan.predicates:
        return
    for label, after in zip(refused, (EXIT, labels.undecided), strict=True):
        asm.label(label)
        if pair is not None:
            pair.emit_refuse(asm, labels, after, sleepable=sleepable)
        elif role is not None:
            emit_forget(asm, role)
            asm.goto(after)


def _emit_count(asm: Assembler, label: str, probe_index: int | None, counter: int) -> None:
    asm.label(label)
    if probe_index is None:
        asm.load(R8, R10, SITE_SLOT)
        asm.load(R8, R8, 4, 4)
    else:
        asm.mov(R8, probe_index)
    asm.mov(R7, counter)
    asm.goto("count")


def _emit_tails(asm: Assembler, ending: ProgramVariant | None, result: int) -> None:
    # Emit the shared end of variants: r8 is the probe index, r7 the counter to increment.
    # ``ending`` is a variant that takes entry state.
    asm.label("count")
    asm.store(R10, KEY_SLOT, R8, 4)
    emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, COUNTERS)
    asm.jump(Jump.EQ, R0, 0, EXIT)
    asm.mov(R1, 1)
    second = asm.new_label("second")
    asm.jump(Jump.NE, R7, _LOST, second)
    asm.atomic_add(R0, 0, R1)
    asm.goto(EXIT)
    asm.label(second)
    asm.atomic_add(R0, 8, R1)
    asm.label(EXIT)
    if ending is not None:
        if ending.pair is not None:
            ending.pair.emit_remove(asm, _LEAVE)
        elif ending.call is not None:
            from usdt.engine.compiler.codegen.entry_state import emit_remove_entry_state  # noqa: PLC0415

            emit_remove_entry_state(asm, ending.call, _LEAVE)
        asm.label(_LEAVE)
    asm.mov(R0, result)
    asm.exit()
