"""The planner of a session: probes and attach points → variants and attach requests.

It does not use the kernel. If a plan needs both ends of a function, its attach point becomes two
requests: one at the return, and one at the entry that captures values for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.arch.locations import VOID, AtFunctionReturn, Unreadable
from usdt.base.errors import LanguageError, TracingError
from usdt.base.frozen import replace
from usdt.engine.compiler.arguments import numbered
from usdt.engine.compiler.codegen.model import ProgramVariant
from usdt.engine.compiler.limits import MAX_READ
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.language import parse_probe
from usdt.engine.runtime.attach.attach_points import SyscallTarget
from usdt.engine.runtime.attach.requests import AttachRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.compiler.codegen.model import HitCondition
    from usdt.engine.compiler.entry_return import (
        EntryReturnMatch,
        EntryReturnPlans,
        EntryReturnRole,
    )
    from usdt.engine.compiler.record.columns import StackCopyColumn
    from usdt.engine.language.tree import ProbeText, StackKind
    from usdt.engine.runtime.attach.attach_points import AttachPoint
    from usdt.engine.runtime.unwinding import StackCopies

__all__ = ("MAX_COUNTERS", "AttachPlanner", "has_result")

MAX_COUNTERS = 1 << 14  # maximum probes with counters of their own; all later ones share the last
_NARROW = 4  # bytes of a word of 32-bit processes


class AttachPlanner:
    """A planner of the programs that a session attaches.

    Args:
        announce: called with each new variant that delivers results, the probe's name and the
            request, before the variant is used. If it raises, the variant is discarded.
        max_string: bytes that str() keeps of a string.
        max_struct: bytes that are kept of a structure; 0 records the address instead of the
            structure that a pointer points to.
        stacks: stacks that are recorded at every hit, in addition to the items.
        copies: how user stacks are recorded; None: the kernel follows frame pointers.

    Attributes:
        probes: probe name → index of its counters.
        atomics: tells whether the kernel has atomic instructions that return the previous value.

    Raises:
        TracingError: max_string or max_struct is out of range.
    """

    def __init__(
        self,
        announce: Callable[[ProgramVariant, str, ProbeText], None],
        *,
        max_string: int,
        max_struct: int = 0,
        stacks: Sequence[StackKind] = (),
        copies: StackCopies | None = None,
    ) -> None:
        if not 0 < max_string < MAX_READ:
            raise TracingError(f"str() can keep 1 to {MAX_READ - 1} bytes, not {max_string}")
        if not 0 <= max_struct <= MAX_READ:
            reason = f"0 to {MAX_READ} bytes of a structure are kept, not {max_struct}"
            raise TracingError(reason)
        self.probes: dict[str, int] = {}
        self._announce = announce
        self._max_string = max_string
        self._max_struct = max_struct
        self._stacks = tuple(stacks)
        self._copies = copies
        self.atomics: Callable[[], bool] = lambda: False
        self._requests: list[ProbeText] = []
        self._variants: dict[tuple[int, int, ProbePlan, HitCondition | None], ProgramVariant] = {}
        # Variants that capture values at entry, by the number of the return's variant and the plan.
        self._entries: dict[tuple[int, ProbePlan], ProgramVariant] = {}

    def plan(
        self, request: ProbeText, points: Sequence[AttachPoint], declared: int
    ) -> list[AttachRequest]:
        """Plan a probe at some of its attach points.

        Args:
            request: the probe.
            points: the attach points.
            declared: number of arguments that the probe declares; 0 if unknown.

        Raises:
            LanguageError: an item is not valid at the probe.
        """
        most = max((numbered(point.arguments) for point in points), default=0)
        plans: dict[Any, ProbePlan] = {}
        requests: list[AttachRequest] = []
        for point in points:
            key = (point.probe, point.arguments, point.registers)
            if key not in plans:
                plans[key] = self.plan_items(request, point, max(most, declared))
            requests += self._requests_at(request, point, plans[key])
        return requests

    def plan_items(self, request: ProbeText, point: AttachPoint, declared: int) -> ProbePlan:
        """Return the plan of a probe's items at an attach point.

        Raises:
            LanguageError: an item is not valid at the probe.
        """
        return make_plan(
            request.items,
            point.arguments,
            text=request.text,
            probe=point.probe,
            declared=declared,
            max_string=self._max_string,
            max_struct=self._max_struct,
            function=point.function,
            types=point.types,
            stacks=self._stacks,
            stack_copy=self._stack_copy(point),
            kernel=point.kernel_target is not None,
            whole_call=_is_whole_call(point),
            registers=point.registers,
            in_short=point.both_ends,
        )

    def _stack_copy(self, point: AttachPoint) -> Callable[[], StackCopyColumn | None] | None:
        if self._copies is None:
            return None
        return self._copies.user if point.kernel_target is None else self._copies.kernel

    def check_items(self, request: ProbeText, point: AttachPoint) -> LanguageError | None:
        """Return the error of a probe's items at an attach point; None if they are valid."""
        try:
            self.plan_items(request, point, len(point.arguments))
        except LanguageError as err:
            return err
        return None

    def counter_of(self, probe: str) -> int:
        """Return the index of a probe's counters."""
        return min(self.probes.setdefault(probe, len(self.probes)), MAX_COUNTERS - 1)

    def request_number(self, request: ProbeText) -> int:
        """Return the index of a request, by identity: START and END may have the same text."""
        for number, known in enumerate(self._requests):
            if known is request:
                return number
        self._requests.append(request)
        return len(self._requests) - 1

    def _requests_at(
        self, request: ProbeText, point: AttachPoint, plan: ProbePlan
    ) -> Iterator[AttachRequest]:
        # Yields requests at both ends of the function if the plan needs both.
        plan = self._for_word_size(point, plan)
        match = point.call
        if point.both_ends and match is not None:
            yield AttachRequest(point, self._variant(request, point.probe, plan))
            yield from self._entry_and_return(request, point, self._returned(point), match)
            return
        ends = None
        if match is not None:
            from usdt.engine.compiler.entry_return import split_entry_return  # noqa: PLC0415 - for functions

            ends = split_entry_return(
                plan, mark_returns=match.mark_returns, arguments_stay=match.arguments_stay
            )
        if ends is None or match is None:
            yield AttachRequest(point, self._variant(request, point.probe, plan))
            return
        yield from self._entry_and_return(request, point, ends, match)

    def _for_word_size(self, point: AttachPoint, plan: ProbePlan) -> ProbePlan:
        pointer = None if point.call is None else point.call.pointer
        if pointer is not None and pointer.size == _NARROW and point.kernel_target is None:
            from usdt.engine.compiler.entry_return import for_32bit_process  # noqa: PLC0415 - for functions

            return for_32bit_process(plan)
        return plan

    def _returned(self, point: AttachPoint) -> EntryReturnPlans:
        # Returns the plan of a function's return, which shows the returned value, if there is one.
        from usdt.engine.compiler.entry_return import (  # noqa: PLC0415 - for functions
            EntryReturnPlans,
            split_entry_return,
        )

        plan = self.plan_items(parse_probe("call(return)"), point, len(point.arguments))
        ends = split_entry_return(self._for_word_size(point, plan)) if _returns(point) else None
        return ends or EntryReturnPlans(
            None, replace(plan, predicates=(), outputs=(), returns=True)
        )

    def _entry_and_return(
        self,
        request: ProbeText,
        point: AttachPoint,
        ends: EntryReturnPlans,
        match: EntryReturnMatch,
        condition: HitCondition | None = None,
    ) -> Iterator[AttachRequest]:
        # Yields the request at the return; also one at the entry if the return needs entry state.
        at_return = self._variant(
            request, point.probe, ends.returned, ends, match, condition=condition
        )
        yield AttachRequest(point, at_return, on_return=True)
        if ends.entry is not None and at_return.call is not None:
            yield AttachRequest(point, self._entry(at_return, ends.entry, at_return.call))

    def _entry(
        self, at_return: ProgramVariant, plan: ProbePlan, role: EntryReturnRole
    ) -> ProgramVariant:
        key = at_return.number, plan
        if key not in self._entries:
            mine = replace(role, entry=True)
            self._entries[key] = ProgramVariant(
                self._next_number(), at_return.probe_index, plan, mine
            )
        return self._entries[key]

    def _variant(
        self,
        request: ProbeText,
        probe: str,
        plan: ProbePlan,
        ends: EntryReturnPlans | None = None,
        match: EntryReturnMatch | None = None,
        *,
        condition: HitCondition | None = None,
    ) -> ProgramVariant:
        request_number = self.request_number(request)
        index = self.probes.setdefault(probe, len(self.probes))
        key = request_number, index, plan, condition
        variant = self._variants.get(key)
        if variant is None:
            number, role = self._next_number(), None
            if ends is not None and ends.entry is not None and match is not None:
                from usdt.engine.compiler.entry_return import EntryReturnRole  # noqa: PLC0415 - for functions

                role = EntryReturnRole(
                    entry=False,
                    pair=number,
                    size=ends.size,
                    stack=match.required(),
                    timed=ends.timed,
                    places=self._places(ends.size),
                )
            variant = ProgramVariant(number, min(index, MAX_COUNTERS - 1), plan, role, condition)
            self._announce(variant, probe, request)
            self._variants[key] = variant
        return variant

    def _places(self, size: int) -> int:
        from usdt.engine.compiler.entry_return import places_of  # noqa: PLC0415 - for functions

        return places_of(size) if self.atomics() else 0

    def _next_number(self) -> int:
        return len(self._variants) + len(self._entries) + 1


def _returns(point: AttachPoint) -> bool:
    # Whether a returned value exists and can be read.
    last = point.arguments[-1] if point.arguments else None
    if last is None or last.name != "return" or isinstance(last.fetch, Unreadable):
        return False
    return last.fetch != AtFunctionReturn(VOID)


def _is_whole_call(point: AttachPoint) -> bool:
    return isinstance(point.kernel_target, SyscallTarget) and point.kernel_target.returns


def has_result(point: AttachPoint) -> bool:
    """Return whether the last "argument" of an attach point is the function's result."""
    return bool(point.arguments) and point.arguments[-1].name == "return"
