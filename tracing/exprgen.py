"""Code for expressions: typed nodes in, instructions out.

Register use: r6 holds the context (``struct pt_regs``) throughout, r7–r9 belong to the caller,
results arrive in r0, r1–r5 are scratch. Nested operands wait in stack slots.

What cannot be read jumps to the ``fail`` label. In a program that may sleep (``sleepable``) a
read that finds its page absent is done again by bpf_copy_from_user(), which faults it in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpf._uapi import Helper
from bpf.errors import TracingError
from bpf.insn import R0, R1, R2, R3, R4, R6, R9, R10, Alu, Jump, Reg
from tracing.ir import (
    Arithmetic,
    Builtin,
    Compare,
    CompareText,
    CompareTexts,
    Convert,
    Deref,
    Fetched,
    Logic,
    Node,
    Not,
    Number,
    Opaque,
    Place,
    Pointer,
    children,
)
from tracing.slots import (
    FRAME_SLOT,
    KEY_SLOT,
    MARKS,
    PIDNS_SLOT,
    READ_SLOT,
    SLOTS,
    STACK_BOTTOM,
)
from tracing.textgen import write_compare_text, write_compare_texts
from tracing.values import Address, AtReturn, Constant, Kept, Memory, RecordBytes, Register

if TYPE_CHECKING:
    from bpf.assembler import Assembler
    from tracing.values import Fetch, ValueType

__all__ = ("KEY_SLOT", "PIDNS_SLOT", "READ_SLOT", "SLOTS", "STACK_BOTTOM", "ExpressionWriter")

_PAGE = 4096  # the smallest page size: stepping by it reaches every page of larger ones as well

_ALU = {
    "+": Alu.ADD,
    "-": Alu.SUB,
    "*": Alu.MUL,
    "&": Alu.AND,
    "|": Alu.OR,
    "^": Alu.XOR,
}
# For "jump if true": (unsigned, signed); the negation of each is its partner in _OPPOSITE.
_JUMPS = {
    "==": (Jump.EQ, Jump.EQ),
    "!=": (Jump.NE, Jump.NE),
    "<": (Jump.LT, Jump.SLT),
    "<=": (Jump.LE, Jump.SLE),
    ">": (Jump.GT, Jump.SGT),
    ">=": (Jump.GE, Jump.SGE),
}
# Slots that a node takes beside those of its operands.
_OWN_SLOTS: dict[type, int] = {Deref: 1, Fetched: 1, CompareText: 2, CompareTexts: 4}
# What reads the kernel's memory as the first reads a process's.
_TWINS = {
    Helper.PROBE_READ_USER: Helper.PROBE_READ_KERNEL,
    Helper.PROBE_READ_USER_STR: Helper.PROBE_READ_KERNEL_STR,
}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class ExpressionWriter:
    """Writes expressions into an assembler.

    Args:
        asm: where instructions go.
        sleepable: whether the program may take page faults now.
        fail: label to go to when something cannot be read.
        bottom: where temporaries must end, from r10; what lies below is the caller's own.
        kernel: whether addresses may be the kernel's: each is read where it points to.
    """

    def __init__(
        self,
        asm: Assembler,
        *,
        sleepable: bool,
        fail: str,
        bottom: int = STACK_BOTTOM,
        kernel: bool = False,
    ) -> None:
        self.asm = asm
        self.sleepable = sleepable
        self.fail = fail
        self._kernel = kernel
        self._bottom = bottom
        self._depth = 0
        self._needs: dict[int, tuple[Node, int]] = {}

    def value(self, node: Node) -> None:
        """Leave the value of ``node`` in r0."""
        match node:
            case Number() | Fetched(fetch=Register() | Constant()):
                self._leaf(R0, node)
            case Fetched(fetch=Address() as fetch, type=kind):
                self.asm.load(R0, R6, fetch.base, fetch.address_size)
                self.asm.mov(R1, fetch.displacement)
                self.asm.add(R0, R1)
                self._extend(R0, kind)
            case Fetched(fetch=AtReturn(register=register), type=kind):
                self._leaf(R0, Fetched(register, kind))
            case Fetched(fetch=Kept() as fetch):
                self._kept(fetch)
                self.asm.load(R0, R0, fetch.offset)
            case Fetched(fetch=RecordBytes() as fetch):
                self._record_bytes(fetch)
            case Fetched(fetch=Memory(kernel=True, size=size) as fetch, type=kind):
                self.address(fetch)
                self.asm.mov(R1, R10)
                self.asm.add(R1, READ_SLOT)
                self.asm.mov(R2, size)
                self.asm.call(Helper.PROBE_READ_KERNEL)
                self.asm.load(R0, R10, READ_SLOT, size)
                if kind.signed:
                    self._extend(R0, kind)
            case Fetched(fetch=fetch, type=kind):
                self.address(fetch)
                self._read(kind)
            case Builtin(name=name):
                self._builtin(name)
            case Convert(operand=operand, type=kind):
                self.value(operand)
                if _changes(operand.type, kind):
                    self._extend(R0, kind)
            case Pointer(address=address) | Place(address=address):
                self.value(address)
            case Deref(address=address, type=kind):
                self.value(address)
                self.asm.mov(R3, R0)
                self._read(kind)
            case Arithmetic():
                self._arithmetic(node)
            case Opaque():
                self.asm.goto(self.fail)
            case Compare() | CompareText() | CompareTexts() | Logic() | Not():
                self._truth(node)

    def _kept(self, fetch: Kept) -> None:
        # The frame's address in r0; to "fail" if what is wanted could not be read at entry.
        self.asm.load(R0, R10, FRAME_SLOT)
        if fetch.bit >= 0:
            self.asm.load(R1, R0, MARKS)
            self.asm.alu(Alu.RSH, R1, fetch.bit)
            self.asm.alu(Alu.AND, R1, 1)
            self.asm.jump(Jump.NE, R1, 0, self.fail)

    def copy_kept(self, fetch: Kept, base: Reg, offset: int, size: int) -> None:
        """Copy so many bytes out of a frame to ``base + offset``."""
        self._kept(fetch)
        self.asm.mov(R3, R0)
        self.asm.add(R3, fetch.offset)
        self.asm.mov(R1, base)
        self.asm.add(R1, offset)
        self.asm.mov(R2, size)
        self.asm.call(Helper.PROBE_READ_KERNEL)

    def branch(self, node: Node, label: str, *, when: bool) -> None:
        """Go to ``label`` if the truth of ``node`` is ``when``; otherwise fall through."""
        match node:
            case Number(value=value):
                if bool(value) is when:
                    self.asm.goto(label)
            case Compare():
                self._compare(node, label, when=when)
            case CompareText():
                write_compare_text(self, node, label, when=when)
            case CompareTexts():
                write_compare_texts(self, node, label, when=when)
            case Not(operand=operand):
                self.branch(operand, label, when=not when)
            case Logic():
                self._logic(node, label, when=when)
            case Opaque():
                self.asm.goto(self.fail)
            case _:
                self.value(node)
                self.asm.jump(Jump.NE if when else Jump.EQ, R0, 0, label)

    def address(self, fetch: Fetch) -> None:
        """Leave the address of a memory operand in r3."""
        if not isinstance(fetch, Memory):
            raise TracingError(f"no address: {fetch}")
        asm = self.asm
        width = fetch.address_size
        if fetch.base is None:
            asm.mov(R3, 0)
        else:
            asm.load(R3, R6, fetch.base, width)
        if fetch.index is not None:
            narrow = fetch.index_type
            asm.load(R4, R6, fetch.index, width if narrow is None else narrow.size)
            if narrow is not None and narrow.signed:
                self._extend(R4, narrow)
            if fetch.scale > 1:
                asm.alu(Alu.LSH, R4, fetch.scale.bit_length() - 1)
            asm.add(R3, R4)
        if -(1 << 31) <= fetch.displacement < 1 << 31:
            asm.add(R3, fetch.displacement)
        else:
            asm.mov(R4, fetch.displacement)
            asm.add(R3, R4)
        if width == 4:
            asm.alu(Alu.LSH, R3, 32)
            asm.alu(Alu.RSH, R3, 32)

    def _record_bytes(self, fetch: RecordBytes) -> None:
        # The address of bytes in the event's record.
        asm = self.asm
        if fetch.location == "here":
            asm.mov(R0, R6)
            asm.add(R0, fetch.offset)
            return
        asm.load(R1, R6, fetch.offset, 4)
        asm.mov(R0, R1)
        asm.alu(Alu.RSH, R0, 16)
        asm.jump(Jump.EQ, R0, 0, self.fail)  # no bytes, not even a NUL
        asm.alu(Alu.AND, R1, 0xFFFF)
        asm.mov(R0, R6)
        asm.add(R0, R1)
        if fetch.location == "rel_loc":
            asm.add(R0, fetch.offset + 4)

    def call_reader(self, helper: Helper) -> None:
        """Call a helper that reads the process's memory at r3, or the kernel's twin of it.

        Whose memory an address is tells its highest bit, which only the kernel's have.
        """
        asm = self.asm
        if not self._kernel:
            asm.call(helper)
            return
        theirs, done = asm.new_label("kernel"), asm.new_label("read")
        asm.jump(Jump.SLT, R3, 0, theirs)
        asm.call(helper)
        asm.goto(done)
        asm.label(theirs)
        asm.call(_TWINS[helper])
        asm.label(done)

    def touch(self, size: int) -> None:
        """Fault in the pages of ``size`` bytes at the address in r0; what fails is ignored."""
        slot = self.push()
        steps = [*range(0, size, _PAGE), size - 1] if size > 1 else [0]
        for step in dict.fromkeys(steps):
            self.asm.load(R3, R10, slot)
            self.asm.add(R3, step)
            self.call_read(Helper.COPY_FROM_USER, READ_SLOT, 1)
        self.pop()

    def count_nul(self) -> None:
        """Make the length of an empty string 1, what bpf_probe_read_user_str() left in r0.

        Since Linux 6.16 ("maccess: fix strncpy_from_user_nofault() empty string handling") it
        counts the NUL of an empty string as that of every other. Before that, it returns 0.
        """
        counted = self.asm.new_label("counted")
        self.asm.jump(Jump.NE, R0, 0, counted)
        self.asm.mov(R0, 1)
        self.asm.label(counted)

    def _leaf(self, dst: Reg, node: Node) -> None:
        match node:
            case Number(value=value):
                self.asm.mov(dst, value)
            case Fetched(fetch=Constant(value=value)):
                self.asm.mov(dst, value)
            case Fetched(fetch=Register(offset=offset, size=size), type=kind):
                self.asm.load(dst, R6, offset, size)
                if kind.signed:
                    self._extend(dst, kind)

    def _extend(self, dst: Reg, kind: ValueType) -> None:
        shift = 64 - kind.size * 8
        if shift:
            self.asm.alu(Alu.LSH, dst, shift)
            self.asm.alu(Alu.ARSH if kind.signed else Alu.RSH, dst, shift)

    def _read(self, kind: ValueType) -> None:
        # The value at the address in r3, into r0.
        asm = self.asm
        if self.sleepable:
            slot = self.push(R3)
            done = asm.new_label("read")
            self.call_read(Helper.PROBE_READ_USER, READ_SLOT, kind.size)
            asm.jump(Jump.EQ, R0, 0, done)
            asm.load(R3, R10, slot)
            self.call_read(Helper.COPY_FROM_USER, READ_SLOT, kind.size)
            asm.jump(Jump.NE, R0, 0, self.fail)
            asm.label(done)
            self.pop()
        else:
            self.call_read(Helper.PROBE_READ_USER, READ_SLOT, kind.size)
            asm.jump(Jump.NE, R0, 0, self.fail)
        asm.load(R0, R10, READ_SLOT, kind.size)
        if kind.signed:
            self._extend(R0, kind)

    def call_read(self, helper: Helper, slot: int, size: int) -> None:
        """Call a helper that reads memory at the address in r3 into so many bytes of the stack."""
        self.asm.mov(R1, R10)
        self.asm.add(R1, slot)
        self.asm.mov(R2, size)
        self.call_reader(helper)

    def _builtin(self, name: str) -> None:
        asm = self.asm
        if name in ("pid", "tid"):
            asm.mov(R0, R9)  # pid_tgid, kept there by the caller
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

    def _operands(self, left: Node, right: Node) -> Reg | int:
        # left into r0; right as an immediate or in r1.
        if isinstance(right, Number) and -(1 << 31) <= right.value < 1 << 31:
            self.value(left)
            return right.value
        if isinstance(right, Number) or (
            isinstance(right, Fetched) and isinstance(right.fetch, (Register, Constant))
        ):
            self.value(left)
            self._leaf(R1, right)
            return R1
        # The side that needs more slots goes first, so that even deep expressions need few. Neither
        # has an effect but to be unreadable, and then the whole is, whichever it was.
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
        # How many slots of the stack evaluating a node takes.
        known = self._needs.get(id(node))
        if known is not None:
            return known[1]
        own = _OWN_SLOTS.get(type(node), 0)
        needs = [self._slots(child) for child in children(node)]
        if len(needs) == 2 and not isinstance(node, Logic):
            first, second = max(needs), min(needs)
            needs = [max(first, second + 1)]
        found = max(own, *needs) if needs else own
        self._needs[id(node)] = node, found  # kept with it: an ID is of what lives
        return found

    def _arithmetic(self, node: Arithmetic) -> None:
        asm = self.asm
        if node.right is None:
            self.value(node.left)
            if node.op == "-":
                asm.alu(Alu.NEG, R0)
            else:
                asm.alu(Alu.XOR, R0, -1)
            self._extend(R0, node.type)
            return
        operand = self._operands(node.left, node.right)
        if node.op in ("/", "%"):
            self._divide(node, operand)
        elif node.op in ("<<", ">>"):
            self._shift(node, operand)
        else:
            asm.alu(_ALU[node.op], R0, operand)
        self._extend(R0, node.type)

    def _shift(self, node: Arithmetic, operand: Reg | int) -> None:
        mask = node.type.size * 8 - 1
        if isinstance(operand, Reg):
            self.asm.alu(Alu.AND, operand, mask)
        else:
            operand &= mask
        right = Alu.ARSH if node.type.signed else Alu.RSH
        self.asm.alu(Alu.LSH if node.op == "<<" else right, R0, operand)

    def _divide(self, node: Arithmetic, operand: Reg | int) -> None:
        # eBPF divides unsigned numbers (signed division came with Linux 6.6), and by zero it
        # gives 0, which nobody asked for.
        asm = self.asm
        if not isinstance(operand, Reg):
            asm.mov(R1, operand)
        if not isinstance(node.right, Number):  # a constant is not 0: that was folded
            asm.jump(Jump.EQ, R1, 0, self.fail)
        op = Alu.DIV if node.op == "/" else Alu.MOD
        if not node.type.signed:
            asm.alu(op, R0, R1)
            return
        asm.mov(R2, R0)  # the sign of the result: of the quotient, or of the left side for %
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

    def _truth(self, node: Node) -> None:
        no, done = self.asm.new_label("no"), self.asm.new_label("done")
        self.branch(node, no, when=False)
        self.asm.mov(R0, 1)
        self.asm.goto(done)
        self.asm.label(no)
        self.asm.mov(R0, 0)
        self.asm.label(done)

    def _compare(self, node: Compare, label: str, *, when: bool) -> None:
        operand = self._operands(node.left, node.right)
        op = node.op if when else _OPPOSITE[node.op]
        self.asm.jump(_JUMPS[op][node.operands.signed], R0, operand, label)

    def _logic(self, node: Logic, label: str, *, when: bool) -> None:
        # One side alone decides: a true one for ||, a false one for &&.
        if when is (node.op == "||"):
            self.branch(node.left, label, when=when)
            self.branch(node.right, label, when=when)
            return
        past = self.asm.new_label("past")
        self.branch(node.left, past, when=not when)
        self.branch(node.right, label, when=when)
        self.asm.label(past)

    def push(self, source: Reg = R0) -> int:
        """Keep a register in a slot of the stack; its offset from r10.

        Raises:
            TracingError: no slot is left.
        """
        self._depth += 1
        slot = SLOTS - 8 * self._depth
        if slot < self._bottom:
            raise TracingError("an expression is nested too deeply for the BPF stack; simplify it")
        self.asm.store(R10, slot, source)
        return slot

    def pop(self) -> None:
        """Give the last slot back."""
        self._depth -= 1


def _changes(source: ValueType, target: ValueType) -> bool:
    # Whether a number of the source type may lie outside the target type.
    if target.size == 8:
        return False
    if source.signed == target.signed:
        return source.size > target.size
    return source.signed or source.size >= target.size
