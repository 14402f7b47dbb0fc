"""Code that builds a key on the BPF stack.

The address of the key depends on its expressions. String comparisons need the text area of the
stack; without them, the key uses that area, which is larger.

Register use: r8 and the scratch registers; r7 is preserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.arch.locations import Captured
from usdt.base.errors import LanguageError
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R8, R9, R10, Alu, Jump
from usdt.cpython.stack_record import SLOT_SIZE
from usdt.engine.aggregate.keys import HEADER, NO_FRAMES
from usdt.engine.compiler.codegen.current_task import emit_comm
from usdt.engine.compiler.codegen.expressions import (
    KEY_SLOT,
    PIDNS_SLOT,
    STACK_BOTTOM,
    TEMPORARIES,
    ExpressionEmitter,
)
from usdt.engine.compiler.codegen.map_calls import emit_map_call, emit_unique_thread
from usdt.engine.compiler.codegen.model import stack_flags
from usdt.engine.compiler.codegen.python_stack import PythonStackEmitter
from usdt.engine.compiler.codegen.stack_slots import ENTRY_STATE_SLOT, STRING_SLOT
from usdt.engine.compiler.ir import (
    Builtin,
    Number,
    RegisterAggregate,
    StringEquals,
    StringEqualsConst,
    StringMatches,
    children,
    of_kernel,
)
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
from usdt.engine.language.tree import StackKind
from usdt.engine.walks.walk import STEP_STACK, emit_walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.aggregate.keys import KeyField, KeyLayout
    from usdt.engine.compiler.ir import Node
    from usdt.engine.compiler.outputs import Output

__all__ = ("EPOCH", "KeyEmitter", "python_map", "stack_map", "walk_map")

EPOCH = "interval"  # array: u64, number of the current interval
_LARGE = PIDNS_SLOT - TEMPORARIES  # bytes of the stack's text area
_SMALL = 160  # bytes at the end of the stack; 48 remain for temporaries
_FAULT = -14  # EFAULT


def python_map(column: StackColumn) -> str:
    """Return the name of the map of Python stacks of a column's size, by hash."""
    return f"pystacks.{column.size}"


def stack_map(column: StackColumn) -> str:
    """Return the name of the map of stacks of a column's size, by stack ID."""
    return f"stacks.{column.size}"


def walk_map(column: StackColumn) -> str:
    """Return the name of the map of walked stacks of a column's size, by hash."""
    return f"walked.{column.size}"


