"""Code for arithmetic; :mod:`usdt.engine.compiler.codegen.expressions` lists the registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.bpf.asm.insn import R0, R1, R2, Alu, Jump, Reg
from usdt.engine.compiler.ir import Number

if TYPE_CHECKING:
    from usdt.engine.compiler.codegen.expressions.operands import OperandEmitter
    from usdt.engine.compiler.ir import Arithmetic

__all__ = ("emit_arithmetic",)

_ALU = {
    "+": Alu.ADD,
    "-": Alu.SUB,
    "*": Alu.MUL,
    "&": Alu.AND,
    "|": Alu.OR,
    "^": Alu.XOR,
}


def emit_arithmetic(writer: OperandEmitter, node: Arithmetic) -> None:
    """Emit code that leaves the value of ``node`` in r0."""
    asm = writer.asm
    if node.right is None:
        writer.value(node.left)
        if node.op == "-":
            asm.alu(Alu.NEG, R0)
        else:
            asm.alu(Alu.XOR, R0, -1)
        writer.extend(R0, node.type)
        return
    operand = writer.operands(node.left, node.right)
    if node.op in ("/", "%"):
        _divide(writer, node, operand)
    elif node.op in ("<<", ">>"):
        _shift(writer, node, operand)
    else:
        asm.alu(_ALU[node.op], R0, operand)
    writer.extend(R0, node.type)


def _shift(writer: OperandEmitter, node: Arithmetic, operand: Reg | int) -> None:
    mask = node.type.size * 8 - 1
    if isinstance(operand, Reg):
        writer.asm.alu(Alu.AND, operand, mask)
    else:
        operand &= mask
    right = Alu.ARSH if node.type.signed else Alu.RSH
    writer.asm.alu(Alu.LSH if node.op == "<<" else right, R0, operand)


def _divide(writer: OperandEmitter, node: Arithmetic, operand: Reg | int) -> None:
    # eBPF before Linux 6.6 has unsigned division only. A division by zero gives 0 in eBPF, but here
    # it makes the value unreadable.
    asm = writer.asm
    if not isinstance(operand, Reg):
        asm.mov(R1, operand)
    if not isinstance(node.right, Number):  # a constant 0 has been folded
        asm.jump(Jump.EQ, R1, 0, writer.fail)
    op = Alu.DIV if node.op == "/" else Alu.MOD
    if not node.type.signed:
        asm.alu(op, R0, R1)
        return
    asm.mov(R2, R0)  # the sign of the result: for % that of the left side
    if node.op == "/":
        asm.alu(Alu.XOR, R2, R1)
    for register in (R0, R1):
        positive = asm.new_label("abs")
        asm.jump(Jump.SGE, register, 0, positive)
        asm.alu(Alu.NEG, register)
        asm.label(positive)
    asm.alu(op, R0, R1)
    done = asm.new_label("sign")
    asm.jump(Jump.SGE, R2, 0, done)
    asm.alu(Alu.NEG, R0)
    asm.label(done)
