"""The functions whose results are computed in maps: count(), hist(), tseries() and the like."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from usdt.engine.programs.check.functions.arguments import FunctionChecker
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.types import Aggregate, AggregateType

if TYPE_CHECKING:
    from usdt.engine.programs.syntax import tree
    from usdt.engine.programs.typed import Scalar

__all__ = ("AGGREGATES", "AggregateFunctions")

AGGREGATES = {one.value: one for one in Aggregate}

_ARGUMENTS = {
    Aggregate.COUNT: (0, 0),
    Aggregate.HIST: (1, 2),
    Aggregate.LHIST: (4, 4),
    Aggregate.TSERIES: (3, 4),
}
_BITS = 5  # most bits of hist()
_MOST_BUCKETS = 1000  # of lhist(), as in bpftrace
_MOST_INTERVALS = 1_000_000  # of tseries(), as in bpftrace
_IN_INTERVALS = ("avg", "max", "min", "sum")


class AggregateFunctions(FunctionChecker):
    """A checker of the functions whose results are computed in maps."""

    def aggregate(self, node: tree.Call) -> tuple[AggregateType, Scalar | None]:
        """Return what a call computes, and of which number; None for count()."""
        function = AGGREGATES[node.function]
        given = self.arguments(node, *_ARGUMENTS.get(function, (1, 1)))
        if function is Aggregate.COUNT:
            return AggregateType(function), None
        number = self.number(given[0], f"{node.function}()")
        signed = number.node.type.signed or number.node.type.size < 8
        if function is Aggregate.TSERIES:
            return self._series(node, signed=signed), number
        rest = tuple(self.integer(one, f"{node.function}()") for one in given[1:])
        if function is Aggregate.HIST:
            rest = rest or (0,)
            if not 0 <= rest[0] <= _BITS:
                raise self.error(given[1], f"hist() takes 0 to {_BITS} bits, not {rest[0]}")
        if function is Aggregate.LHIST:
            low, high, step = rest
            if low >= high or step < 1:
                raise self.error(
                    given[1], "lhist() takes a number, MIN < MAX, and a STEP from 1 on"
                )
            if (most := (high - low) // step) > _MOST_BUCKETS:
                reason = f"must be <= {_MOST_BUCKETS} (would need {most})"
                raise self.error(node, f"lhist() too many buckets, {reason}")
        return AggregateType(function, signed, rest), number

    def _series(self, node: tree.Call, *, signed: bool) -> AggregateType:
        _, *given = self.arguments(node, *_ARGUMENTS[Aggregate.TSERIES])
        interval, count = (self.integer(one, "tseries()") for one in given[:2])
        if interval < 1:
            raise self.error(node, f"tseries() interval_ns must be >= 1 ({interval} provided)")
        if not 1 <= count < _MOST_INTERVALS:
            bound = ">= 1" if count < 1 else f"< {_MOST_INTERVALS}"
            raise self.error(node, f"tseries() num_intervals must be {bound} ({count} provided)")
        inner = None
        if given[2:]:
            name = self.text(given[2], "tseries()").decode("utf-8", "backslashreplace")
            if name not in _IN_INTERVALS:
                known = ", ".join(_IN_INTERVALS)
                what = "tseries() expects one of the following aggregation functions"
                raise self.error(node, f'{what}: {known} ("{name}" provided)')
            inner = AGGREGATES[name]
        return AggregateType(Aggregate.TSERIES, signed, (interval, count), inner)

    def moment(self) -> Scalar:
        """Return the nanoseconds since 1970, by which the intervals of tseries() are aligned."""
        if not self.state.ahead:
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            self.state.ahead = time.time_ns() - now
        return self.arithmetic("+", self.clock(""), constant(self.state.ahead))
