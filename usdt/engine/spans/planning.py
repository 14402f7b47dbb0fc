"""The planner of spans: probes → variants with the roles of a start and an end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.calling_convention import CONVENTIONS
from usdt.arch.locations import Register
from usdt.arch.pt_regs import instruction_pointer, saved_registers
from usdt.base.errors import LanguageError, TracingError
from usdt.base.frozen import replace
from usdt.base.machine import KERNEL_MACHINE, KERNEL_WORD_SIZE
from usdt.base.text import plural
from usdt.engine.aggregate.keys import lay_out
from usdt.engine.compiler.codegen.model import ProgramVariant
from usdt.engine.compiler.entry_return import TIME_OFFSET, EntryReturnRole, split_entry_return
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.compiler.record.columns import (
    ArrayColumn,
    BufferColumn,
    SocketAddressColumn,
    StringColumn,
)
from usdt.engine.compiler.spans import (
    SPAN_DURATION,
    duration_at_least,
    span_end,
    span_number,
    span_start,
    split_span,
)
from usdt.engine.runtime.attach.requests import AttachRequest
from usdt.engine.runtime.planner import MAX_COUNTERS, AttachPlanner
from usdt.engine.spans.pairs import PairEnd, thread_size
from usdt.engine.spans.spec import MAX_OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.engine.aggregate.keys import KeyLayout
    from usdt.engine.aggregate.spec import Items
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.spans.spec import SpanSpec

__all__ = ("STARTED", "SpanPlanner")

STARTED = " (start)"  # after a probe's name: counts starts that found no room

_ROUND = 64  # bytes: sizes of entry state are multiples of it
_MOST_THREADS, _THREADS_MEMORY = 1 << 11, 4 << 20  # of the array: threads, and bytes
_MOST_PAIRS = 1 << 14  # of variants of START with variants of END
_MOST_NUMBERS = 1 << 16
_MOST_VALUES = 62
_USER = ("usdt", "uprobe")
_TEXTS = StringColumn | BufferColumn | ArrayColumn | SocketAddressColumn


class SpanPlanner(AttachPlanner):
    """A planner of spans.

    Args:
        spec: the spans.
        announce: called with a number, a probe and a plan before records with the number arrive.
        atomics: whether the kernel has atomic instructions that return the previous value.
        more: those of :class:`AttachPlanner`.

    Attributes:
        images: bytes of the images of a pair's starts; 0 until the first start is planned.
        key_size: bytes of a pair's key.
        starts: the plans of starts, by their number.
    """

    def __init__(
        self,
        spec: SpanSpec,
        announce: Callable[[int, str, ProbePlan], None],
        *,
        atomics: bool,
        **more: Any,
    ) -> None:
        super().__init__(_ignore, **more)
        self._spec = spec
        self._report = announce
        self._atomics = atomics
        self._made: dict[tuple[object, ...], ProgramVariant] = {}
        self._ends: dict[int, ProgramVariant] = {}
        self._names: dict[int, str] = {}
        self.starts: dict[int, ProbePlan] = {}
        self._key_shape: tuple[tuple[bool, int], ...] = ()
        self.images = 0
        self.key_size = 0

    @property
    def state_size(self) -> int:
        """Bytes of the entry state of a pair."""
        return -(-(TIME_OFFSET + self.images + self.key_size) // _ROUND) * _ROUND

    @property
    def threads(self) -> int:
        """The number of threads whose starts are in an array, a power of two; 0: none."""
        if not (self._spec.by_thread and self._atomics):
            return 0
        most = _THREADS_MEMORY // thread_size(self.state_size, pointers=self.pointers)
        return 1 << max(0, min(_MOST_THREADS, most).bit_length() - 1)

    @property
    def pointers(self) -> bool:
        """Whether stack pointers tell which starts an exception has left."""
        in_program = all(one.kind in _USER for one in self._spec.requests)
        return in_program and self._spec.by_thread and _stack_pointer() is not None

    def plan_items(self, request: ProbeText, point: AttachPoint, declared: int) -> ProbePlan:
        """Return the plan of a probe's items at an attach point; also check the key there.

        Raises:
            LanguageError: an item is not valid at the probe.
        """
        ends = request is self._spec.end
        starts = self._spec.end is not None and not ends
        found = make_plan(
            request.items,
            point.arguments,
            text=request.text,
            stacks=() if starts else self._stacks,
            # An image is kept for every open span: it has no room for a copy of a stack.
            stack_copy=None if starts else self._stack_copy(point),
            duration=SPAN_DURATION if ends else None,
            whole_call=self._spec.end is None,
            **self._about(point, declared),
        )
        if len(found.outputs) > _MOST_VALUES // 2 and self._spec.end is not None:
            reason = (
                f"{len(found.outputs)} values; an end of a span has at most {_MOST_VALUES // 2}"
            )
            raise LanguageError(request.text, 0, reason)
        if self._spec.end is not None:
            self._key_plan(request, point, declared)
        return found

    def _about(self, point: AttachPoint, declared: int) -> dict[str, Any]:
        return {
            "probe": point.probe,
            "declared": declared,
            "max_string": self._max_string,
            "max_struct": self._max_struct,
            "function": point.function,
            "types": point.types,
            "kernel": point.kernel_target is not None,
            "registers": point.registers,
        }

    def _items_of(self, request: ProbeText) -> Items:
        return self._spec.end_key if request is self._spec.end else self._spec.key

    def _key_plan(self, request: ProbeText, point: AttachPoint, declared: int) -> ProbePlan:
        items = self._items_of(request)
        about = self._about(point, declared) | {"max_struct": 0}  # a structure is its address
        return make_plan(items.items, point.arguments, text=items.text, **about)

    def _requests_at(
        self, request: ProbeText, point: AttachPoint, plan: ProbePlan
    ) -> Iterator[AttachRequest]:
        plan = self._for_word_size(point, plan)
        if self._spec.end is None:
            yield from self._call(request, point, plan)
            return
        split = None
        if point.call is not None:
            split = split_entry_return(plan)
        if split is not None and split.entry is not None:
            reason = (
                "a function's return shows no values of its entry here: trace the function alone"
            )
            raise LanguageError(request.text, 0, reason)
        plan = plan if split is None else split.returned
        make = self._end if request is self._spec.end else self._start
        yield AttachRequest(point, make(request, point, plan), on_return=split is not None)

    # ------------------------------------------------------------ calls

    def _call(
        self, request: ProbeText, point: AttachPoint, plan: ProbePlan
    ) -> Iterator[AttachRequest]:
        if point.call is None:
            reason = f"{point.probe} has no return: write START END, two probes"
            raise LanguageError(request.text, 0, reason)
        if self._spec.slower:
            slower = duration_at_least(self._spec.slower)
            plan = replace(plan, predicates=(*plan.predicates, slower))
        key = "call", point.probe, plan, point.call
        if key not in self._made:
            ends = split_span(plan, point.probe)
            number = self._next_span()
            size = -(-ends.entry.size // _ROUND) * _ROUND
            role = EntryReturnRole(
                entry=True,
                pair=number,
                size=size,
                stack=point.call.required(),
                timed=True,
                start=ends.start,
                places=self._places(size) if self._spec.max_open >= MAX_OPEN else 0,
            )
            entry = ProgramVariant(number, self._counter(point.probe + STARTED), ends.entry, role)
            ended = replace(role, entry=False)
            self._made[key] = ProgramVariant(
                number + 1, self._counter(point.probe), ends.returned, ended
            )
            self._made["entry", key] = entry
            self._add_start(number, point.probe, ends.start)
            self._report(span_number(number, number + 1), point.probe, ends.returned)
        yield AttachRequest(point, self._made[key], on_return=True)
        yield AttachRequest(point, self._made["entry", key])

    # ------------------------------------------------------------ pairs

    def _start(self, request: ProbeText, point: AttachPoint, plan: ProbePlan) -> ProgramVariant:
        start = span_start(plan)
        if not self.images:
            self.images = start.size
            self.key_size = self._role(request, point, entry=True).key.size
        if start.size > self.images:
            raise TracingError(
                f"{point.probe}: a start of {start.size} bytes, after others of {self.images}: "
                "name one of the probes, or cast what differs"
            )
        role = self._role(request, point, entry=True)
        key = "start", point.probe, start, role
        if key not in self._made:
            number = self._next_span()
            self._made[key] = ProgramVariant(
                number, self._counter(point.probe + STARTED), start, pair=role
            )
            self._add_start(number, point.probe, start)
            for ending in self._ends.values():
                self._report_pair(number, ending)
        return self._made[key]

    def _end(self, request: ProbeText, point: AttachPoint, plan: ProbePlan) -> ProgramVariant:
        if self._spec.slower:
            slower = duration_at_least(self._spec.slower, SPAN_DURATION)
            plan = replace(plan, predicates=(slower, *plan.predicates))
        ended = span_end(plan, self.images, point.probe)
        role = self._role(request, point, entry=False)
        key = "end", point.probe, ended, role
        if key not in self._made:
            number = self._next_span()
            made = ProgramVariant(number, self._counter(point.probe), ended, pair=role)
            self._made[key] = self._ends[number] = made
            for start in self.starts:
                self._report_pair(start, made)
        return self._made[key]

    def _role(self, request: ProbeText, point: AttachPoint, *, entry: bool) -> PairEnd:
        items = self._items_of(request)
        keys = self._key_plan(request, point, len(point.arguments))
        layout = lay_out(items.items, keys.outputs)
        self._check_key(items, layout, point)
        pointers = self.pointers
        size = self.key_size or layout.size
        return PairEnd(
            entry=entry,
            faultable=keys.faultable,
            key=layout,
            outputs=keys.outputs,
            text=items.text,
            key_offset=-(-(TIME_OFFSET + self.images + size) // _ROUND) * _ROUND - size,
            pointer=_stack_pointer() if pointers else None,
            place=_place() if pointers else None,
            atomics=self._atomics,
            kernel=point.kernel_target is not None,
            same_thread=self._spec.by_thread,
            threads=self.threads,
        )

    def _check_key(self, items: Items, layout: KeyLayout, point: AttachPoint) -> None:
        # All keys of a map have one size; strings never equal numbers.
        shape = tuple((isinstance(one.column, _TEXTS), one.capacity) for one in layout.fields)
        self._key_shape = self._key_shape or shape
        for item, mine, other in zip(items.items, shape, self._key_shape, strict=True):
            if mine != other:
                reason = f"{point.probe}: {item.text} is {_described(mine)} of the key"
                hint = f"at the other probe it is {_described(other)}"
                end = "write values of one type, and strings of one length: str(EXPR, MAX)"
                raise LanguageError(items.text, item.expression.start, f"{reason}, {hint}; {end}")

    def _report_pair(self, start: int, ending: ProgramVariant) -> None:
        if len(self.starts) * len(self._ends) > _MOST_PAIRS:
            raise TracingError(
                f"{plural(len(self.starts), 'start')} and {plural(len(self._ends), 'end')} with "
                "different values: "
                "name fewer probes"
            )
        plan = replace(ending.plan, start=self.starts[start])
        self._report(span_number(start, ending.number), self._names[start], plan)

    # ------------------------------------------------------------ numbers

    def _add_start(self, number: int, probe: str, start: ProbePlan) -> None:
        # Its own number is that of spans that have not ended.
        self.starts[number] = start
        self._names[number] = probe
        self._report(number, probe, ProbePlan((), (), start.size, start.bitmap_offset, start=start))

    def _counter(self, name: str) -> int:
        return min(self.probes.setdefault(name, len(self.probes)), MAX_COUNTERS - 1)

    def _next_span(self) -> int:
        number = 1 + 2 * len(self._made)
        if number >= _MOST_NUMBERS - 1:
            raise TracingError("too many functions with different values: name fewer")
        return number


def _described(shape: tuple[bool, int]) -> str:
    text, capacity = shape
    return f"a string of {capacity} bytes" if text else f"a number of {capacity} bytes"


def _ignore(variant: ProgramVariant, probe: str, request: ProbeText) -> None:
    del variant, probe, request


def _place() -> Register | None:
    offset = instruction_pointer(KERNEL_MACHINE)
    return None if offset is None else Register(offset, KERNEL_WORD_SIZE)


def _stack_pointer() -> Register | None:
    convention = CONVENTIONS.get(KERNEL_MACHINE)
    slots = saved_registers(KERNEL_MACHINE)
    if convention is None or not slots:
        return None
    return Register(slots[convention.sp], KERNEL_WORD_SIZE)
