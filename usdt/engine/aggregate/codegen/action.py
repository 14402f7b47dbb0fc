"""The action of aggregations: find the value of a key and add to it, or store a start.

    hit      number → r7; key; address of the value → r8; add
    start    key of the pair; push the time on the stack of starts
    end      key of the pair; pop the last start, time since then → r7; continue as a hit

A result's key may be evaluated at the start. A number then stands for it: the start finds or makes
the number and pushes it with the time; at the end it is the key of the value.

Register use: r6 context, r7 number or time, r8 address, r9 pid_tgid.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, assert_never

from usdt.base.frozen import frozen
from usdt.bpf._uapi import Helper
from usdt.bpf.asm.insn import R0, R1, R3, R4, R7, R8, R10, Jump
from usdt.engine.aggregate.codegen.keys import KeyEmitter
from usdt.engine.aggregate.codegen.pairs import PairEmitter
from usdt.engine.aggregate.codegen.values import ZEROS, ValueEmitter, emit_new_number
from usdt.engine.aggregate.keys import HEADER
from usdt.engine.aggregate.values import value_size
from usdt.engine.compiler.codegen.expressions import KEY_SLOT, READ_SLOT, ExpressionEmitter
from usdt.engine.compiler.codegen.map_calls import emit_map_call
from usdt.engine.compiler.codegen.model import EXIT, ActionEmitter
from usdt.engine.compiler.record.columns import UnavailableColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.aggregate.keys import KeyLayout
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.compiler.codegen.model import Labels, ProgramVariant
    from usdt.engine.compiler.outputs import Output

__all__ = (
    "GROUPS",
    "VALUES",
    "AggregateAction",
    "AggregateActionEmitter",
    "Role",
)

VALUES = "values"  # hash by key, or per-CPU array by row
GROUPS = "groups"  # hash by a result's key at the start: u64, the number that stands for it
_NOEXIST = 1  # BPF_NOEXIST
_ON_STACK = 64  # largest value, in bytes, that is zeroed on the stack instead of copied from a map


class Role(enum.Enum):
    """What a hit does in an aggregation."""

    HIT = enum.auto()  # adds to a value
    START = enum.auto()  # stores its time
    END = enum.auto()  # adds the time since its start to a value


@frozen
class AggregateAction:
    """The action of one variant at a hit.

    Attributes:
        role: what a hit does.
        row: the row in the key of the value that it adds to.
        value: the number it adds; None if there is none or it is a time.
        pair: layout of the key that matches a start to its end; ``pair_outputs``: its expressions.
        keys: layout of the key of the value, or of the key that the start evaluates;
            ``key_outputs``: its expressions.
    """

    role: Role
    row: int
    value: Output | None
    pair: KeyLayout
    pair_outputs: tuple[Output, ...]
    keys: KeyLayout
    key_outputs: tuple[Output, ...]

    @property
    def unreadable(self) -> bool:
        """Whether some part of a key can never be read."""
        return any(
            isinstance(output.column, UnavailableColumn)
            for output in (*self.pair_outputs, *self.key_outputs)
        )

    @property
    def signed(self) -> bool:
        """Whether the number that it adds is signed."""
        return self.value is not None and self.value.node.type.signed


class AggregateActionEmitter(ActionEmitter):
    """An emitter of the actions of all variants.

    Args:
        aggregation: the aggregation to compute.
        atomics: whether the kernel has atomic instructions that return the previous value.
        cpus: the number of possible CPUs.

    Attributes:
        actions: variant number → action; set before the program of the variant is emitted.
    """

    def __init__(self, aggregation: Aggregation, *, atomics: bool, cpus: int) -> None:
        self.aggregation = aggregation
        self.atomics = atomics
        self.cpus = cpus
        self.actions: dict[int, AggregateAction] = {}

    def emit(
        self, asm: Assembler, variant: ProgramVariant, labels: Labels, *, sleepable: bool
    ) -> None:
        """Emit the action of a variant."""
        _VariantEmitter(self, asm, variant, labels, sleepable=sleepable).emit()

    def indexed(
        self, variants: Iterable[ProgramVariant]
    ) -> Callable[[Assembler, str], None] | None:
        """Return the emitter of one body for all variants, if they only count without a key.

        The body serves variants that each count in the row before their number. None: at least one
        variant does more.
        """
        what = self.aggregation
        if what.keyed or what.stats or what.buckets is not None:
            return None
        return self._count_in_row if all(map(self._only_counts, variants)) else None

    def _only_counts(self, one: ProgramVariant) -> bool:
        action, plan = self.actions[one.number], one.plan
        if (
            one.call is not None
            or one.condition is not None
            or plan.predicates
            or plan.always_false
        ):
            return False
        return action.role is Role.HIT and action.value is None and action.row == one.number - 1

    def _count_in_row(self, asm: Assembler, lost: str) -> None:
        # Counts in the row whose number is in KEY_SLOT.
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, VALUES)
        asm.jump(Jump.EQ, R0, 0, lost)
        asm.mov(R8, R0)
        self.adder(asm, signed=False, lost=lost).write()
        asm.goto(EXIT)

    def adder(self, asm: Assembler, *, signed: bool, lost: str) -> ValueEmitter:
        """Return the emitter of the code that adds to a value."""
        return ValueEmitter(
            asm,
            self.aggregation,
            signed=signed,
            atomics=self.atomics,
            step=self.cpus,
            lost=lost,
        )


class _VariantEmitter:
    def __init__(
        self,
        actions: AggregateActionEmitter,
        asm: Assembler,
        variant: ProgramVariant,
        labels: Labels,
        *,
        sleepable: bool,
    ) -> None:
        self.actions = actions
        self.aggregation = actions.aggregation
        self.atomics = actions.atomics
        self.action = actions.actions[variant.number]
        self.asm = asm
        self.sleepable = sleepable
        self.kernel = variant.plan.kernel
        self.lost = labels.lost
        self.unread = labels.undecided

    @property
    def _grouped_at_start(self) -> bool:
        return self.aggregation.at_start and bool(self.aggregation.keys)

    def emit(self) -> None:
        role = self.action.role
        match role:
            case Role.HIT:
                if self.action.value is not None:
                    self._number(self.action.value)
                self._add()
            case Role.START:
                self._pairs().start(self._find_group if self._grouped_at_start else None)
            case Role.END:
                pairs = self._pairs()
                pairs.end()
                self._add()
                pairs.count_unpaired()
            case _:
                assert_never(role)

    def _number(self, output: Output) -> None:
        if isinstance(output.column, UnavailableColumn):
            self.asm.goto(self.unread)
            return
        writer = ExpressionEmitter(
            self.asm, sleepable=self.sleepable, fail=self.unread, kernel=self.kernel
        )
        writer.value(output.node)
        self.asm.mov(R7, R0)

    def _key(
        self, layout: KeyLayout, outputs: tuple[Output, ...], text: str, *, tasks: bool = False
    ) -> KeyEmitter:
        return KeyEmitter(
            self.asm,
            layout,
            outputs,
            text=text,
            sleepable=self.sleepable,
            unread=self.unread,
            lost=self.lost,
            kernel=self.kernel,
            tasks=tasks,
        )

    def _pairs(self) -> PairEmitter:
        action, pair = self.action, self.aggregation.pair
        text = pair.text if pair is not None else ""
        key = self._key(action.pair, action.pair_outputs, text, tasks=True)
        grouped = self._grouped_at_start
        return PairEmitter(
            self.asm,
            key,
            grouped=grouped,
            atomics=self.atomics,
            places=self.atomics and self.aggregation.by_thread,
            lost=self.lost,
        )

    def _find_group(self) -> None:
        # Leaves the number of the result's key in r7.
        asm, action = self.asm, self.action
        found = asm.new_label("found")
        key = self._key(action.keys, action.key_outputs, self.aggregation.keys.text)
        key.write(action.row, intervals=False)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, GROUPS, key.base)
        asm.jump(Jump.NE, R0, 0, found)
        emit_new_number(asm, step=self.actions.cpus, atomics=self.atomics, failed=self.lost)
        asm.store(R10, READ_SLOT, R1)
        asm.mov(R3, R10)
        asm.add(R3, READ_SLOT)
        asm.mov(R4, _NOEXIST)
        emit_map_call(asm, Helper.MAP_UPDATE_ELEM, GROUPS, key.base)
        # Another CPU may have made the entry meanwhile; its number is then found.
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, GROUPS, key.base)
        asm.jump(Jump.EQ, R0, 0, self.lost)
        asm.label(found)
        asm.load(R7, R0, 0)

    # ------------------------------------------------------------ adding

    def _add(self) -> None:
        action, asm = self.action, self.asm
        if self.aggregation.keyed:
            key = self._key(action.keys, action.key_outputs, self.aggregation.keys.text)
            if self._grouped_at_start:
                key.write_header(action.row, intervals=self.aggregation.intervals)
                asm.store(R10, key.base + HEADER.size, R8)
            else:
                key.write(action.row, intervals=self.aggregation.intervals)
            self._find_or_make(key)
        else:
            asm.store(R10, KEY_SLOT, action.row, 4)
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, VALUES)
            asm.jump(Jump.EQ, R0, 0, self.lost)
        asm.mov(R8, R0)
        self.actions.adder(asm, signed=action.signed, lost=self.lost).write()
        asm.goto(EXIT)

    def _find_or_make(self, key: KeyEmitter) -> None:
        # Leaves the address of the key's value in r0.
        asm = self.asm
        found = asm.new_label("found")
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, VALUES, key.base)
        asm.jump(Jump.NE, R0, 0, found)
        size = value_size(self.aggregation)
        if size <= _ON_STACK:
            for offset in range(0, size, 8):
                asm.store(R10, key.free + offset, 0)
            asm.mov(R3, R10)
            asm.add(R3, key.free)
        else:
            asm.store(R10, KEY_SLOT, 0, 4)
            emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, ZEROS)
            asm.jump(Jump.EQ, R0, 0, self.lost)
            asm.mov(R3, R0)
        asm.mov(R4, _NOEXIST)
        emit_map_call(asm, Helper.MAP_UPDATE_ELEM, VALUES, key.base)
        # The update may fail because another CPU has made the entry meanwhile. The lookup finds
        # either.
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, VALUES, key.base)
        asm.jump(Jump.EQ, R0, 0, self.lost)
        asm.label(found)
