"""The planner of aggregations: probes and options → plans and actions, without the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError, TracingError
from usdt.base.frozen import frozen
from usdt.engine.aggregate.codegen.action import AggregateAction, Role
from usdt.engine.aggregate.keys import GROUP_KEY, KeyLayout, lay_out
from usdt.engine.aggregate.spec import Items, is_pattern, is_return, is_stack
from usdt.engine.compiler.ir import Number, Unavailable
from usdt.engine.compiler.outputs import Output, unavailable_output
from usdt.engine.compiler.plan import ProbePlan, make_plan
from usdt.engine.compiler.record.columns import (
    ArrayColumn,
    BytesColumn,
    FloatColumn,
    IntColumn,
    UnavailableColumn,
)
from usdt.engine.compiler.record.layout import HEADER_SIZE
from usdt.engine.language.tree import ALL_ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.arch.context_registers import ContextRegisters
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.scope import TypeProvider
    from usdt.engine.language.tree import Item, ProbeText

__all__ = ("AggregatePlanner", "ResultColumns", "Source")


@frozen
class Source:
    """The source of a result: a probe, found by one of the requests.

    Attributes:
        request: index of the request, in the order given.
        probe: name of the probe.
    """

    request: int
    probe: str


@frozen
class ResultColumns:
    """The layout of a row's keys and values. Equal layouts share a row number."""

    source: Source
    keys: KeyLayout
    signed: bool


class AggregatePlanner:
    """A planner of the variants of an aggregation.

    Args:
        aggregation: the aggregation to compute.
        requests: the probes; start and end, for a time between two.
        walks: whether programs walk user stacks; asked with whether the probe is the kernel's.

    Attributes:
        layouts: the layouts, by row number.

    Raises:
        LanguageError: a probe's items are not valid for the aggregation.
    """

    def __init__(
        self,
        aggregation: Aggregation,
        requests: Sequence[ProbeText],
        walks: Callable[[bool], bool] | None = None,
    ) -> None:
        self.aggregation = aggregation
        self._walks = walks
        self.layouts: list[ResultColumns] = []
        self._requests = requests
        self._values = [aggregation.check(request) for request in requests]
        self._rows: dict[ResultColumns, int] = {}

    def number_of(self, request: ProbeText) -> int:
        """Return the index of a request, by identity: two requests may have the same text."""
        for number, known in enumerate(self._requests):
            if known is request:
                return number
        raise TracingError(f"{request.text}: not among the probes of this session")

    def sources(self) -> list[Source]:
        """Return every probe that has results, in the order found."""
        ends = (
            layout.source for layout in self.layouts if self._has_results(layout.source.request)
        )
        return list(dict.fromkeys(ends))

    def plan(
        self,
        request: ProbeText,
        probe: str,
        arguments: Sequence[Argument],
        *,
        declared: int,
        max_string: int,
        function: str = "",
        types: TypeProvider | None = None,
        kernel: bool = False,
        registers: ContextRegisters | None = None,
    ) -> ProbePlan:
        """Return the plan of one probe for one set of arguments.

        Its outputs are the value, the key of the pair, and the key of the result.

        Raises:
            LanguageError: an item is not valid at this probe, or the value is not an integer.
        """

        def planned(items: Sequence[Item], text: str) -> ProbePlan:
            _check_single(items, text, arguments)
            return make_plan(
                items,
                arguments,
                text=text,
                probe=probe,
                declared=declared,
                max_string=max_string,
                function=function,
                types=types,
                kernel=kernel,
                registers=registers,
            )

        number = self.number_of(request)
        if not request.items and not any(self._keys_of(number)):
            # The usual plan if there are thousands of functions.
            return ProbePlan((), (), HEADER_SIZE, kernel=kernel)
        outputs: list[Output] = []
        value = self._values[number]
        if value is not None:
            outputs.append(_integer(request, value, planned([value], request.text).outputs[0]))
        for part in self._keys_of(number):
            plain = [item for item in part.items if not is_stack(item)]
            if plain:
                made = planned(plain, part.text).outputs
                for item, output in zip(plain, made, strict=False):
                    if isinstance(output.column, ArrayColumn) and (
                        output.column.raw or not isinstance(output.length, Number)
                    ):
                        reason = f"{item.text} holds several values: name a member or element"
                        raise LanguageError(part.text, item.expression.start, reason)
                outputs += made
        predicates = [item for item in request.items if item.is_predicate]
        checks = planned(predicates, request.text).predicates if predicates else ()
        returns = [item for item in request.items if is_return(item)]
        planned(returns, request.text)  # raises an error if the probe has no return
        return ProbePlan(checks, tuple(outputs), HEADER_SIZE, returns=bool(returns), kernel=kernel)

    def action(self, plan: ProbePlan, probe: str, request: ProbeText) -> AggregateAction:
        """Return the action of a variant with this plan."""
        number = self.number_of(request)
        outputs = list(plan.outputs)
        value = outputs.pop(0) if self._values[number] is not None else None
        layouts: list[KeyLayout] = []
        expressions: list[tuple[Output, ...]] = []
        for part in self._keys_of(number):
            count = sum(not is_stack(item) for item in part.items)
            mine, outputs = tuple(outputs[:count]), outputs[count:]
            walked = self._walks is not None and self._walks(plan.kernel)
            layouts.append(lay_out(part.items, mine, walked=walked))
            expressions.append(mine)
        if self._role(number) is Role.END and not self._has_keys(number):
            layouts[1] = GROUP_KEY if self.aggregation.keys else layouts[1]
        signed = value is not None and value.node.type.signed
        row = self._row(ResultColumns(Source(number, probe), layouts[1], signed))
        return AggregateAction(
            self._role(number),
            row,
            value,
            layouts[0],
            expressions[0],
            layouts[1],
            expressions[1],
        )

    def _role(self, number: int) -> Role:
        if self.aggregation.pair is None:
            return Role.HIT
        return Role.END if number else Role.START

    def _has_results(self, number: int) -> bool:
        return self._role(number) is not Role.START

    def _keys_of(self, number: int) -> tuple[Items, Items]:
        # Returns the key of the pair and the key of the result; those that the request lacks are
        # empty.
        pair = self.aggregation.pair or Items()
        if number and self.aggregation.pair_end is not None:
            pair = self.aggregation.pair_end
        return pair, self.aggregation.keys if self._has_keys(number) else Items()

    def _has_keys(self, number: int) -> bool:
        # Whether the key of the result is evaluated at this probe.
        return (self._role(number) is Role.START) == self.aggregation.at_start

    def _row(self, layout: ResultColumns) -> int:
        number = self._rows.setdefault(layout, len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
        return number


def _check_single(items: Sequence[Item], text: str, arguments: Sequence[Argument]) -> None:
    every = next((item for item in items if item.text == ALL_ARGUMENTS), None)
    if every is not None and ALL_ARGUMENTS not in {one.name for one in arguments}:
        names = ", ".join(one.name for one in arguments if not one.hidden)
        reason = f"args is several values: name those that you mean{names and f' ({names})'}"
        raise LanguageError(text, every.expression.start, reason)


def _integer(request: ProbeText, item: Item, output: Output) -> Output:
    if isinstance(output.column, IntColumn | UnavailableColumn):
        return output
    reason = f"{item.text} is not an integer; only integers can be aggregated"
    if is_pattern(request) and isinstance(output.column, FloatColumn | BytesColumn):
        # The pattern matches several probes: hits of this one are counted as unreadable.
        return unavailable_output(item.text, Unavailable(reason))
    raise LanguageError(request.text, item.expression.start, reason)
