"""Code generation: plans in, one eBPF program out.

A program serves one or more *cases*, each a plan with a probe's index. With several, the
attach cookie of the site that was hit says which, by a binary search in the code itself. Values
are read straight from ``struct pt_regs``: no interpreter, no map look-up.

For every case:

    predicates        all of them before anything is reserved or copied
    body              reserve a record, fill it without ever sleeping, submit it
    refault           only in sleepable programs, only after a read found its page absent:
                      give the record back, fault the pages in, do the body once more

A record is never held while the program sleeps: readers cannot pass a record that is reserved,
so a page that takes seconds to come (or never does, with userfaultfd) would stop the whole
session.

Register use: r6 context, r7 record, r8 attempt (0, then 1), r9 pid_tgid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpf._uapi import Helper
from bpf.assembler import Assembler, Code
from bpf.frozen import frozen
from bpf.insn import R0, R1, R2, R3, R4, R6, R7, R8, R9, R10, Alu, Jump
from tracing.exprgen import KEY_SLOT, PIDNS_SLOT, ExpressionWriter
from tracing.ir import Fetched, Number
from tracing.values import Kind, Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bpf.insn import Reg
    from tracing.ir import Node
    from tracing.plan import Output, Plan

__all__ = ("COUNTERS", "EVENTS", "Case", "Filter", "generate")

EVENTS = "events"  # ring buffer
COUNTERS = "counters"  # array: probe index → u64 lost, u64 predicates that could not be read
_WAKEUP = 0  # flags: wake the reader if it has caught up; see bpf/ringbuf.py
_FAULT = -14  # EFAULT
_REACH = 1 << 15  # of the signed 16-bit offset of loads and stores
_FIRST_ADDRESS = 4096  # below it lies no data: NULL and its members


@frozen
class Case:
    """A plan at one probe. ``number`` is its cookie and stands in its records."""

    number: int
    probe: int
    plan: Plan


@frozen
class Filter:
    """Which processes count.

    Attributes:
        pids: process IDs as the tracer sees them; empty: all.
        namespace: (device, inode) of the tracer's PID namespace where that is not the initial
            one, for bpf_get_ns_current_pid_tgid (Linux 5.7, commit b4490c5c4e02); else None.
    """

    pids: tuple[int, ...] = ()
    namespace: tuple[int, int] | None = None


def generate(cases: Sequence[Case], accept: Filter, *, sleepable: bool) -> Code:
    """The program of ``cases``.

    Raises:
        CodeTooLarge: too many cases for one program; give fewer.
    """
    asm = Assembler()
    asm.mov(R6, R1)
    _process(asm, accept)
    if len(cases) > 1:
        asm.mov(R1, R6)
        asm.call(Helper.GET_ATTACH_COOKIE)
        _dispatch(asm, sorted(case.number for case in cases))
    for case in cases:
        asm.label(f"case.{case.number}")
        _CaseWriter(asm, case, sleepable=sleepable and case.plan.faultable).write()
    _tails(asm)
    return asm.assemble()


def _process(asm: Assembler, accept: Filter) -> None:
    # r9 = pid_tgid; leave if the process is none of those wanted.
    if accept.namespace is None:
        asm.call(Helper.GET_CURRENT_PID_TGID)
        asm.mov(R9, R0)
    else:
        device, inode = accept.namespace
        asm.mov(R1, device)
        asm.mov(R2, inode)
        asm.mov(R3, R10)
        asm.add(R3, PIDNS_SLOT)
        asm.mov(R4, 8)
        asm.call(Helper.GET_NS_CURRENT_PID_TGID)
        asm.jump(Jump.NE, R0, 0, "exit")  # a process outside our namespace: it has no number here
        asm.load(R9, R10, PIDNS_SLOT + 4, 4)
        asm.alu(Alu.LSH, R9, 32)
        asm.load(R1, R10, PIDNS_SLOT, 4)
        asm.alu(Alu.OR, R9, R1)
    if accept.pids:
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        for pid in accept.pids:
            asm.jump(Jump.EQ, R1, pid, "accepted")
        asm.goto("exit")
        asm.label("accepted")


def _dispatch(asm: Assembler, numbers: list[int]) -> None:
    # Binary search for the cookie in r0.
    if len(numbers) == 1:
        asm.jump(Jump.EQ, R0, numbers[0], f"case.{numbers[0]}")
        asm.goto("exit")
        return
    middle = len(numbers) // 2
    upper = asm.new_label("from")
    asm.jump(Jump.GE, R0, numbers[middle], upper)
    _dispatch(asm, numbers[:middle])
    asm.label(upper)
    _dispatch(asm, numbers[middle:])


def _tails(asm: Assembler) -> None:
    # Shared ends: r8 = probe index, r7 = offset of the counter to increment.
    asm.label("count")
    asm.store(R10, KEY_SLOT, R8, 4)
    asm.load_map(R1, COUNTERS)
    asm.mov(R2, R10)
    asm.add(R2, KEY_SLOT)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.EQ, R0, 0, "exit")
    asm.mov(R1, 1)
    second = asm.new_label("second")
    asm.jump(Jump.NE, R7, 0, second)
    asm.atomic_add(R0, 0, R1)
    asm.goto("exit")
    asm.label(second)
    asm.atomic_add(R0, 8, R1)
    asm.label("exit")
    asm.mov(R0, 0)
    asm.exit()


class _CaseWriter:
    def __init__(self, asm: Assembler, case: Case, *, sleepable: bool) -> None:
        self.asm = asm
        self.case = case
        self.plan = case.plan
        self.sleepable = sleepable
        self._name = case.number

    def write(self) -> None:
        if self.plan.never:
            self.asm.goto("exit")
            return
        self._predicates()
        self._body()
        self._counted(f"lost.{self._name}", 0)
        if self.plan.predicates:
            self._counted(f"unread.{self._name}", 1)
        if self.sleepable:
            self._refault()

    def _predicates(self) -> None:
        fail = f"unread.{self._name}"
        writer = ExpressionWriter(self.asm, sleepable=self.sleepable, fail=fail)
        for node in self.plan.predicates:
            writer.branch(node, "exit", when=False)

    def _counted(self, label: str, counter: int) -> None:
        self.asm.label(label)
        self.asm.mov(R8, self.case.probe)
        self.asm.mov(R7, counter)
        self.asm.goto("count")

    def _body(self) -> None:
        asm = self.asm
        if self.sleepable:
            asm.mov(R8, 0)
            asm.label(f"body.{self._name}")
        asm.load_map(R1, EVENTS)
        asm.mov(R2, self.plan.size)
        asm.mov(R3, 0)
        asm.call(Helper.RINGBUF_RESERVE)
        asm.jump(Jump.EQ, R0, 0, f"lost.{self._name}")
        asm.mov(R7, R0)
        self._header()
        if self.plan.marks >= 0:
            asm.store(R7, self.plan.marks, 0)
        for index, output in enumerate(self.plan.outputs):
            if output.offset >= 0:
                self._output(index, output)
        asm.mov(R1, R7)
        asm.mov(R2, _WAKEUP)
        asm.call(Helper.RINGBUF_SUBMIT)
        asm.goto("exit")

    def _header(self) -> None:
        asm = self.asm
        asm.call(Helper.KTIME_GET_NS)
        asm.store(R7, 0, R0)
        asm.store(R7, 8, R9, 4)
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        asm.store(R7, 12, R1, 4)
        asm.call(Helper.GET_SMP_PROCESSOR_ID)
        asm.store(R7, 16, R0, 4)
        asm.store(R7, 20, self.case.number, 4)
        asm.mov(R1, R7)
        asm.add(R1, 24)
        asm.mov(R2, 16)
        asm.call(Helper.GET_CURRENT_COMM)

    def _output(self, index: int, output: Output) -> None:
        if output.form in ("string", "buffer"):
            self._text(output)
            return
        fail, done = self.asm.new_label("fail"), self.asm.new_label("done")
        writer = ExpressionWriter(self.asm, sleepable=False, fail=fail)
        if output.form == "bytes":
            self._copy(writer, output)
        else:
            writer.value(output.node)
            size = output.node.type.size if output.form == "float" else 8
            self.asm.store(*self._place(output, R1), R0, size)
        if output.fallible:
            self.asm.goto(done)
            self.asm.label(fail)
            self._retry()
            self.asm.load(R1, R7, self.plan.marks)
            if index < 31:
                self.asm.alu(Alu.OR, R1, 1 << index)
            else:
                self.asm.mov(R2, 1 << index)
                self.asm.alu(Alu.OR, R1, R2)
            self.asm.store(R7, self.plan.marks, R1)
            self.asm.label(done)

    def _copy(self, writer: ExpressionWriter, output: Output) -> None:
        # A value of any size, from memory into the record.
        writer.address(_memory(output.node))
        self.asm.mov(R1, R7)
        self.asm.add(R1, output.offset)
        self.asm.mov(R2, output.node.type.size)
        self.asm.call(Helper.PROBE_READ_USER)
        self.asm.jump(Jump.NE, R0, 0, writer.fail)

    def _place(self, output: Output, scratch: Reg) -> tuple[Reg, int]:
        # An instruction's offset reaches 32 KiB; what lies farther gets a register of its own.
        if output.offset < _REACH:
            return R7, output.offset
        self.asm.mov(scratch, R7)
        self.asm.add(scratch, output.offset)
        return scratch, 0

    def _retry(self) -> None:
        # On the first attempt, give up the record and fault the pages in.
        if self.sleepable:
            self.asm.jump(Jump.EQ, R8, 0, f"refault.{self._name}")

    def _text(self, output: Output) -> None:
        asm = self.asm
        fail, done = asm.new_label("fail"), asm.new_label("done")
        writer = ExpressionWriter(asm, sleepable=False, fail=fail)
        helper = Helper.PROBE_READ_USER_STR if output.form == "string" else Helper.PROBE_READ_USER
        asm.store(*self._place(output, R1), 0)
        if output.length is not None and not isinstance(output.length, Number):
            writer.value(output.length)
            self._clamp(output, signed=output.length.type.signed)
        elif output.length is not None:
            asm.store(*self._place(output, R1), output.size)
        writer.value(output.node)
        asm.mov(R3, R0)
        asm.mov(R1, R7)
        asm.add(R1, output.offset + 8)
        if output.form == "string" or isinstance(output.length, Number):
            asm.mov(R2, output.size)
        else:
            asm.load(R2, *self._place(output, R2))
            asm.jump(Jump.GT, R2, output.size, fail)  # never; tells the verifier the bound
        asm.call(helper)
        asm.jump(Jump.SLT, R0, 0, fail)
        if output.form == "string":
            writer.count_nul()
            asm.store(*self._place(output, R1), R0)
        asm.goto(done)
        asm.label(fail)
        self._retry()
        asm.store(*self._place(output, R1), _FAULT)
        asm.label(done)

    def _clamp(self, output: Output, *, signed: bool) -> None:
        # The length in r0, at least 0 and at most the room, into the record, which holds 0.
        asm = self.asm
        big, stored = asm.new_label("big"), asm.new_label("stored")
        if signed:
            asm.jump(Jump.SLT, R0, 0, stored)
        asm.jump(Jump.GT, R0, output.size, big)
        asm.store(*self._place(output, R1), R0)
        asm.goto(stored)
        asm.label(big)
        asm.store(*self._place(output, R1), output.size)
        asm.label(stored)

    def _refault(self) -> None:
        asm = self.asm
        asm.label(f"refault.{self._name}")
        asm.mov(R1, R7)
        # What was submitted behind this record did not wake the reader: it waits for this one.
        asm.mov(R2, _WAKEUP)
        asm.call(Helper.RINGBUF_DISCARD)
        for output in self.plan.outputs:
            if output.length is not None:
                self._fault_in(output.length)
            if output.form in ("string", "buffer", "bytes"):
                self._fault_in(output.node, output.size)
            elif output.fallible:
                self._fault_in(output.node)
        asm.mov(R8, 1)
        asm.goto(f"body.{self._name}")

    def _fault_in(self, node: Node, size: int = 0) -> None:
        # Evaluate the node, and touch so many bytes at the address it is, or lies at.
        skip = self.asm.new_label("next")
        writer = ExpressionWriter(self.asm, sleepable=True, fail=skip)
        if node.type.kind is Kind.BYTES:
            writer.address(_memory(node))
            self.asm.mov(R0, R3)
        else:
            writer.value(node)
        if size:
            self.asm.jump(Jump.LT, R0, _FIRST_ADDRESS, skip)
            writer.touch(size)
        self.asm.label(skip)


def _memory(node: Node) -> Memory:
    if isinstance(node, Fetched) and isinstance(node.fetch, Memory):
        return node.fetch
    raise TypeError(f"an aggregate lies in memory, not in {node}")
