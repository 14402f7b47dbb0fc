"""Code generation for expressions: typed nodes → instructions.

emitter      :class:`ExpressionEmitter`: values and branches; ``arithmetic``, ``strings``: parts
operands     two operands at a time, with one in a stack slot if necessary
memory       reads of memory, and temporaries on the stack

Registers: r6 is the context (for example ``struct pt_regs``), r9 is pid_tgid, r7 and r8 are the
caller's, r0 is the result, r1–r5 are scratch.

If a read fails, the code jumps to the ``fail`` label. In a program that may sleep (``sleepable``),
a read of an absent page is repeated with bpf_copy_from_user(), which faults the page in.
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
