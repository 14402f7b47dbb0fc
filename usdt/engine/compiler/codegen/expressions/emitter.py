"""Code for all expressions, as a value in r0 or as a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    Address,
    AtFunctionReturn,
    Captured,
    Constant,
    ContextArea,
    CurrentTask,
    Memory,
    PerCpuAddress,
    Register,
    SiteNumber,
    TypedContextWord,
    Unreadable,
)
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R3, R6, R9, Alu, Jump
from usdt.engine.compiler.codegen.current_task import emit_member, member_offset
from usdt.engine.compiler.codegen.expressions.operands import OperandEmitter
from usdt.engine.compiler.ir import (
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
    StringEquals,
    StringEqualsConst,
    StringMatches,
    Unavailable,
    narrows,
)

if TYPE_CHECKING:
    from usdt.arch.locations import ValueType

__all__ = ("ExpressionEmitter",)

# Operator → the jump if it is true: (unsigned, signed).
_JUMPS = {
    "==": (Jump.EQ, Jump.EQ),
    "!=": (Jump.NE, Jump.NE),
    "<": (Jump.LT, Jump.SLT),
    "<=": (Jump.LE, Jump.SLE),
    ">": (Jump.GT, Jump.SGT),
    ">=": (Jump.GE, Jump.SGE),
}


class ExpressionEmitter(OperandEmitter):
    """Emits expressions; the arguments are those of :class:`.memory.MemoryReadEmitter`."""

    def value(self, node: Node) -> None:
        """Emit code that leaves the value of ``node`` in r0."""
        match node:
            case Number() | ArgumentValue(fetch=Register() | Constant() | SiteNumber()):
                self.leaf(R0, node)
            case ArgumentValue(fetch=Address() as fetch, type=kind):
                self.asm.load(R0, R6, fetch.base, fetch.address_size)
                self.displacement(R1, fetch)
                self.asm.add(R0, R1)
                self.extend(R0, kind)
            case ArgumentValue(fetch=PerCpuAddress() as fetch):
                self._builtin("cpu")
                self.per_cpu(fetch)
            case ArgumentValue(fetch=AtFunctionReturn(register=register), type=kind):
                self.value(ArgumentValue(register, kind))
            case ArgumentValue(fetch=Captured() as fetch):
                self.kept(fetch)
                self.asm.load(R0, R0, fetch.offset)
            case ArgumentValue(fetch=ContextArea() as fetch):
                self.record_bytes(fetch)
            case ArgumentValue(fetch=Memory(kernel=True) | TypedContextWord() as fetch, type=kind):
                self.read_kernels(fetch, kind)
            case ArgumentValue(fetch=CurrentTask()):
                self.asm.call(Helper.GET_CURRENT_TASK)
            case ArgumentValue(fetch=Unreadable()) | Unavailable() | RegisterAggregate():
                self.asm.goto(self.fail)
            case ArgumentValue(fetch=fetch, type=kind):
                self.address(fetch)
                self.read(kind)
            case Builtin(name=name):
                self._builtin(name)
            case Convert(operand=operand, type=kind):
                self.value(operand)
                if narrows(operand.type, kind):
                    self.extend(R0, kind)
            case PointerExpr(address=address) | LValue(address=address):
                self.value(address)
            case Deref(address=address, type=kind, kernel=kernel):
                self._number_at(address, kind, kernel=kernel)
            case Arithmetic():
                self._arithmetic(node)
            case (
                Compare()
                | StringEqualsConst()
                | StringEquals()
                | StringMatches()
                | ShortCircuit()
                | Not()
            ):
                self._truth(node)

    def branch(self, node: Node, label: str, *, when: bool) -> None:
        """Emit a branch to ``label`` if ``node`` is true (``when``) or false (not ``when``)."""
        match node:
            case Number(value=value):
                if bool(value) is when:
                    self.asm.goto(label)
            case Compare():
                self._compare(node, label, when=when)
            case StringEqualsConst() | StringEquals() | StringMatches():
                self._compare_text(node, label, when=when)
            case Not(operand=operand):
                self.branch(operand, label, when=not when)
            case ShortCircuit():
                self._logic(node, label, when=when)
            case Unavailable() | RegisterAggregate():
                self.asm.goto(self.fail)
            case _:
                self.value(node)
                self.asm.jump(Jump.NE if when else Jump.EQ, R0, 0, label)

    def _number_at(self, address: Node, kind: ValueType, *, kernel: bool) -> None:
        offset = member_offset(address, kind.size) if kernel else None
        if offset is None:
            self.value(address)
            self.asm.mov(R3, R0)
            self.read(kind, kernel=kernel)
            return
        emit_member(self.asm, offset, kind.size)
        if kind.signed:
            self.extend(R0, kind)

    def _builtin(self, name: str) -> None:
        asm = self.asm
        if name in ("pid", "tid"):
            asm.mov(R0, R9)  # pid_tgid
            if name == "tid":
                asm.alu(Alu.LSH, R0, 32)
            asm.alu(Alu.RSH, R0, 32)
        elif name in ("uid", "gid"):
            asm.call(Helper.GET_CURRENT_UID_GID)
            if name == "uid":
                asm.alu(Alu.LSH, R0, 32)
            asm.alu(Alu.RSH, R0, 32)
        else:
            asm.call(
                {
                    "cpu": Helper.GET_SMP_PROCESSOR_ID,
                    "ts": Helper.KTIME_GET_NS,
                    "cgroup": Helper.GET_CURRENT_CGROUP_ID,
                }[name]
            )

    def _arithmetic(self, node: Arithmetic) -> None:
        # Few runs compute.
        from usdt.engine.compiler.codegen.expressions import arithmetic  # noqa: PLC0415

        arithmetic.emit_arithmetic(self, node)

    def _truth(self, node: Node) -> None:
        no, done = self.asm.new_label("no"), self.asm.new_label("done")
        self.branch(node, no, when=False)
        self.asm.mov(R0, 1)
        self.asm.goto(done)
        self.asm.label(no)
        self.asm.mov(R0, 0)
        self.asm.label(done)

    def _compare(self, node: Compare, label: str, *, when: bool) -> None:
        operand = self.operands(node.left, node.right)
        op = node.op if when else node.opposite
        self.asm.jump(_JUMPS[op][node.operands.signed], R0, operand, label)

    def _compare_text(
        self, node: StringEqualsConst | StringEquals | StringMatches, label: str, *, when: bool
    ) -> None:
        # Few runs compare text.
        from usdt.engine.compiler.codegen.expressions import patterns, strings  # noqa: PLC0415

        match node:
            case StringEqualsConst():
                strings.emit_compare_with_constant(self, node, label, when=when)
            case StringEquals():
                strings.emit_compare_strings(self, node, label, when=when)
            case StringMatches():
                patterns.emit_match(self, node, label, when=when)

    def _logic(self, node: ShortCircuit, label: str, *, when: bool) -> None:
        # If the label is for a true || or a false &&, either side alone leads to it.
        if when is (node.op == "||"):
            self.branch(node.left, label, when=when)
            self.branch(node.right, label, when=when)
            return
        past = self.asm.new_label("past")
        self.branch(node.left, past, when=not when)
        self.branch(node.right, label, when=when)
        self.asm.label(past)
