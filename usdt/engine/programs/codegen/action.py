"""The action of a probe of a program: what runs at a hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0, R1, R2, R3, R6, R7, R9, R10, Alu, Jump
from usdt.bpf.rings.groups import ring_groups
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.compiler.codegen.model import ActionEmitter, Labels
from usdt.engine.compiler.codegen.stack_slots import KEY_SLOT
from usdt.engine.programs.codegen.frame import (
    CONTEXT_SLOT,
    SCRATCH_SLOT,
    TASK_SLOT,
    ZERO_SLOT,
    Frame,
)
from usdt.engine.programs.codegen.names import scratch_name
from usdt.engine.programs.codegen.statements import StatementEmitter
from usdt.engine.programs.codegen.values import CodeOptions
from usdt.engine.programs.typed import ForMap, If, Loop, StackOf
from usdt.engine.programs.walk import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.rings.groups import RingGroups
    from usdt.engine.compiler.codegen.model import ProgramVariant
    from usdt.engine.programs.typed import Statement

__all__ = ("SCRATCH_ENTRIES", "ProbeBody", "ProgramAction", "scratch_size")

#: Entries of scratch memory for each CPU: of programs that preempt one another there.
SCRATCH_ENTRIES = 4
_OBJECT = 8  # offset of the object in the context of an iterator


@frozen
class ProbeBody:
    """What a probe does at a hit.

    Attributes:
        statements: what it does.
        kernel: whether addresses may be in the kernel.
        scratch: the size of an entry of scratch memory, or 0.
        iterates: whether an iterator runs it, for one object after the other.
    """

    statements: tuple[Statement, ...]
    kernel: bool
    scratch: int
    iterates: bool = False

    def __hash__(self) -> int:
        # Hashing all statements would take longer than comparing the few bodies that are alike.
        return hash((len(self.statements), self.kernel, self.scratch))


def scratch_size(statements: Sequence[Statement], *, kernel: bool) -> int:
    """Return the bytes of scratch memory that statements need, rounded up to a power of two.

    Raises:
        TracingError: they need more stack than there is.
        ValuesTooLarge: their values are larger than instructions reach.
    """
    asm = Assembler()
    frame = Frame(_depth(statements), scratch=True)
    _emit(asm, frame, statements, CodeOptions(kernel, 0, atomics=True))
    asm.emit_functions()  # loops use it as well
    used = frame.scratch_used
    return 1 << (used - 1).bit_length() if used else 0


def _depth(statements: Sequence[Statement]) -> int:
    # How many functions call one another at most, beside the first: a step of a walk is one.
    kinds = (one.type for one in parts(*statements) if isinstance(one, StackOf))
    return _loops(statements) + any(kind.walked for kind in kinds)


def _loops(statements: Sequence[Statement]) -> int:
    # How deeply loops are nested.
    deepest = 0
    for one in statements:
        if isinstance(one, Loop | ForMap):
            deepest = max(deepest, 1 + _loops(one.body))
        elif isinstance(one, If):
            deepest = max(deepest, _loops(one.yes), _loops(one.no))
    return deepest


def _emit(
    asm: Assembler, frame: Frame, statements: Sequence[Statement], options: CodeOptions
) -> None:
    end = asm.new_label("end")
    emitter = StatementEmitter(asm, frame, options, {"return": end})
    emitter.block(statements)
    asm.label(end)


def _take_object(asm: Assembler, none: str) -> None:
    # Goes to ``none`` at the end, where there is no object. A byte for each object lets a read of
    # the iterator end after as many as it asks for.
    asm.load(R1, R6, _OBJECT)
    asm.jump(Jump.EQ, R1, 0, none)
    asm.load(R1, R6, 0)  # struct bpf_iter_meta
    asm.load(R1, R1, 0)  # struct seq_file
    asm.store(R10, KEY_SLOT, 0, 1)
    asm.mov(R2, R10)
    asm.add(R2, KEY_SLOT)
    asm.mov(R3, 1)
    asm.call(Helper.SEQ_WRITE)


class ProgramAction(ActionEmitter):
    """An emitter of the bodies of probes.

    A program may print at hundreds of places, each a record. Where they are in an array, the
    verifier takes ten times as long for a record: the kernel's ring buffers serve here.

    Args:
        atomics: whether the kernel has atomic instructions that return the previous value.

    Attributes:
        bodies: number of the variant → its body; set before the program is emitted.
    """

    def __init__(self, *, atomics: bool) -> None:
        self._atomics = atomics
        self.bodies: dict[int, ProbeBody] = {}

    @property
    def groups(self) -> RingGroups:
        """How the CPUs of this machine share ring buffers."""
        return ring_groups()

    def emit(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the body of a variant; it does not sleep."""
        del sleepable
        body = self.bodies[variant.number]
        if body.iterates:
            _take_object(asm, labels.exit)
        loops = _depth(body.statements)
        frame = Frame(loops, scratch=bool(body.scratch))
        asm.store(R10, TASK_SLOT, R9)
        # The sign of pid_tgid is 0, which the verifier does not know.
        asm.mov(R0, R9)
        asm.alu(Alu.ARSH, R0, 63)
        asm.store(R10, ZERO_SLOT, R0)
        if loops:
            asm.store(R10, CONTEXT_SLOT, R6)
        if body.scratch:
            self._take_scratch(asm, body.scratch, labels.lost)
            if loops:
                asm.store(R10, SCRATCH_SLOT, R7)
        options = CodeOptions(body.kernel, variant.probe_index, self._atomics, self.groups)
        _emit(asm, frame, body.statements, options)
        if body.scratch:
            asm.store(R7, 0, 0)
        asm.goto(labels.exit)

    def _take_scratch(self, asm: Assembler, size: int, lost: str) -> None:
        # Leaves an entry of scratch memory in r7: the first of this CPU that nobody has. Kernels
        # without the atomic instruction run programs without preemption.
        taken = asm.new_label("taken")
        for attempt in range(SCRATCH_ENTRIES):
            asm.call(Helper.GET_SMP_PROCESSOR_ID)
            asm.alu(Alu.LSH, R0, SCRATCH_ENTRIES.bit_length() - 1)
            asm.add(R0, attempt)
            asm.store(R10, KEY_SLOT, R0, 4)
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, scratch_name(size))
            asm.jump(Jump.EQ, R0, 0, lost)
            asm.mov(R7, R0)
            if not self._atomics:
                return
            asm.mov(R0, 0)
            asm.mov(R1, 1)
            asm.compare_exchange(R7, 0, R1)
            asm.jump(Jump.EQ, R0, 0, taken)
        asm.goto(lost)
        asm.label(taken)
