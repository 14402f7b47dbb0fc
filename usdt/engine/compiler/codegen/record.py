"""Code that writes the record of a hit.

    body       reserve a record in the ring buffer, fill it without sleeping, submit it
    fault_in   only in sleepable programs, only after a read found an absent page:
               discard the record, fault the pages in, run the body again

A program never sleeps while it has a reserved record, because readers cannot skip one. A page
that takes seconds to fault in (or never does, with userfaultfd) would block the session.

Registers: r6 context, r7 record, r8 attempt (0, then 1), r9 pid_tgid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.arch.locations import ValueClass
from usdt.arch.unwinding import STACK_POINTERS, STACK_UNIT
from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R7, R8, R10, Alu, Jump
from usdt.bpf.rings.groups import ONE_RING, ring_groups
from usdt.cpython.stack_record import SLOT_SIZE
from usdt.engine.compiler.codegen.current_task import emit_task
from usdt.engine.compiler.codegen.expressions import STACK_BOTTOM, ExpressionEmitter
from usdt.engine.compiler.codegen.model import ActionEmitter, stack_flags
from usdt.engine.compiler.codegen.ring_writes import RingWriter
from usdt.engine.compiler.codegen.stack_slots import SITE_SLOT
from usdt.engine.compiler.ir import Number, RegisterAggregate, of_kernel
from usdt.engine.compiler.limits import FIRST_ADDRESS
from usdt.engine.compiler.record.columns import (
    ArrayColumn,
    BufferColumn,
    BytesColumn,
    CgroupColumn,
    CommColumn,
    ConstColumn,
    FloatColumn,
    IntColumn,
    SocketAddressColumn,
    StackColumn,
    StackCopyColumn,
    StringColumn,
    StructColumn,
    StructListColumn,
    SymbolColumn,
    UnavailableColumn,
)
from usdt.engine.compiler.record.length_prefix import FAULT, MAX_LENGTH, NO_ADDRESS, NULL
from usdt.engine.language.tree import StackKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.bpf.rings.groups import RingGroups
    from usdt.engine.compiler.codegen.model import Labels, ProgramVariant
    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.outputs import Output

__all__ = ("IDS", "RECORD_ACTION", "RecordAction", "RecordEmitter")

IDS = 8  # where a record has the IDs of its task
_MAX_OFFSET = 1 << 15  # loads and stores have a signed 16-bit offset


class RecordAction(ActionEmitter):
    """The action that writes a record."""

    shares_code = True
    writes_to_arrays = True

    def __init__(self, groups: RingGroups | None = None) -> None:
        self._groups = groups

    def emit(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the code that writes the record."""
        RecordEmitter(asm, variant, labels, sleepable=sleepable, groups=self.groups).emit()

    @property
    def groups(self) -> RingGroups:
        """How the CPUs of this machine share ring buffers."""
        return self._groups or ring_groups()

    def into(self, groups: RingGroups) -> RecordAction:
        """Return the action that writes to these ring buffers."""
        return RecordAction(groups)


RECORD_ACTION = RecordAction()