class KeyEmitter:
    """An emitter of the code that builds a key.

    Args:
        asm: the assembler.
        layout: layout of the key.
        outputs: the expressions of the key, one for each part that is not a stack.
        text: the items as written, for error messages.
        sleepable: whether the program may take page faults.
        unread: label to jump to when a part cannot be read.
        lost: label to jump to when the map of stacks cannot store a stack.
        kernel: whether addresses may be the kernel's.
        tasks: whether ``tid`` distinguishes the idle tasks, one per CPU, which are all thread 0.

    Attributes:
        base: offset of the key from r10.
        free: offset from r10 of at least 136 bytes that are unused once the key is built.

    Raises:
        LanguageError: the key is too large for the stack.
    """

    def __init__(
        self,
        asm: Assembler,
        layout: KeyLayout,
        outputs: Sequence[Output],
        *,
        text: str,
        sleepable: bool,
        unread: str,
        lost: str,
        kernel: bool = False,
        tasks: bool = False,
    ) -> None:
        self.asm = asm
        self.kernel = kernel
        self.tasks = tasks
        self.layout = layout
        self.outputs = outputs
        self.sleepable = sleepable
        self.unread = unread
        self.lost = lost
        texts = any(map(_compares_text, _nodes(outputs)))
        capacity = _SMALL if texts else _LARGE
        if layout.size > capacity:
            raise LanguageError(
                text,
                0,
                f"keys of {layout.size - HEADER.size} bytes; at most {capacity - HEADER.size} fit: "
                "give strings a length, str(EXPR, MAX), or all of them with --max-string",
            )
        walks = any(field.walked or _is_python(field) for field in layout.fields)
        bottom = self.lowest = STACK_BOTTOM + (STEP_STACK if walks else 0)
        self.base = bottom if texts else TEMPORARIES
        self.free = TEMPORARIES if texts else TEMPORARIES - 136
        self.bottom = bottom + (layout.size if texts else 0)

    def write(self, row: int, *, intervals: bool) -> None:
        """Emit the code that builds the key; arguments as for :meth:`write_header`."""
        self.write_header(row, intervals=intervals)
        ahead = iter(self.outputs)
        for field in self.layout.fields:
            if isinstance(field.column, StackColumn):
                self._stack(field, field.column)
            else:
                self._part(field, next(ahead))

    def write_header(self, row: int, *, intervals: bool) -> None:
        """Emit the code that builds the header of the key.

        Args:
            row: the row in its header.
            intervals: whether its header has the number of the current interval.
        """
        asm = self.asm
        asm.store(R10, self.base, row, 4)
        if intervals:
            asm.store(R10, KEY_SLOT, 0, 4)
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, EPOCH)
            asm.jump(Jump.EQ, R0, 0, self.lost)  # never taken: array entries always exist
            asm.load(R0, R0, 0)
            asm.store(R10, self.base + 4, R0, 4)
        else:
            asm.store(R10, self.base + 4, 0, 4)

    def _part(self, field: KeyField, output: Output) -> None:
        asm = self.asm
        start = self.base + (field.offset or 0)
        column = field.column
        writer = ExpressionEmitter(
            asm,
            sleepable=self.sleepable,
            fail=self.unread,
            bottom=self.bottom,
            kernel=self.kernel,
        )
        match column:
            case UnavailableColumn():
                asm.goto(self.unread)
            case ConstColumn():
                pass
            case CommColumn():
                emit_comm(asm, R10, start)
            case StringColumn() | BufferColumn() | ArrayColumn() | SocketAddressColumn():
                self._text(field, output, writer)
            case BytesColumn():
                self._zero(start, field.capacity)
                if output.captured is not None:
                    writer.copy_kept(output.captured, R10, start, field.size)
                    return
                writer.aggregate_address(output.node)
                asm.mov(R8, R3)
                self._read(writer, output, start, field.size)
            case IntColumn() | FloatColumn() | SymbolColumn() | CgroupColumn():
                writer.value(output.node)
                if self.tasks and isinstance(output.node, Builtin) and output.node.name == "tid":
                    emit_unique_thread(asm, R0)
                asm.store(R10, start, R0)
                if isinstance(column, SymbolColumn):
                    asm.mov(R1, R9)
                    asm.alu(Alu.RSH, R1, 32)
                    asm.store(R10, start + 8, R1)
            case StructColumn():
                self._wide_integer(field, output, writer)
            case StructListColumn() | StackColumn() | StackCopyColumn():
                raise TypeError(f"{field.name}: {type(column).__name__} in a key")
            case _:
                assert_never(column)

    def _wide_integer(self, field: KeyField, output: Output, writer: ExpressionEmitter) -> None:
        # An integer of 16 bytes: in registers, captured at the entry, or in memory.
        asm = self.asm
        start = self.base + (field.offset or 0)
        if isinstance(output.node, RegisterAggregate):
            for offset, part in output.node.parts:
                writer.value(part)
                asm.store(R10, start + offset, R0, part.type.size)
        elif output.captured is not None:
            asm.load(R0, R10, ENTRY_STATE_SLOT)
            asm.load(R0, R0, output.captured.offset)
            asm.jump(Jump.SLT, R0, 0, self.unread)
            # Behind the length prefix and the address
            kept = Captured(output.captured.offset + 16, field.size)
            writer.copy_kept(kept, R10, start, field.size)
        else:
            writer.value(output.node)
            asm.mov(R8, R0)
            self._zero(start, field.capacity)
            self._read(writer, output, start, field.size)

    def _python_stack(self, column: StackColumn, start: int) -> None:
        # The hash of the stack, or a negative reason, and the process.
        asm = self.asm
        scratch = STRING_SLOT if self.base == self.lowest else self.lowest
        emitter = PythonStackEmitter(asm, scratch, column.size // SLOT_SIZE, keep=False)
        emitter.keep_by_hash(python_map(column), self.lost)
        asm.store(R10, start, R0)
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        asm.store(R10, start + 8, R1)

    def _stack(self, field: KeyField, column: StackColumn) -> None:
        asm, kind = self.asm, column.kind
        start = self.base + (field.offset or 0)
        if kind is StackKind.PYTHON:
            self._python_stack(column, start)
            return
        if field.walked:
            emit_walk(
                asm,
                stacks=walk_map(column),
                frames=column.size // 8,
                start=start,
                kernel=self.kernel,
                lost=self.lost,
            )
            return
        asm.mov(R1, R6)
        asm.load_map(R2, stack_map(column))
        asm.mov(R3, stack_flags(kind))
        asm.call(Helper.GET_STACKID)
        kept = asm.new_label("kept")
        asm.jump(Jump.SGE, R0, 0, kept)
        asm.jump(Jump.NE, R0, _FAULT, self.lost)  # EEXIST: hash collision of two stacks; ENOMEM
        asm.mov(R0, NO_FRAMES)  # a probe in user space has no kernel stack
        asm.label(kept)
        asm.store(R10, start, R0, 4)
        asm.mov(R1, R9)
        asm.alu(Alu.RSH, R1, 32)
        if kind is StackKind.KERNEL:
            asm.mov(R1, 0)
        asm.store(R10, start + 4, R1, 4)

    def _text(self, field: KeyField, output: Output, writer: ExpressionEmitter) -> None:
        asm = self.asm
        start = self.base + (field.offset or 0)
        self._zero(start, field.capacity)
        if output.captured is not None:
            self._kept(field, output.captured, writer)
            return
        if output.length is None or isinstance(field.column, ArrayColumn):
            writer.value(output.node)
            asm.mov(R8, R0)
            self._read(writer, output, start, output.read_size)
            return
        writer.value(output.length)
        self._clamp(field.size, signed=output.length.type.signed)
        asm.store(R10, start, R0)
        writer.value(output.node)
        asm.mov(R8, R0)
        where = None if isinstance(output.length, Number) else start
        self._read(writer, output, start + 8, field.size, where)

    def _kept(self, field: KeyField, kept: Captured, writer: ExpressionEmitter) -> None:
        # Copies a value captured at function entry: its length, or a negative errno, and its bytes.
        asm = self.asm
        start = self.base + (field.offset or 0)
        asm.load(R0, R10, ENTRY_STATE_SLOT)
        asm.load(R0, R0, kept.offset)
        asm.jump(Jump.SLT, R0, 0, self.unread)
        if isinstance(field.column, BufferColumn | SocketAddressColumn):
            asm.store(R10, start, R0)
            start += 8
        text = Captured(kept.offset + 8, kept.size)
        writer.copy_kept(text, R10, start, field.size)

    def _read(
        self,
        writer: ExpressionEmitter,
        output: Output,
        start: int,
        size: int,
        length: int | None = None,
    ) -> None:
        # Reads from the address in r8 to the stack. ``length`` is the offset of the size, if it
        # varies.
        asm = self.asm
        text = isinstance(output.column, StringColumn)
        helper = Helper.PROBE_READ_USER_STR if text else Helper.PROBE_READ_USER

        def load_size() -> None:
            asm.mov(R2, size)
            if length is not None:
                asm.load(R2, R10, length)
                # Never taken; gives the verifier the bound.
                asm.jump(Jump.GT, R2, size, self.unread)

        done = asm.new_label("done")
        for attempt in range(2 if self.sleepable else 1):
            if attempt:
                asm.jump(Jump.LT, R8, FIRST_ADDRESS, self.unread)
                asm.mov(R0, R8)
                writer.touch(size)
            asm.mov(R3, R8)
            writer.read_to(helper, R10, start, load_size, kernel=of_kernel(output.node))
            asm.jump(Jump.SGE, R0, 0, done)
        asm.goto(self.unread)
        asm.label(done)

    def _clamp(self, most: int, *, signed: bool) -> None:
        # Clamps r0 to 0…most.
        asm = self.asm
        small = asm.new_label("small")
        if signed:
            natural = asm.new_label("natural")
            asm.jump(Jump.SGE, R0, 0, natural)
            asm.mov(R0, 0)
            asm.label(natural)
        asm.jump(Jump.LE, R0, most, small)
        asm.mov(R0, most)
        asm.label(small)

    def _zero(self, start: int, size: int) -> None:
        for offset in range(0, size, 8):
            self.asm.store(R10, start + offset, 0)


def _nodes(outputs: Sequence[Output]) -> list[Node]:
    nodes = [output.node for output in outputs]
    return nodes + [output.length for output in outputs if output.length is not None]


def _is_python(field: KeyField) -> bool:
    return isinstance(field.column, StackColumn) and field.column.kind is StackKind.PYTHON


def _compares_text(node: Node) -> bool:
    compares = isinstance(node, (StringEqualsConst, StringEquals, StringMatches))
    return compares or any(map(_compares_text, children(node)))
