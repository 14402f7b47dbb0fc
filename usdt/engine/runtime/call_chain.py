"""Call chains: functions that call one another in a given order (``-s``), entries and returns.

``A B C``: a call of C counts if it is made, directly or through other functions, by a call of B
that is made by a call of A, in one thread. Kernel programs keep the progress of each thread:

    key     u64: thread ID; for idle tasks, which all have ID 0, (CPU + 1) << 32
    value   u64 level: number of active functions, outermost first; u64 scratch;
            u64 stack pointer at the entry of each

The states of a thread are the levels 0 to N. The entry of function n passes at level n, which
becomes n + 1. Its return passes at a level above n, which becomes n. All other hits are ignored. A
call that an exception or longjmp() ended is detected by the next entry with a higher stack pointer.
An entry with the same stack pointer counts as a tail call. Records that passed are held back until
the innermost function is entered. They are dropped if their function returns earlier
(:class:`usdt.engine.runtime.chain_filter.ChainFilter`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen, replace
from usdt.bpf._uapi import Helper, MapType
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R7, R9, R10, Alu, Jump
from usdt.bpf.maps import MapSpec
from usdt.engine.compiler.codegen.map_calls import (
    emit_map_call,
    emit_map_key,
    emit_unique_thread,
)
from usdt.engine.compiler.codegen.model import EXIT
from usdt.engine.compiler.codegen.stack_slots import ENTRY_POINTER_SLOT, KEY_SLOT, STRING_SLOT
from usdt.engine.compiler.entry_return import (
    EntryReturnPlans,
    needs_return,
    split_entry_return,
)
from usdt.engine.runtime.attach.requests import AttachRequest
from usdt.engine.runtime.chain_filter import ChainFilter
from usdt.engine.runtime.planner import AttachPlanner
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.bpf.asm.assembler import Assembler
    from usdt.engine.compiler.codegen.model import ProgramVariant
    from usdt.engine.compiler.entry_return import EntryReturnMatch
    from usdt.engine.compiler.outputs import Output
    from usdt.engine.compiler.plan import ProbePlan
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.decode import RecordConsumer
    from usdt.engine.runtime.attach.attach_points import AttachPoint

__all__ = ("CallChainSession", "ChainCondition", "ChainPlanner")

_MAP = "sequence"
_THREADS = 1 << 14  # maximum threads with active calls; beyond that, the oldest is evicted
_SCRATCH, _POINTERS = 8, 16  # offsets in a value
# Maximum bytes of a kernel stack; a larger distance means another stack, such as an interrupt's
_KERNEL_STACK = 1 << 16
_USER_STACK = 1 << 23
# Registers: the address of the thread's value, its level, the stack pointer of the hit
_STATE, _LEVEL, _POINTER = R0, R1, R7


@frozen
class ChainCondition:
    """A hit condition: passes a hit if its function is the next of the chain.

    Attributes:
        position: position of the function in the chain; 0 is the outermost.
        count: number of functions.
        entry: whether the hit is an entry; else it is a return.
        stack: location of the stack pointer.
        kernel: whether the function is in the kernel.
    """

    position: int
    count: int
    entry: bool
    stack: EntryReturnMatch
    kernel: bool

    @property
    def after_predicates(self) -> bool:
        """Whether the predicates are evaluated first: at the entry, not at the return."""
        return self.entry

    def prepare(self, asm: Assembler) -> None:
        """Emit code that drops calls that ended without a return; the stack pointer shows them."""
        unknown = asm.new_label("unknown")
        _key(asm)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, _MAP)
        asm.jump(Jump.EQ, R0, 0, unknown)
        self._level(asm)
        asm.label(unknown)

    def emit(self, asm: Assembler, lost: str) -> None:
        """Emit the decision: fall through, jump to ``EXIT``, or to ``lost`` if the map is full."""
        _key(asm)
        if self.entry:
            self._enter(asm, lost)
        else:
            self._leave(asm)

    def _pointer(self, asm: Assembler) -> None:
        # Leaves the stack pointer in _POINTER. If it is the context's address, it is stored in the
        # map and loaded again: the verifier then treats it as a number.
        pointer = self.stack.pointer
        if self.stack.kernel_keeps_sp and not self.entry:
            asm.load(_POINTER, R10, ENTRY_POINTER_SLOT)
        elif pointer is None:
            asm.store(_STATE, _SCRATCH, R6)
            asm.load(_POINTER, _STATE, _SCRATCH)
        else:
            asm.load(_POINTER, R6, pointer.offset, pointer.size)

    def _level(self, asm: Assembler) -> None:
        # Leaves the number of active calls in _LEVEL and in the thread's value, and the stack
        # pointer in _POINTER.
        self._pointer(asm)
        asm.load(_LEVEL, _STATE, 0)
        level = asm.new_label("level")
        for number in reversed(range(self.count)):
            lower = asm.new_label("lower")
            asm.jump(Jump.NE, _LEVEL, number + 1, lower)
            asm.mov(R2, _POINTER)
            asm.load(R3, _STATE, _POINTERS + 8 * number)
            asm.alu(Alu.SUB, R2, R3)  # as a u64 it is huge if this call is below that one
            if number < self.position:
                # That call made this one as a tail call, and counts as active.
                asm.jump(Jump.EQ, R2, 0, level)
            asm.jump(Jump.GE, R2, _KERNEL_STACK if self.kernel else _USER_STACK, level)
            asm.mov(_LEVEL, number)
            asm.label(lower)
        asm.label(level)
        asm.store(_STATE, 0, _LEVEL)

    def _enter(self, asm: Assembler, lost: str) -> None:
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, _MAP)
        if self.position:
            asm.jump(Jump.EQ, R0, 0, EXIT)
        else:
            self._begin(asm, lost)
        self._level(asm)
        asm.jump(Jump.NE, _LEVEL, self.position, EXIT)
        asm.store(_STATE, _POINTERS + 8 * self.position, _POINTER)
        asm.mov(_LEVEL, self.position + 1)
        asm.store(_STATE, 0, _LEVEL)

    def _begin(self, asm: Assembler, lost: str) -> None:
        # Adds a value for a thread that has none.
        known = asm.new_label("known")
        asm.jump(Jump.NE, R0, 0, known)
        for offset in range(0, _POINTERS + 8 * self.count, 8):
            asm.store(R10, STRING_SLOT + offset, 0)
        emit_map_key(asm, _MAP)
        asm.mov(R3, R10)
        asm.add(R3, STRING_SLOT)
        asm.mov(R4, 0)
        asm.call(Helper.MAP_UPDATE_ELEM)
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, _MAP)
        asm.jump(Jump.EQ, R0, 0, lost)
        asm.label(known)

    def _leave(self, asm: Assembler) -> None:
        emit_map_call(asm, Helper.MAP_LOOKUP_ELEM, _MAP)
        asm.jump(Jump.EQ, R0, 0, EXIT)
        self._pointer(asm)
        asm.load(_LEVEL, _STATE, 0)
        asm.jump(Jump.LE, _LEVEL, self.position, EXIT)
        asm.load(R2, _STATE, _POINTERS + 8 * self.position)
        same = asm.new_label("same")
        for popped in self.stack.return_pops:
            asm.mov(R3, _POINTER)
            if popped:
                asm.add(R3, -popped)
            asm.jump(Jump.EQ, R3, R2, same)
        asm.goto(EXIT)
        asm.label(same)
        asm.store(_STATE, 0, self.position)
        if not self.position:
            emit_map_call(asm, Helper.MAP_DELETE_ELEM, _MAP)


def _key(asm: Assembler) -> None:
    asm.mov(R1, R9)
    asm.alu(Alu.LSH, R1, 32)
    asm.alu(Alu.RSH, R1, 32)
    emit_unique_thread(asm, R1)
    asm.store(R10, KEY_SLOT, R1)


class ChainPlanner(AttachPlanner):
    """A planner of both ends of every function, each with the condition of the chain.

    Args:
        announce: see :class:`usdt.engine.runtime.planner.AttachPlanner`.
        chain_filter: receives the function of each variant.
        requests: the functions in the order of the chain.
        settings: see the base class.
    """

    def __init__(
        self,
        announce: Callable[[ProgramVariant, str, ProbeText], None],
        chain_filter: ChainFilter,
        requests: Sequence[ProbeText],
        **settings: Any,
    ) -> None:
        super().__init__(announce, **settings)
        self._requests += requests  # numbers them, in whatever order they are attached
        self._filter = chain_filter
        self._count = len(requests)
        self._positions: dict[object, int] = {}

    def _requests_at(
        self, request: ProbeText, point: AttachPoint, plan: ProbePlan
    ) -> Iterator[AttachRequest]:
        call = point.call
        if call is None:
            raise TracingError(
                f"{point.probe}: -s follows functions from entry to return (kprobe:FUNCTION, "
                "uprobe:TARGET:FUNCTION); this is not a function's entry"
            )
        plan = self._for_word_size(point, plan)
        position, kernel = self.request_number(request), point.kernel_target is not None
        attach_point = point.kernel_target or (point.open_path, point.offset)
        if self._positions.setdefault(attach_point, position) != position:
            raise TracingError(f"{point.probe}: -s takes each function once; it is named twice")
        entry = replace(
            plan,
            predicates=tuple(node for node in plan.predicates if not needs_return(node)),
            outputs=tuple(one for one in plan.outputs if not _of_return(one)),
        )
        condition = ChainCondition(position, self._count, entry=True, stack=call, kernel=kernel)
        entered = self._variant(request, point.probe, entry, condition=condition)
        self._filter.add_variant(entered.number, position, entry=True)
        yield AttachRequest(point, entered)
        condition = ChainCondition(position, self._count, entry=False, stack=call, kernel=kernel)
        for one in self._entry_and_return(
            request, point, self._split(point, plan), call, condition
        ):
            if one.on_return:
                self._filter.add_variant(one.variant.number, position, entry=False)
            yield one

    def _split(self, point: AttachPoint, plan: ProbePlan) -> EntryReturnPlans:
        # Returns the plan of the return and of the values captured for it. Without items of the
        # return, the plan shows the returned value.
        outputs = tuple(one for one in plan.outputs if _of_return(one))
        ends = split_entry_return(replace(plan, outputs=outputs))
        return ends or self._returned(point)


class CallChainSession(RingBufferSession):
    """A session that shows functions only if they call one another in the given order.

    Args:
        inner: consumes the records that are shown.
        requests: the functions in the order of the chain.
        settings: see :class:`usdt.engine.runtime.session.RingBufferSession`.
    """

    def __init__(
        self, inner: RecordConsumer, requests: Sequence[ProbeText], **settings: Any
    ) -> None:
        self._filter = ChainFilter(inner, len(requests))
        self._chain = tuple(requests)
        super().__init__(self._filter, **settings)
        size = _POINTERS + 8 * len(requests)
        threads = MapSpec(MapType.LRU_HASH, 8, size, _THREADS, _MAP).create()
        self._resources.callback(threads.close)
        self._attacher.add_maps({_MAP: threads})

    def _make_planner(self, **settings: Any) -> ChainPlanner:
        return ChainPlanner(self._announce, self._filter, self._chain, **settings)


def _of_return(output: Output) -> bool:
    nodes = [output.node] if output.length is None else [output.node, output.length]
    return any(map(needs_return, nodes))
