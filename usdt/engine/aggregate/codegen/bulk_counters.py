"""Hits counted at thousands of places: cases that differ in their row alone share their code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R8, R10, Jump
from usdt.engine.aggregate.codegen.action import VALUES, AggregateBody
from usdt.engine.aggregate.codegen.values import ValueWriter
from usdt.engine.compiler.codegen.expressions import KEY_SLOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.compiler.codegen.program import Body, Case

    RowWriter = Callable[[Assembler, str], None]

__all__ = ("row_writer",)


def row_writer(body: Body, cases: Iterable[Case]) -> RowWriter | None:
    """What writes the code of cases that count, each in the row before its number, and no more.

    It is given where to go with a hit that finds no room, and the row in ``KEY_SLOT``. None: the
    cases do something else.
    """
    if not isinstance(body, AggregateBody):
        return None
    what = body.aggregation
    if what.keyed or what.stats or what.buckets is not None:
        return None
    if not all(_counts(body, case) for case in cases):
        return None
    return lambda asm, lost: _write(asm, body, lost)


def _counts(body: AggregateBody, case: Case) -> bool:
    action, plan = body.actions[case.number], case.plan
    if case.call is not None or case.gate is not None or plan.predicates or plan.never:
        return False
    return action.role == "hit" and action.value is None and action.row == case.number - 1


def _write(asm: Assembler, body: AggregateBody, lost: str) -> None:
    asm.load_map(R1, VALUES)
    asm.mov(R2, R10)
    asm.add(R2, KEY_SLOT)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.EQ, R0, 0, lost)
    asm.mov(R8, R0)
    ValueWriter(asm, body.aggregation, signed=False, atomics=body.atomics, lost=lost).write()
    asm.goto("exit")
