"""Code for operands: leaves, pairs of operands, and the stack slots that they need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.locations import Constant, Register, SiteNumber
from usdt.bpf.asm.insn import R0, R1, R6, R10
from usdt.engine.compiler.codegen.expressions.memory import MemoryReadEmitter
from usdt.engine.compiler.ir import (
    ArgumentValue,
    Deref,
    Number,
    ShortCircuit,
    StringEquals,
    StringEqualsConst,
    StringMatches,
    children,
)

if TYPE_CHECKING:
    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.engine.compiler.ir import Node

__all__ = ("OperandEmitter",)

# Stack slots that the code of a node itself needs while no operand is evaluated.
_OWN_SLOTS: dict[type, int] = {
    Deref: 1,
    ArgumentValue: 1,
    StringEqualsConst: 2,
    StringEquals: 4,
    StringMatches: 5,
}


class OperandEmitter(MemoryReadEmitter):
    """The part of the expression emitter that arithmetic and comparisons use.

    The arguments are those of :class:`.memory.MemoryReadEmitter`.
    """

    def __init__(self, asm: Assembler, *, sleepable: bool, fail: str, **more: Any) -> None:
        super().__init__(asm, sleepable=sleepable, fail=fail, **more)
        self._needs: dict[int, tuple[Node, int]] = {}

    def value(self, node: Node) -> None:
        """Emit code that leaves the value of ``node`` in r0."""
        raise NotImplementedError

    def leaf(self, dst: Reg, node: Node) -> None:
        """Leave the value of a constant or a register of the context in ``dst``."""
        match node:
            case Number(value=value) | ArgumentValue(fetch=Constant(value=value)):
                self.asm.mov(dst, value)
            case ArgumentValue(fetch=SiteNumber() as number):
                self.site_number(dst, number)
            case ArgumentValue(fetch=Register(offset=offset, size=size), type=kind):
                self.asm.load(dst, R6, offset, size)
                if kind.signed:
                    self.extend(dst, kind)

    def operands(self, left: Node, right: Node) -> Reg | int:
        """Leave ``left`` in r0; return the immediate or the register that is ``right``."""
        if isinstance(right, Number) and -(1 << 31) <= right.value < 1 << 31:
            self.value(left)
            return right.value
        if isinstance(right, Number) or (
            isinstance(right, ArgumentValue)
            and isinstance(right.fetch, (Register, Constant, SiteNumber))
        ):
            self.value(left)
            self.leaf(R1, right)
            return R1
        # Evaluate the side that needs more slots first, so that deep expressions need few slots.
        # The order does not matter: operands have no side effects, and the expression is
        # unreadable if either of them is.
        if self._slots(right) > self._slots(left):
            self.value(right)
            slot = self.push()
            self.value(left)
            self.asm.load(R1, R10, slot)
        else:
            self.value(left)
            slot = self.push()
            self.value(right)
            self.asm.mov(R1, R0)
            self.asm.load(R0, R10, slot)
        self.pop()
        return R1

    def _slots(self, node: Node) -> int:
        # Return the number of stack slots that the evaluation of a node needs.
        known = self._needs.get(id(node))
        if known is not None:
            return known[1]
        own = _OWN_SLOTS.get(type(node), 0)
        needs = [self._slots(child) for child in children(node)]
        if len(needs) == 2 and not isinstance(node, ShortCircuit):
            first, second = max(needs), min(needs)
            needs = [max(first, second + 1)]
        found = max(own, *needs) if needs else own
        self._needs[id(node)] = node, found  # keep the node alive, so that its ID stays unique
        return found
