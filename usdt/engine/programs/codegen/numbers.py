"""Code for numbers: the expressions of the engine, with variables and the steps that they need.

Registers: r6 the context, r7 the scratch memory, r8 the record that is being written, r9 in loops
the stack of the main function. r0 is the result; r1 to r5 are scratch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Saved
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R10, Alu, Reg
from usdt.engine.compiler.codegen.expressions import ExpressionEmitter
from usdt.engine.compiler.ir import (
    ArgumentValue,
    Arithmetic,
    Deref,
    Number,
    RegisterAggregate,
    Unavailable,
    can_fail,
)
from usdt.engine.programs.codegen.frame import TASK_SLOT, ZERO_SLOT

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.compiler.ir import Node
    from usdt.engine.programs.codegen.frame import Frame

__all__ = ("NumberEmitter",)


class NumberEmitter(ExpressionEmitter):
    """An emitter of expressions whose variables and temporaries are in a frame.

    Args:
        asm: the assembler.
        frame: the slots of the function.
        kernel: whether addresses may be in the kernel.
    """

    def __init__(self, asm: Assembler, frame: Frame, *, kernel: bool) -> None:
        super().__init__(asm, sleepable=False, fail="", kernel=kernel)
        self.frame = frame

    def value(self, node: Node) -> None:
        """Emit code that leaves the value of ``node`` in r0.

        Memory that cannot be read is 0; a number divided by 0 is 1, as in bpftrace.
        """
        match node:
            case ArgumentValue(fetch=Saved(number=number)):
                place = self.frame.saved(number)
                self.asm.load(R0, place.base, place.offset)
            case Arithmetic(op="/" | "%", right=right) if not isinstance(right, Number):
                self._or_else(node, 1)
            case Deref() | ArgumentValue() | Unavailable() | RegisterAggregate() if can_fail(node):
                self._or_else(node, 0)
            case _:
                super().value(node)

    def branch(self, node: Node, label: str, *, when: bool) -> None:
        """Emit a branch to ``label`` if ``node`` is true (``when``) or false (not ``when``)."""
        match node:
            case Unavailable() | RegisterAggregate():
                if not when:
                    self.asm.goto(label)
            case _:
                super().branch(node, label, when=when)

    def _or_else(self, node: Node, value: int) -> None:
        asm = self.asm
        outer, self.fail = self.fail, asm.new_label("unread")
        done = asm.new_label("read")
        super().value(node)
        asm.goto(done)
        asm.label(self.fail)
        asm.mov(R0, value)
        asm.label(done)
        self.fail = outer

    def _builtin(self, name: str) -> None:
        if name == "ctx":
            self.asm.mov(R0, R6)
            self.address_as_number()
            return
        if name not in ("pid", "tid"):
            super()._builtin(name)
            return
        self.asm.load(R0, self.frame.base, TASK_SLOT)
        if name == "tid":
            self.asm.alu(Alu.LSH, R0, 32)
        self.asm.alu(Alu.RSH, R0, 32)

    def address_as_number(self) -> None:
        """Turn the address in r0 into a number.

        The kernel restricts what is done with addresses, for example in loops and with an index
        that it does not know. It takes what a helper has copied for a number.
        """
        asm = self.asm
        slot, copy = self.push(), self.push()
        asm.mov(R1, R10)
        asm.add(R1, copy)
        asm.mov(R2, 8)
        asm.mov(R3, R10)
        asm.add(R3, slot)
        asm.call(Helper.PROBE_READ_KERNEL)
        asm.load(R0, R10, copy)
        self.pop()
        self.pop()

    def unbind(self) -> None:
        """Let the verifier know nothing of the number in r0; r1 is changed.

        The verifier follows a branch once for each value that it knows, and a loop for each value
        that a variable has in it. A program of many branches or rounds would be too much for it.
        """
        self.asm.load(R1, self.frame.base, ZERO_SLOT)
        self.asm.alu(Alu.XOR, R0, R1)

    def push(self, source: Reg = R0) -> int:
        """Store a register in a new slot of the stack; return its offset from r10."""
        slot = self.frame.push()
        self.asm.store(R10, slot, source)
        return slot

    def pop(self) -> None:
        """Release the slot that was pushed last."""
        self.frame.pop()
