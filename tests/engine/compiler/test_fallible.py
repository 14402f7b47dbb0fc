"""What may jump to "fail" says so beforehand: the label is only there for what says it."""

from __future__ import annotations

import random

from usdt.arch.locations import (
    Address,
    AtFunctionReturn,
    Constant,
    ContextArea,
    Memory,
    Register,
    TypedContextWord,
    Unreadable,
)
from usdt.base.errors import TracingError
from usdt.bpf.asm.assembler import Assembler
from usdt.engine.compiler import entry_return as calls
from usdt.engine.compiler.codegen.expressions import ExpressionEmitter
from usdt.engine.compiler.ir import (
    S32,
    U64,
    ArgumentValue,
    Arithmetic,
    Builtin,
    Compare,
    Convert,
    Deref,
    LValue,
    Node,
    Not,
    Number,
    PointerExpr,
    RegisterAggregate,
    ShortCircuit,
    StringEqualsConst,
    Unavailable,
    can_fail,
)
from usdt.engine.compiler.outputs import Output
from usdt.engine.compiler.plan import ProbePlan
from usdt.engine.compiler.record.columns import IntColumn

FETCHES = (
    Constant(0),
    Constant(1 << 40),
    Register(8, 4),
    Memory(8, None, 1, 8, 8, 4),
    Memory(8, 16, 4, 0, 8, 4, None, kernel=True),
    Address(8, 16, 8),
    Unreadable("lost"),
    TypedContextWord(8, 4),
    AtFunctionReturn(Register(80, 8)),
    AtFunctionReturn(Unreadable("lost at return")),
    ContextArea(8, 8),
    ContextArea(8, 8, "data_loc"),
)
OPERATORS = ("+", "*", "/", "%", "&", "<<", ">>")
ROUNDS = 3000


def leaf(chance: random.Random) -> Node:
    return chance.choice(
        (
            Number(chance.choice((0, 1, -1, 1 << 50)), chance.choice((U64, S32))),
            ArgumentValue(chance.choice(FETCHES), chance.choice((U64, S32))),
            ArgumentValue(chance.choice(FETCHES), U64),
            Unavailable("unknown"),
            Builtin("pid", U64),
            RegisterAggregate(((0, ArgumentValue(Register(8, 8), U64)),), U64),
        )
    )


def expression(chance: random.Random, depth: int) -> Node:
    if not depth:
        return leaf(chance)
    one, two = expression(chance, depth - 1), expression(chance, chance.randrange(depth))
    return chance.choice(
        (
            one,
            PointerExpr(one, S32),
            Deref(one, S32),
            LValue(one, S32),
            Convert(one, S32),
            Arithmetic(chance.choice(OPERATORS), one, two, U64),
            Compare("<", one, two, U64),
            ShortCircuit(chance.choice(("&&", "||")), one, two),
            Not(one),
            StringEqualsConst(one, b"text", prefix=False, equal=True),
        )
    )


def jumps(node: Node, *, sleepable: bool) -> bool:
    """Whether its code goes to "fail"."""
    asm = Assembler()
    try:
        ExpressionEmitter(asm, sleepable=sleepable, fail="fail").value(node)
    except TracingError:  # too deep, or text of no address: refused
        return False
    return any(label == "fail" for *_, label in asm._jumps.values())


def test_every_expression_that_may_fail_says_so() -> None:
    chance = random.Random(1)
    failing = 0
    for _ in range(ROUNDS):
        node = expression(chance, chance.randrange(4))
        for sleepable in (False, True):
            failed = jumps(node, sleepable=sleepable)
            failing += failed
            assert can_fail(node) or not failed, node
    assert failing > ROUNDS // 4


def test_so_does_what_is_kept_from_the_entry_to_the_return() -> None:
    chance = random.Random(2)
    failing = 0
    for _ in range(ROUNDS):
        first, second = (expression(chance, chance.randrange(4)) for _ in range(2))
        outputs = tuple(
            Output(name, IntColumn(U64), node, 40 + 8 * at, may_fault=can_fail(node))
            for at, (name, node) in enumerate((("a", first), ("b", second)))
        )
        split = calls.split_entry_return(ProbePlan((), outputs, 56, 24))
        for plan in () if split is None else (split.entry, split.returned):
            for output in () if plan is None else plan.outputs:
                failed = jumps(output.node, sleepable=False)
                failing += failed
                assert output.may_fault or not failed, (output, first, second)
    assert failing > ROUNDS // 8