class RecordEmitter:
    """Emits the code that writes a record; a subclass fills entry state with it."""

    def __init__(
        self,
        asm: Assembler,
        variant: ProgramVariant,
        labels: Labels,
        *,
        sleepable: bool,
        groups: RingGroups = ONE_RING,
    ) -> None:
        self.asm = asm
        self.variant = variant
        self.plan = variant.plan
        self.labels = labels
        self.sleepable = sleepable
        self.groups = groups
        self.ring = RingWriter(asm, R7, self.plan.size, groups)
        self.again = asm.new_label("body")
        self._fault_in_label = asm.new_label("fault_in")

    def emit(self) -> None:
        """Emit the body and, in a sleepable program, the code that faults pages in."""
        self._body()
        if self.sleepable:
            self._fault_in_and_retry()

    def _body(self) -> None:
        asm = self.asm
        if self.sleepable:
            asm.mov(R8, 0)
            asm.label(self.again)
        self.ring.reserve(self.labels.lost)
        self._fill()
        self.ring.submit()
        asm.goto(self.labels.exit)

    def _fill(self) -> None:
        self._time()
        self._place()
        emit_task(self.asm, R7, IDS)
        self._values()

    def _values(self) -> None:
        if self.plan.bitmap_offset is not None:
            self.asm.store(R7, self.plan.bitmap_offset, 0)
        for index, output in enumerate(self.plan.outputs):
            self._output(index, output)

    def _time(self) -> None:
        self.asm.call(Helper.KTIME_GET_NS)
        self.asm.store(R7, 0, R0)

    def _place(self) -> None:
        # CPU and variant
        asm = self.asm
        asm.call(Helper.GET_SMP_PROCESSOR_ID)
        asm.store(R7, 16, R0, 4)
        if self.variant.in_row:
            asm.load(R0, R10, SITE_SLOT)
            asm.load(R0, R0, 0, 4)
            asm.store(R7, 20, R0, 4)
        else:
            asm.store(R7, 20, self.variant.number, 4)

    def _emitter(self, fail: str) -> ExpressionEmitter:
        return ExpressionEmitter(self.asm, sleepable=False, fail=fail, kernel=self.plan.kernel)

    def _output(self, index: int, output: Output) -> None:
        column = output.column
        match column:
            case CommColumn() | ConstColumn() | UnavailableColumn():
                pass
            case StackColumn():
                self._stack(output, column)
            case StackCopyColumn():
                self._stack_copy(output, column)
            case IntColumn() | SymbolColumn() | CgroupColumn():
                self._number(index, output, 8)
            case FloatColumn():
                self._number(index, output, column.width)
            case BytesColumn():
                self._copy(index, output, column.length)
            case _ if output.captured is not None:
                emitter = ExpressionEmitter(self.asm, sleepable=False, fail=self.labels.exit)
                size = column.prefix_size + column.size
                emitter.copy_kept(output.captured, R7, _offset(output), size)
            case StringColumn() | BufferColumn() | ArrayColumn() | SocketAddressColumn():
                self._text(output)
            case StructColumn() if isinstance(output.node, RegisterAggregate):
                self._gathered(output, column, output.node)
            case StructColumn():
                self._structure(output, column)
            case StructListColumn():
                self._list(output, column)
            case _:
                assert_never(column)

    def _number(self, index: int, output: Output, size: int) -> None:
        fail, done = self.asm.new_label("fail"), self.asm.new_label("done")
        self._emitter(fail).value(output.node)
        self.asm.store(*self._slot(output, R1), R0, size)
        self._mark_unreadable(index, output, fail, done)

    def _mark_unreadable(self, index: int, output: Output, fail: str, done: str) -> None:
        # Emit code at ``fail`` that sets the bit of the value in the bitmap.
        asm, bitmap = self.asm, self.plan.bitmap_offset
        if not output.may_fault or bitmap is None:
            return
        asm.goto(done)
        asm.label(fail)
        self._retry()
        asm.load(R1, R7, bitmap)
        if index < 31:
            asm.alu(Alu.OR, R1, 1 << index)
        else:
            asm.mov(R2, 1 << index)
            asm.alu(Alu.OR, R1, R2)
        asm.store(R7, bitmap, R1)
        asm.label(done)

    def _stack(self, output: Output, column: StackColumn) -> None:
        # The length prefix, or a negative errno; then the addresses.
        asm = self.asm
        if column.kind is StackKind.PYTHON:
            self._python_stack(output)
            return
        asm.mov(R1, R6)
        asm.mov(R2, R7)
        asm.add(R2, _offset(output) + 8)
        asm.mov(R3, output.size)
        asm.mov(R4, stack_flags(column.kind))
        asm.call(Helper.GET_STACK)
        asm.store(*self._slot(output, R1), R0)

    def _python_stack(self, output: Output) -> None:
        from usdt.engine.compiler.codegen.python_stack import (  # noqa: PLC0415 - rarely needed
            STEP_STACK,
            PythonStackEmitter,
        )

        slots = output.size // SLOT_SIZE
        emitter = PythonStackEmitter(
            self.asm, STACK_BOTTOM + STEP_STACK, slots, keep=self.sleepable
        )
        emitter.record(R7, _offset(output) + 8)
        self.asm.store(*self._slot(output, R1), R0)

    def _stack_copy(self, output: Output, column: StackCopyColumn) -> None:
        # The registers, and the stack unit by unit, as far as it can be read. The length prefix
        # is the number of bytes of the stack.
        asm, start = self.asm, _offset(output) + 8
        done = asm.new_label("stack_copied")
        asm.store(*self._slot(output, R1), 0)
        if self.plan.kernel:
            asm.call(Helper.GET_CURRENT_TASK_BTF)
            asm.mov(R1, R0)
            asm.call(Helper.TASK_PT_REGS)
            asm.mov(R3, R0)
        else:
            asm.mov(R3, R6)
        self._to(start)
        asm.mov(R2, column.registers)
        asm.call(Helper.PROBE_READ_KERNEL)
        asm.jump(Jump.NE, R0, 0, done)
        for copied in range(0, column.stack, STACK_UNIT):
            self._to(start)
            asm.load(R3, R1, STACK_POINTERS[KERNEL_MACHINE])
            asm.alu(Alu.AND, R3, -STACK_UNIT)
            asm.add(R3, copied)
            asm.add(R1, column.registers + copied)
            asm.mov(R2, STACK_UNIT)
            asm.call(Helper.PROBE_READ_USER)
            asm.jump(Jump.NE, R0, 0, done)
            asm.store(*self._slot(output, R1), copied + STACK_UNIT)
        asm.label(done)

    def _copy(self, index: int, output: Output, length: int) -> None:
        # Copy an aggregate from memory into the record.
        fail, done = self.asm.new_label("fail"), self.asm.new_label("done")
        emitter = self._emitter(fail)
        if output.captured is not None:
            emitter.copy_kept(output.captured, R7, _offset(output), length)
        else:
            emitter.aggregate_address(output.node)
            emitter.read_to(Helper.PROBE_READ_USER, R7, _offset(output), length)
            self.asm.jump(Jump.NE, R0, 0, emitter.fail)
        self._mark_unreadable(index, output, fail, done)

    def _slot(self, output: Output, scratch: Reg) -> tuple[Reg, int]:
        # Return a register and an offset for a store. An instruction's offset reaches 32 KiB;
        # beyond that, the address is computed in ``scratch``.
        offset = _offset(output)
        if offset < _MAX_OFFSET:
            return R7, offset
        self.asm.mov(scratch, R7)
        self.asm.add(scratch, offset)
        return scratch, 0

    def _to(self, offset: int) -> None:
        # Leave the address of ``offset`` in the record in r1.
        self.asm.mov(R1, R7)
        self.asm.add(R1, offset)

    def _retry(self) -> None:
        # On the first attempt, discard the record and fault the pages in.
        if self.sleepable:
            self.asm.jump(Jump.EQ, R8, 0, self._fault_in_label)

    def _text(self, output: Output) -> None:
        asm = self.asm
        fail, null, done = map(asm.new_label, ("fail", "null", "done"))
        emitter = self._emitter(fail)
        string = isinstance(output.column, StringColumn)
        optional = isinstance(output.column, SocketAddressColumn)  # if NULL, its length may be too
        if optional:
            emitter.value(output.node)
            asm.jump(Jump.EQ, R0, 0, null)
        helper = Helper.PROBE_READ_USER_STR if string else Helper.PROBE_READ_USER
        asm.store(*self._slot(output, R1), 0)
        if output.length is not None and not isinstance(output.length, Number):
            emitter.value(output.length)
            self._store_length(output, signed=output.length.type.signed)
        elif output.length is not None:
            asm.store(*self._slot(output, R1), output.size)
        emitter.value(output.node)
        kernel = of_kernel(output.node)
        tag = kernel and string and self.plan.kernel
        if tag:
            asm.jump(Jump.EQ, R0, 0, null)
        asm.mov(R3, R0)
        constant = string or isinstance(output.length, Number)
        size = output.read_size if constant else self._length(output, output.size)
        emitter.read_to(helper, R7, _offset(output) + 8, size, kernel=kernel, tag=tag)
        asm.jump(Jump.SLT, R0, 0, fail)
        if string:
            emitter.count_nul()
            asm.store(*self._slot(output, R1), R0)
        asm.goto(done)
        if tag or optional:
            asm.label(null)
            asm.store(*self._slot(output, R1), NULL)
            asm.goto(done)
        asm.label(fail)
        self._retry()
        asm.store(*self._slot(output, R1), FAULT)
        asm.label(done)

    def _list(self, output: Output, column: StructListColumn) -> None:
        # The length prefix, the address, and the values as far as they fit.
        asm = self.asm
        fail, done = asm.new_label("fail"), asm.new_label("done")
        emitter = self._emitter(fail)
        asm.store(*self._slot(output, R1), 0)
        if output.length is not None:
            emitter.value(output.length)
            self._store_length(output, signed=output.length.type.signed)
        emitter.value(output.node)
        self._to(_offset(output))
        asm.store(R1, 8, R0)
        asm.mov(R3, R0)
        size = self._length(output, column.capacity)
        emitter.read_to(Helper.PROBE_READ_USER, R7, _offset(output) + 16, size)
        asm.jump(Jump.SLT, R0, 0, fail)
        asm.goto(done)
        asm.label(fail)
        self._retry()
        asm.store(*self._slot(output, R1), FAULT)
        asm.label(done)

    def _gathered(self, output: Output, column: StructColumn, node: RegisterAggregate) -> None:
        # The length prefix, 0 as address, and the values of registers; bytes between them are 0.
        asm = self.asm
        self._to(_offset(output))
        asm.store(R1, 0, column.capacity)
        for offset in range(8, 8 + column.size, 8):
            asm.store(R1, offset, 0)
        for start, part in node.parts:
            if start + part.type.size > column.capacity:
                continue  # beyond what is kept
            self._emitter(self.labels.exit).value(part)
            self._to(_offset(output))
            asm.store(R1, 16 + start, R0, part.type.size)

    def _structure(self, output: Output, column: StructColumn) -> None:
        # The length prefix, the address, and the structure.
        asm = self.asm
        unknown, fault, null, done = map(asm.new_label, ("unknown", "fault", "null", "done"))
        emitter = self._emitter(unknown)
        kernel = of_kernel(output.node) and self.plan.kernel
        size = column.capacity
        emitter.value(output.node)
        self._to(_offset(output))
        asm.store(R1, 8, R0)
        asm.jump(Jump.EQ, R0, 0, null)
        asm.mov(R3, R0)
        offset = _offset(output) + 16
        emitter.read_to(Helper.PROBE_READ_USER, R7, offset, size, kernel=kernel, tag=kernel)
        asm.jump(Jump.SLT, R0, 0, fault)
        asm.add(R0, size)
        asm.store(*self._slot(output, R1), R0)
        asm.goto(done)
        asm.label(null)
        asm.store(*self._slot(output, R1), NULL)
        asm.goto(done)
        for label, mark in ((fault, FAULT), (unknown, NO_ADDRESS)):
            asm.label(label)
            self._retry()
            self._to(_offset(output))
            asm.store(R1, 0, mark)
            if mark == NO_ADDRESS:
                asm.store(R1, 8, 0)
            asm.goto(done)
        asm.label(done)

    def _length(self, output: Output, capacity: int) -> Callable[[], None]:
        # Return what emits the load of the number of bytes to read into r2: the length prefix, or
        # the capacity if it is less.
        def emit() -> None:
            fits = self.asm.new_label("fits")
            self.asm.load(R2, *self._slot(output, R2))
            self.asm.jump(Jump.LE, R2, capacity, fits)
            self.asm.mov(R2, capacity)
            self.asm.label(fits)

        return emit

    def _store_length(self, output: Output, *, signed: bool) -> None:
        # Store r0, clamped to 0…MAX_LENGTH, as the length prefix, which is 0 already.
        asm = self.asm
        big, stored = asm.new_label("big"), asm.new_label("stored")
        if signed:
            asm.jump(Jump.SLT, R0, 0, stored)
        asm.jump(Jump.GT, R0, MAX_LENGTH, big)
        asm.store(*self._slot(output, R1), R0)
        asm.goto(stored)
        asm.label(big)
        asm.store(*self._slot(output, R1), MAX_LENGTH)
        asm.label(stored)

    def _fault_in_and_retry(self) -> None:
        asm = self.asm
        asm.label(self._fault_in_label)
        self.discard()
        for output in self.plan.outputs:
            if output.captured is not None or isinstance(output.node, RegisterAggregate):
                continue
            if output.length is not None:
                self._fault_in(output.length)
            match output.column:
                case StringColumn() | BufferColumn() | BytesColumn() | SocketAddressColumn():
                    self._fault_in(output.node, output.size)
                case StructColumn(capacity=capacity) | StructListColumn(capacity=capacity):
                    self._fault_in(output.node, capacity)
                case _ if output.may_fault:
                    self._fault_in(output.node)
        asm.mov(R8, 1)
        asm.goto(self.again)

    def discard(self) -> None:
        """Emit code that discards the record before the program sleeps."""
        self.ring.discard()

    def _fault_in(self, node: Node, size: int = 0) -> None:
        # Evaluate the node. If size is not 0, touch that many bytes: at the address of the node if
        # it is an aggregate, else at the address that is its value.
        skip = self.asm.new_label("next")
        emitter = ExpressionEmitter(self.asm, sleepable=True, fail=skip)
        if node.type.kind is ValueClass.BYTES:
            emitter.aggregate_address(node)
            self.asm.mov(R0, R3)
        else:
            emitter.value(node)
        if size:
            self.asm.jump(Jump.LT, R0, FIRST_ADDRESS, skip)
            emitter.touch(size)
        self.asm.label(skip)


def _offset(output: Output) -> int:
    if output.offset is None:
        raise TypeError(f"{output.key}: not stored in the record")
    return output.offset
