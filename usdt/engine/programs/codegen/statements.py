"""Code for statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Jump
from usdt.engine.compiler.codegen.model import EXIT
from usdt.engine.compiler.codegen.ring_writes import RingWriter
from usdt.engine.programs.codegen.aggregates import emit_add
from usdt.engine.programs.codegen.computed import emit_computed
from usdt.engine.programs.codegen.frame import (
    CONTEXT_SLOT,
    LEFT_SLOT,
    SCRATCH_SLOT,
    TASK_SLOT,
    Frame,
    Place,
    check_size,
)
from usdt.engine.programs.codegen.names import map_name, walked_name
from usdt.engine.programs.codegen.strings import emit_concatenated, emit_path
from usdt.engine.programs.codegen.values import ValueEmitter
from usdt.engine.programs.events import EVENT_NUMBER, Event, EventKind
from usdt.engine.programs.typed import (
    AddToMap,
    Delete,
    Emit,
    Evaluate,
    ForMap,
    If,
    Leave,
    Loop,
    MakeTuple,
    Scalar,
    SetMap,
    SetVariable,
    Text,
)
from usdt.engine.programs.types import StringType, size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.programs.codegen.values import CodeOptions
    from usdt.engine.programs.typed import Bytes, Computed, Padded, PathText, StackOf, Statement

__all__ = ("StatementEmitter",)

_MOST_ROUNDS = 1 << 23  # BPF_MAX_LOOPS
_NEXT, _END = 0, 1  # results of the function of a loop


class StatementEmitter(ValueEmitter):
    """An emitter of statements.

    Args:
        asm: the assembler.
        frame: the slots of the function.
        options: what the code depends on beside the statements.
        leave: what ``break``, ``continue`` and ``return`` jump to.
    """

    def __init__(
        self,
        asm: Assembler,
        frame: Frame,
        options: CodeOptions,
        leave: dict[str, str] | None = None,
    ) -> None:
        super().__init__(asm, frame, options)
        self.leave = leave or {"return": EXIT}
        self._writing = False  # whether r8 is a record

    def block(self, statements: Sequence[Statement]) -> None:
        """Emit the statements of a block, whose variables end with it."""
        mark = self.frame.mark()
        self.statements(statements)
        self.frame.release(mark)

    def statements(self, statements: Sequence[Statement]) -> None:
        """Emit statements."""
        for statement in statements:
            if isinstance(statement, SetVariable):
                self._set_variable(statement)
                continue
            mark = self.frame.mark()
            self._statement(statement)
            self.frame.release(mark)

    def computed(self, what: Computed) -> None:
        """Leave a number in r0 that is computed from maps or values in memory."""
        emit_computed(self, what)

    def concatenated(self, value: Padded, place: Place) -> None:
        """Put a string with another behind it at a place."""
        emit_concatenated(self, value, place)

    def path(self, value: PathText, place: Place, *, fill: bool) -> None:
        """Put the path of a file at a place."""
        emit_path(self, value, place, fill=fill)

    def walk(self, value: StackOf, place: Place) -> None:
        """Put a stack that is walked by unwind tables at a place: its hash, and the process."""
        from usdt.engine.walks.walk import emit_walk  # noqa: PLC0415 - few programs walk stacks

        # A walk takes r8, and the number of the process from r9.
        asm, frames, mark = self.asm, value.type.frames, self.frame.mark()
        lost, done = asm.new_label("lost"), asm.new_label("walked")
        kept = [(R9, self.frame.push()), *([(R8, self.frame.push())] if self._writing else [])]
        for register, slot in kept:
            asm.store(R10, slot, register)
        process, start = self.frame.push(), self.frame.push()
        asm.load(R9, self.frame.base, TASK_SLOT)
        kernel = self.options.kernel
        name = walked_name(frames)
        emit_walk(asm, stacks=name, frames=frames, start=start, kernel=kernel, lost=lost)
        asm.goto(done)
        asm.label(lost)
        self.count_lost()
        for slot in (start, process):
            asm.store(R10, slot, 0)
        asm.label(done)
        for register, slot in kept:
            asm.load(register, R10, slot)
        self.copy(Place(R10, start), place, 16)
        self.frame.release(mark)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case SetVariable():
                self._set_variable(statement)
            case SetMap():
                self._set_map(statement)
            case AddToMap():
                emit_add(self, statement)
            case Delete(map=variable, key=key):
                self.key(key)
                self.asm.load_map(R1, map_name(variable))
                self.asm.call(Helper.MAP_DELETE_ELEM)
            case Emit(event=Event(kind=EventKind.DEBUG)):
                self._print_to_trace(statement)
            case Emit():
                self._emit(statement)
            case Evaluate(value=value):
                if isinstance(value, Scalar):
                    self.steps(value.before)
            case If():
                self._if(statement)
            case Loop():
                self._loop(statement)
            case ForMap():
                self._for_map(statement)
            case Leave(how=how):
                self.asm.goto(self.leave[how])
            case _:
                assert_never(statement)

    def _set_variable(self, statement: SetVariable) -> None:
        variable, value = statement.variable, statement.value
        size = size_of(variable.type)
        place = self.frame.variable(variable, size)  # before the temporaries: it outlives them
        mark = self.frame.mark()
        if isinstance(value, Scalar):
            self.number(value)
            self.numbers.unbind()
            self.asm.store(place.base, place.offset, R0)
        elif isinstance(value, MakeTuple):  # perhaps of its own parts
            made = self.frame.temporary(size)
            self._put_filled(value, made, size)
            self.copy(made, place, size)
        else:
            self._put_filled(value, place, size)
        self.frame.release(mark)

    def _put_filled(self, value: Bytes, place: Place, size: int) -> None:
        # A shorter value than those that the variable holds: the rest is zeros.
        self.put(value, place)
        for at in range(size_of(value.type), size, 8):
            self.asm.store(place.base, place.offset + at, 0)

    def _set_map(self, statement: SetMap) -> None:
        asm, value = self.asm, statement.value
        written = asm.new_label("written")
        size = size_of(statement.type)
        place = self.frame.temporary(size)
        if isinstance(value, Scalar):
            self.put(value, place)
        else:
            self._put_filled(value, place, size)
        self.key(statement.key)
        self.update(statement.map, place, written)
        asm.label(written)

    def _emit(self, statement: Emit) -> None:
        asm = self.asm
        sent, full = asm.new_label("sent"), asm.new_label("full")
        *offsets, size = statement.event.offsets
        check_size(size, "what one call prints has")
        outer = self.numbers.push(R8) if self._writing else None
        before, self._writing = self._writing, True
        groups = self.options.groups
        ring = RingWriter(asm, R8, size, groups)
        ring.reserve(full)
        if groups.count > 1:
            asm.call(Helper.KTIME_GET_NS)
            asm.store(R8, 0, R0)
        asm.store(R8, EVENT_NUMBER, statement.event.number)
        for offset, value in zip(offsets, statement.values, strict=True):
            mark = self.frame.mark()
            self.put(value, Place(R8, offset), fill=False)
            self.frame.release(mark)
        ring.submit()
        asm.goto(sent)
        asm.label(full)
        self.count_lost()
        asm.label(sent)
        self._writing = before
        if outer is not None:
            asm.load(R8, R10, outer)
            self.numbers.pop()

    def _print_to_trace(self, statement: Emit) -> None:
        # The kernel formats what it puts into its trace: bpf_trace_printk().
        asm = self.asm
        slots = []
        for value in statement.values:
            if isinstance(value, Scalar):
                self.number(value)
            else:
                place = self.in_memory(value)
                asm.mov(R0, place.base)
                asm.add(R0, place.offset)
            slots.append(self.frame.push())
            asm.store(R10, slots[-1], R0)
        text = statement.event.text.encode("utf-8", "surrogateescape") + b"\0"
        form = self.frame.temporary(len(text))
        self.put(Text(text, StringType(len(text))), form)
        for register, slot in zip((R3, R4, R5), slots, strict=False):
            asm.load(register, R10, slot)
        asm.mov(R1, form.base)
        asm.add(R1, form.offset)
        asm.mov(R2, len(text))
        asm.call(Helper.TRACE_PRINTK)

    def _if(self, statement: If) -> None:
        asm = self.asm
        no, done = asm.new_label("else"), asm.new_label("endif")
        mark = self.frame.mark()
        self.jump_if(statement.condition, no, when=False)
        self.frame.release(mark)
        self.block(statement.yes)
        if statement.no:
            asm.goto(done)
        asm.label(no)
        if statement.no:
            self.block(statement.no)
        asm.label(done)

    # ------------------------------------------------------------ loops

    def _loop(self, statement: Loop) -> None:
        asm = self.asm
        name = asm.new_label("loop")
        first = None
        if statement.first is not None and statement.variable is not None:
            first = self.frame.variable(statement.variable, 8)
            self.number(statement.first)
            self.numbers.unbind()
            asm.store(first.base, first.offset, R0)
        if statement.times is None:
            asm.mov(R0, _MOST_ROUNDS)
        else:
            self._rounds(statement.times)
        self.numbers.unbind()
        asm.mov(R1, R0)
        self._begin_loop()
        asm.mov(R4, 0)
        asm.load_function(R2, name)
        asm.call(Helper.LOOP)
        self._end_loop()
        asm.function(name, self._function_of(statement))

    def _rounds(self, times: Scalar) -> None:
        # Leaves a number of rounds in r0: none for a negative one.
        asm = self.asm
        few, natural = asm.new_label("few"), asm.new_label("natural")
        self.number(times)
        asm.jump(Jump.SGE, R0, 0, natural)
        asm.mov(R0, 0)
        asm.label(natural)
        asm.jump(Jump.LE, R0, _MOST_ROUNDS, few)
        asm.mov(R0, _MOST_ROUNDS)
        asm.label(few)

    def _begin_loop(self) -> None:
        # Leaves the address of the main function's stack in r3, and nothing that has been left.
        asm = self.asm
        asm.store(self.frame.base, LEFT_SLOT, 0)
        asm.mov(R3, self.frame.base)

    def _end_loop(self) -> None:
        # Leaves the outer loop, or the program, if the loop has ended by return.
        asm = self.asm
        asm.load(R0, self.frame.base, LEFT_SLOT)
        asm.jump(Jump.NE, R0, 0, self.leave["return"])

    def _function_of(self, statement: Loop | ForMap) -> _LoopEmitter:
        return _LoopEmitter(self, statement)

    def _for_map(self, statement: ForMap) -> None:
        asm = self.asm
        name = asm.new_label("each")
        self._begin_loop()
        asm.load_map(R1, map_name(statement.map))
        asm.load_function(R2, name)
        asm.mov(R4, 0)
        asm.call(Helper.FOR_EACH_MAP_ELEM)
        self._end_loop()
        asm.function(name, self._function_of(statement))


class _LoopEmitter:
    # Emits the function of a loop: behind the program, with the variables that it has here.
    def __init__(self, outer: StatementEmitter, statement: Loop | ForMap) -> None:
        self._options = outer.options
        self._frame = outer.frame.of_loop()
        self._statement = statement

    def __call__(self, asm: Assembler) -> None:
        next_, end, left = (asm.new_label(name) for name in ("continue", "break", "return"))
        emitter = StatementEmitter(
            asm,
            self._frame,
            self._options,
            leave={"continue": next_, "break": end, "return": left},
        )
        statement = self._statement
        if isinstance(statement, ForMap):
            self._take_entry(asm, emitter, statement)
        else:
            self._begin(asm, emitter, statement, end)
        emitter.block(statement.body)
        asm.label(next_)
        if isinstance(statement, Loop) and statement.variable is not None:
            place = self._frame.variable(statement.variable, 8)
            asm.load(R0, place.base, place.offset)
            asm.add(R0, 1)
            emitter.numbers.unbind()  # a comparison of the last round has bounded it
            asm.store(place.base, place.offset, R0)
        asm.mov(R0, _NEXT)
        asm.exit()
        asm.label(left)
        asm.store(R9, LEFT_SLOT, 1)
        asm.label(end)
        asm.mov(R0, _END)
        asm.exit()

    def _enter(self, asm: Assembler) -> None:
        asm.load(R6, R9, CONTEXT_SLOT)
        if self._frame.scratch:
            asm.load(R7, R9, SCRATCH_SLOT)

    def _begin(self, asm: Assembler, emitter: StatementEmitter, statement: Loop, end: str) -> None:
        asm.mov(R9, R2)
        self._enter(asm)
        if statement.condition is not None:
            mark = self._frame.mark()
            emitter.jump_if(statement.condition, end, when=False)
            self._frame.release(mark)

    def _take_entry(self, asm: Assembler, emitter: StatementEmitter, statement: ForMap) -> None:
        # The kernel passes the map, the key, the value and the address of the stack.
        asm.mov(R9, R4)
        self._enter(asm)
        kind = statement.type
        place = self._frame.variable(statement.variable, size_of(kind))
        key, value = kind.elements
        behind = Place(place.base, place.offset + size_of(key))
        emitter.copy_from(R2, place, size_of(key), keep=R3)
        if statement.value is None:
            emitter.copy_from(R3, behind, size_of(value))
            return
        mark = self._frame.mark()
        emitter.put(statement.value, behind)
        self._frame.release(mark)
