"""Spans: a start and an end, whose values are in one record.

The start program writes a record of its own, the *image*, into the entry state, and the end program
copies it into the ring buffer:

    entry state    0   the function's key, or the depth and stack pointer of a pair's start
                  16   bitmap of unreadable captures
                  24   the image: header, bitmap, duration, outputs of the start
                   …   captures: values of a function's entry that items of its return need
                   …   a pair's key
    record         0   the image; its number becomes that of the start and the end
                   …   outputs of the end

The time of the header is that of the start. The end program stores the duration in the image before
it evaluates anything, so predicates on it read the entry state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Captured
from usdt.base.frozen import frozen, replace
from usdt.engine.compiler.entry_return import (
    BITMAP_OFFSET,
    TIME_OFFSET,
    CaptureRewriter,
    needs_return,
)
from usdt.engine.compiler.ir import DURATION, U64, ArgumentValue, Builtin, Compare, Number
from usdt.engine.compiler.outputs import Output
from usdt.engine.compiler.plan import ProbePlan, placed
from usdt.engine.compiler.record.columns import IntColumn, StackColumn, StackCopyColumn
from usdt.engine.compiler.record.layout import DURATION_OFFSET, HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.ir import Node

__all__ = (
    "SPAN_DURATION",
    "SpanPlans",
    "duration_at_least",
    "span_end",
    "span_number",
    "span_start",
    "split_span",
)

_NUMBERS = 1 << 16  # a number of a start, or of an end, is below it
_AT_RETURN = Builtin(DURATION, U64)

#: ``duration`` at the end of a pair.
SPAN_DURATION = ArgumentValue(Captured(TIME_OFFSET + DURATION_OFFSET), U64)


@frozen
class SpanPlans:
    """The plans of a function whose calls are spans.

    Attributes:
        entry: the predicates of the entry, and the captures for the return.
        start: the image.
        returned: the end, with the start.
    """

    entry: ProbePlan
    start: ProbePlan
    returned: ProbePlan


def span_number(start: int, end: int) -> int:
    """Return the number in records of a start's and an end's variant, both below 65536."""
    return start * _NUMBERS + end


def span_start(plan: ProbePlan) -> ProbePlan:
    """Return the plan of a start whose record is an image."""
    duration = Output(DURATION, IntColumn(U64), Number(0, U64))
    outputs, size = placed((duration, *plan.outputs), DURATION_OFFSET)
    return replace(plan, outputs=outputs, size=size, bitmap_offset=HEADER_SIZE, result=None)


def span_end(plan: ProbePlan, image: int, end_probe: str) -> ProbePlan:
    """Return the plan of an end; ``image`` is the size of images."""
    outputs, size = placed(plan.outputs, image)
    made = replace(plan, outputs=outputs, size=size, bitmap_offset=HEADER_SIZE, result=None)
    return replace(made, image=image, end_probe=end_probe)


def duration_at_least(least: int, duration: Node = _AT_RETURN) -> Node:
    """Return the predicate that a duration is at least ``least`` nanoseconds."""
    return Compare(">=", duration, Number(least, U64), U64)


def split_span(plan: ProbePlan, end_probe: str) -> SpanPlans:
    """Split a plan for calls of a function into its ends.

    Items that need the return are taken there, stacks as well, and all others at the entry.

    Raises:
        TracingError: more than 64 values must be captured at entry.
    """
    starts = [output for output in plan.outputs if not _at_end(output)]
    start = span_start(ProbePlan((), tuple(starts), 0, kernel=plan.kernel))
    keeper = CaptureRewriter(TIME_OFFSET + start.size, SPAN_DURATION)
    outputs = tuple(keeper.output(output) for output in plan.outputs if _at_end(output))
    later = tuple(keeper.node(node) for node in plan.predicates if needs_return(node))
    sooner = tuple(node for node in plan.predicates if not needs_return(node))
    captures = tuple(keeper.captures.values())
    entry = ProbePlan(sooner, captures, keeper.size, BITMAP_OFFSET, kernel=plan.kernel)
    returned = span_end(ProbePlan(later, outputs, 0, kernel=plan.kernel), start.size, end_probe)
    return SpanPlans(entry, start, replace(returned, start=start))


def _at_end(output: Output) -> bool:
    parts: Sequence[Node] = [output.node] if output.length is None else [output.node, output.length]
    return isinstance(output.column, StackColumn | StackCopyColumn) or any(map(needs_return, parts))
