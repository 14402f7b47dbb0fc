"""Code for expressions: typed nodes in, instructions out.

Register use: r6 holds the context (``struct pt_regs``) throughout, r7–r9 belong to the caller,
results arrive in r0, r1–r5 are scratch. Nested operands wait in stack slots.

What cannot be read jumps to the ``fail`` label. In a program that may sleep (``sleepable``) a
read that finds its page absent is done again by bpf_copy_from_user(), which faults it in.
"""

from __future__ import annotations

from usdt.engine.compiler.codegen.expressions.emitter import ExpressionEmitter
from usdt.engine.compiler.codegen.stack_slots import (
    KEY_SLOT,
    PIDNS_SLOT,
    READ_SLOT,
    STACK_BOTTOM,
    TEMPORARIES,
)

__all__ = (
    "KEY_SLOT",
    "PIDNS_SLOT",
    "READ_SLOT",
    "STACK_BOTTOM",
    "TEMPORARIES",
    "ExpressionEmitter",
)
