"""Code for values: numbers with their steps in r0, values in memory at a place.

:mod:`usdt.engine.programs.codegen.numbers` lists the registers.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, assert_never

from usdt.base.frozen import frozen
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R10, Alu, Jump
from usdt.bpf.rings.groups import ONE_RING
from usdt.engine.compiler.codegen.current_task import emit_comm
from usdt.engine.compiler.codegen.map_calls import emit_fetch_add, emit_map_call
from usdt.engine.compiler.codegen.model import COUNTERS, stack_flags
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT
from usdt.engine.language.tree import StackKind
from usdt.engine.programs.codegen.frame import TASK_SLOT, Place
from usdt.engine.programs.codegen.names import map_name, stacks_name
from usdt.engine.programs.codegen.numbers import NumberEmitter
from usdt.engine.programs.typed import (
    CallHelper,
    Choose,
    ChooseBytes,
    Comm,
    Computation,
    Element,
    ElementNumber,
    HasKey,
    Increment,
    JoinBytes,
    JoinSteps,
    LowBytes,
    MakeTuple,
    MapBytes,
    MapNumber,
    Padded,
    PathText,
    Read,
    ReadText,
    Scalar,
    StackOf,
    Text,
    UserSymbol,
    VariableBytes,
)
from usdt.engine.programs.types import (
    BufferType,
    PointerType,
    StringType,
    aligned,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.bpf.asm.insn import Reg
    from usdt.bpf.rings.groups import RingGroups
    from usdt.engine.programs.codegen.frame import Frame
    from usdt.engine.programs.typed import Bytes, Computed, Statement, Step, Value
    from usdt.engine.programs.variables import MapVariable

__all__ = ("CodeOptions", "ValueEmitter")

_COPY = 64  # bytes up to which a value is copied word by word


@frozen
class CodeOptions:
    """What the code of a probe depends on, beside its statements.

    Attributes:
        kernel: whether addresses may be in the kernel.
        probe: the index of the probe in the map ``COUNTERS``.
        atomics: whether the kernel has atomic instructions that return the previous value.
        groups: how CPUs share the ring buffers to which the program sends.
    """

    kernel: bool
    probe: int
    atomics: bool
    groups: RingGroups = ONE_RING


class ValueEmitter:
    """An emitter of values.

    Args:
        asm: the assembler.
        frame: the slots of the function.
        options: what the code depends on beside the values.
    """

    def __init__(self, asm: Assembler, frame: Frame, options: CodeOptions) -> None:
        self.asm = asm
        self.frame = frame
        self.options = options
        self.numbers = NumberEmitter(asm, frame, kernel=options.kernel)

    # ------------------------------------------------------------ numbers

    def number(self, value: Scalar) -> None:
        """Leave a number in r0."""
        self.steps(value.before)
        self.numbers.value(value.node)

    def jump_if(self, value: Scalar, label: str, *, when: bool) -> None:
        """Go to ``label`` if a number is not 0 (``when``), or is."""
        self.steps(value.before)
        self.numbers.branch(value.node, label, when=when)

    def steps(self, before: Sequence[Step]) -> None:
        """Compute what expressions refer to."""
        for variable, what in before:
            if isinstance(what, Scalar):
                self.number(what)
                self.numbers.unbind()
            elif isinstance(what, Computation):
                self._compute(what)
            else:
                of = self.in_memory(what)
                self.asm.mov(R0, of.base)
                self.asm.add(R0, of.offset)
                self.numbers.address_as_number()
            place = self.frame.variable(variable, 8)
            self.asm.store(place.base, place.offset, R0)

    def _compute(self, what: Computation) -> None:
        match what:
            case MapNumber():
                self._map_number(what)
            case Increment():
                self._increment(what)
            case HasKey():
                self.find(what.map, what.key)
                self._is_there()
            case Choose():
                self._choose(what)
            case CallHelper():
                self._call(what)
            case ElementNumber(whole=whole, offset=offset):
                place = self.in_memory(whole)
                self.asm.load(R0, place.base, place.offset + offset)
            case JoinSteps():
                self.statements(what.statements)
                self.number(what.result)
            case _:
                self.computed(what)
        self.numbers.unbind()

    def statements(self, statements: Sequence[Statement]) -> None:
        """Emit statements."""
        raise NotImplementedError

    def computed(self, what: Computed) -> None:
        """Leave a number in r0 that is computed from maps or values in memory."""
        raise NotImplementedError

    def _choose(self, what: Choose) -> None:
        asm = self.asm
        no, done = asm.new_label("no"), asm.new_label("chosen")
        mark = self.frame.mark()
        self.jump_if(what.condition, no, when=False)
        self.number(what.yes)
        self.frame.release(mark)
        asm.goto(done)
        asm.label(no)
        self.number(what.no)
        self.frame.release(mark)
        asm.label(done)

    def _call(self, what: CallHelper) -> None:
        asm = self.asm
        slots = []
        for argument in what.arguments:
            self.number(argument)
            slots.append(self.numbers.push())
        for register, slot in zip((R1, R2, R3), slots, strict=False):
            asm.load(register, R10, slot)
        for _ in slots:
            self.numbers.pop()
        if what.context:
            asm.mov(R1, R6)
        asm.call(what.helper)
        if what.low:
            asm.alu(Alu.LSH, R0, 32)
        if what.low or what.high:
            asm.alu(Alu.RSH, R0, 32)

    def _is_there(self) -> None:
        asm = self.asm
        absent = asm.new_label("absent")
        asm.jump(Jump.EQ, R0, 0, absent)
        asm.mov(R0, 1)
        asm.label(absent)

    # ------------------------------------------------------------ maps

    def find(self, variable: MapVariable, key: Value) -> None:
        """Leave the address of a map's value in r0; 0 if the map does not have the key."""
        mark = self.frame.mark()
        self.key(key)
        self.asm.load_map(R1, map_name(variable))
        self.asm.call(Helper.MAP_LOOKUP_ELEM)
        self.frame.release(mark)

    def key(self, key: Value) -> None:
        """Put a key into memory and leave its address in r2."""
        asm = self.asm
        if isinstance(key, Scalar):
            self.number(key)
            asm.store(R10, KEY_SLOT, R0)
            asm.mov(R2, R10)
            asm.add(R2, KEY_SLOT)
            return
        place = self.in_memory(key)
        asm.mov(R2, place.base)
        asm.add(R2, place.offset)

    def _map_number(self, what: MapNumber) -> None:
        asm = self.asm
        self.find(what.map, what.key)
        absent = asm.new_label("absent")
        asm.jump(Jump.EQ, R0, 0, absent)
        asm.load(R0, R0, 0)
        asm.label(absent)

    def _increment(self, what: Increment) -> None:
        asm = self.asm
        absent, done, lost = (asm.new_label(name) for name in ("absent", "added", "full"))
        mark = self.frame.mark()
        self.key(what.key)
        slot = self.numbers.push(R2)
        asm.load_map(R1, map_name(what.map))
        asm.call(Helper.MAP_LOOKUP_ELEM)
        asm.jump(Jump.EQ, R0, 0, absent)
        emit_fetch_add(asm, R0, what.by, atomics=self.options.atomics)
        asm.mov(R0, R1)
        if not what.before:
            asm.add(R0, what.by)
        asm.goto(done)
        asm.label(absent)
        value = self.numbers.push()
        asm.store(R10, value, what.by)
        asm.load(R2, R10, slot)
        self.update(what.map, Place(R10, value), lost)
        asm.label(lost)
        asm.mov(R0, 0 if what.before else what.by)
        asm.label(done)
        self.frame.release(mark)

    def update(self, variable: MapVariable, value: Place, done: str) -> None:
        """Write an entry whose key is at r2; count the hit as lost if the map is full.

        Goes to ``done`` if it was written, else falls through.
        """
        asm = self.asm
        asm.load_map(R1, map_name(variable))
        asm.mov(R3, value.base)
        asm.add(R3, value.offset)
        asm.mov(R4, 0)
        asm.call(Helper.MAP_UPDATE_ELEM)
        asm.jump(Jump.EQ, R0, 0, done)
        self.count_lost()

    def count_lost(self) -> None:
        """Count a loss: a full map, or a full ring buffer."""
        asm = self.asm
        absent = asm.new_label("counted")
        asm.store(R10, KEY_SLOT, self.options.probe, 4)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, COUNTERS)
        asm.jump(Jump.EQ, R0, 0, absent)
        asm.mov(R1, 1)
        asm.atomic_add(R0, 0, R1)
        asm.label(absent)

    # ------------------------------------------------------------ values in memory

    def in_memory(self, value: Bytes) -> Place:
        """Return where a value is; it is put into temporary memory if it is nowhere yet."""
        match value:
            case VariableBytes(variable=variable, type=kind):
                return self.frame.variable(variable, size_of(kind))
            case Element(whole=whole, offset=offset):
                place = self.in_memory(whole)
                return Place(place.base, place.offset + offset)
            case _:
                place = self.frame.temporary(size_of(value.type))
                self.put(value, place)
                return place

    def put(self, value: Value, place: Place, *, fill: bool = True) -> None:
        """Put a value at a place.

        Args:
            value: the value.
            place: where to.
            fill: whether all bytes are written, as in what is compared; else those up to a NUL.
        """
        asm = self.asm
        base, offset = place.base, place.offset
        match value:
            case Scalar():
                self.number(value)
                asm.store(base, offset, R0)
            case Text(text=text, type=kind):
                short = isinstance(kind, StringType) and not fill
                size = aligned(len(text) + 1) if short else size_of(kind)
                data = text.ljust(size, b"\0")[:size]
                self._store_bytes(data, place)
            case ReadText() | Read():
                self._read(value, place, fill=fill)
            case Comm():
                emit_comm(asm, base, offset)
            case VariableBytes() | Element():
                self.copy(self.in_memory(value), place, size_of(value.type))
            case MapBytes(map=variable, key=key, type=kind):
                absent, done = asm.new_label("absent"), asm.new_label("copied")
                self.find(variable, key)
                asm.jump(Jump.EQ, R0, 0, absent)
                self._copy_from_r0(place, size_of(kind))
                asm.goto(done)
                asm.label(absent)
                self.zero(place, size_of(kind))
                asm.label(done)
            case MakeTuple(elements=elements, type=kind, order=order):
                for index in order or range(len(elements)):
                    mark = self.frame.mark()
                    self.put(elements[index], Place(base, offset + kind.offset(index)), fill=fill)
                    self.frame.release(mark)
            case Padded(after=after) if after is not None:
                self.concatenated(value, place)
            case Padded(value=inner, type=kind):
                self.put(inner, place, fill=fill)
                had = size_of(inner.type)
                if fill:
                    self.zero(Place(base, offset + had), size_of(kind) - had)
            case ChooseBytes():
                self._choose_bytes(value, place, fill=fill)
            case JoinBytes(statements=statements, value=inner):
                self.statements(statements)
                self.put(inner, place, fill=fill)
            case LowBytes(value=number, type=kind):
                self.zero(place, size_of(kind))
                self.number(number)
                asm.store(base, offset, 4)
                asm.store(base, offset + 8, R0, 4)
            case PathText():
                self.path(value, place, fill=fill)
            case StackOf(type=kind) if kind.walked:
                self.walk(value, place)
            case StackOf() | UserSymbol():
                self._with_process(value, place)
            case _:
                assert_never(value)

    def concatenated(self, value: Padded, place: Place) -> None:
        """Put a string with another behind it at a place."""
        raise NotImplementedError

    def path(self, value: PathText, place: Place, *, fill: bool) -> None:
        """Put the path of a file at a place."""
        raise NotImplementedError

    def walk(self, value: StackOf, place: Place) -> None:
        """Put a stack that is walked by unwind tables at a place: its hash, and the process."""
        raise NotImplementedError

    def _choose_bytes(self, value: ChooseBytes, place: Place, *, fill: bool) -> None:
        asm = self.asm
        no, done = asm.new_label("no"), asm.new_label("chosen")
        self.jump_if(value.condition, no, when=False)
        self.put(value.yes, place, fill=fill)
        asm.goto(done)
        asm.label(no)
        self.put(value.no, place, fill=fill)
        asm.label(done)

    def _with_process(self, value: StackOf | UserSymbol, place: Place) -> None:
        # A stack's ID or an address, and the process.
        asm = self.asm
        if isinstance(value, UserSymbol):
            self.number(value.address)
            asm.store(place.base, place.offset, R0)
            asm.load(R1, self.frame.base, TASK_SLOT)
            asm.alu(Alu.RSH, R1, 32)
            asm.store(place.base, place.offset + 8, R1)
            return
        asm.mov(R1, R6)
        asm.load_map(R2, stacks_name(value.type.frames))
        asm.mov(R3, stack_flags(value.kind))
        asm.call(Helper.GET_STACKID)
        asm.store(place.base, place.offset, R0, 4)
        if value.kind is StackKind.KERNEL:
            asm.store(place.base, place.offset + 4, 0, 4)
            return
        asm.load(R1, self.frame.base, TASK_SLOT)
        asm.alu(Alu.RSH, R1, 32)
        asm.store(place.base, place.offset + 4, R1, 4)

    def _read(self, value: ReadText | Read, place: Place, *, fill: bool) -> None:
        # Reads memory; nothing, or zeros, if it cannot be read.
        asm, kind = self.asm, value.type
        size = kind.size if isinstance(kind, StringType | BufferType) else size_of(kind)
        text = isinstance(value, ReadText)
        start = place.offset + (8 if isinstance(kind, BufferType) else 0)
        length = value.limit if isinstance(value, ReadText) else value.length
        if fill or not text:
            self.zero(place, size_of(kind))
        slot = None
        if length is not None:
            self._length_of_read(length, size, least=int(text))
            slot = self.numbers.push()
            if isinstance(kind, BufferType):
                asm.store(place.base, place.offset, R0)
        elif isinstance(kind, BufferType):
            asm.store(place.base, place.offset, size)
        address = value.address
        self.number(address)
        asm.mov(R3, R0)

        def load_size() -> None:
            if slot is None:
                asm.mov(R2, size)
                return
            asm.load(R2, R10, slot)
            asm.jump(Jump.GT, R2, size, skip)  # never taken; gives the verifier the bound

        skip = asm.new_label("read")
        helper = Helper.PROBE_READ_USER_STR if text else Helper.PROBE_READ_USER
        kernel = isinstance(address.type, PointerType) and address.type.kernel
        self.numbers.read_to(helper, place.base, start, load_size, kernel=kernel)
        if text and not fill:
            asm.jump(Jump.SGE, R0, 0, skip)
            asm.store(place.base, start, 0, 1)
        asm.label(skip)
        if slot is not None:
            self.numbers.pop()

    def _length_of_read(self, length: Scalar, most: int, *, least: int) -> None:
        # Leaves a number of bytes in r0: at most ``most``, and ``least`` for a lower one.
        asm = self.asm
        small, natural = asm.new_label("small"), asm.new_label("natural")
        self.number(length)
        asm.jump(Jump.SGE, R0, least, natural)
        asm.mov(R0, least)
        asm.label(natural)
        asm.jump(Jump.LE, R0, most, small)
        asm.mov(R0, most)
        asm.label(small)

    def _store_bytes(self, data: bytes, place: Place) -> None:
        asm = self.asm
        for at in range(0, len(data), 8):
            word = int.from_bytes(data[at : at + 8], sys.byteorder)
            if word >> 31:
                asm.mov(R1, word)
                asm.store(place.base, place.offset + at, R1)
            else:
                asm.store(place.base, place.offset + at, word)

    def zero(self, place: Place, size: int) -> None:
        """Put zeros at a place."""
        for at in range(0, size, 8):
            self.asm.store(place.base, place.offset + at, 0)

    def copy(self, source: Place, place: Place, size: int) -> None:
        """Copy a value from a place to another."""
        if source == place:
            return
        self.asm.mov(R0, source.base)
        self.asm.add(R0, source.offset)
        self._copy_from_r0(place, size)

    def copy_from(self, source: Reg, place: Place, size: int, keep: Reg | None = None) -> None:
        """Copy what a register points to; ``keep`` is a register that must not change."""
        slot = None if keep is None else self.numbers.push(keep)
        self.asm.mov(R0, source)
        self._copy_from_r0(place, size)
        if slot is not None and keep is not None:
            self.asm.load(keep, R10, slot)
            self.numbers.pop()

    def _copy_from_r0(self, place: Place, size: int) -> None:
        # Copies from memory that programs may read directly.
        asm = self.asm
        if size <= _COPY:
            for at in range(0, size, 8):
                asm.load(R1, R0, at)
                asm.store(place.base, place.offset + at, R1)
            return
        asm.mov(R1, place.base)
        asm.add(R1, place.offset)
        asm.mov(R2, size)
        asm.mov(R3, R0)
        asm.call(Helper.PROBE_READ_KERNEL)
