"""Plans: the predicates and outputs of a program, and the layout of its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.context_registers import ContextRegisters
from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen, replace
from usdt.engine.compiler.ir import Node, Number, can_fail, why_unreadable
from usdt.engine.compiler.limits import DEFAULT_STRING, MAX_OUTPUTS
from usdt.engine.compiler.outputs import Output, argument_output, output_of, stack_output
from usdt.engine.compiler.record.columns import (
    BufferColumn,
    SocketAddressColumn,
    StackColumn,
    StringColumn,
    StructColumn,
    StructListColumn,
    padded,
)
from usdt.engine.compiler.record.layout import HEADER_SIZE, RecordField, RecordLayout, SpanLayout
from usdt.engine.compiler.scope import Scope
from usdt.engine.language.tree import (
    ALL_ARGUMENTS,
    Name,
    StackKind,
    with_result,
    without_args,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.record.columns import StackCopyColumn
    from usdt.engine.compiler.scope import TypeProvider
    from usdt.engine.language.tree import Item

__all__ = ("ProbePlan", "make_plan", "placed")

_READ = StringColumn | BufferColumn | SocketAddressColumn | StructColumn | StructListColumn


@frozen
class ProbePlan:
    """The predicates and outputs of a hit. Hashable: equal plans share one program.

    Attributes:
        predicates: a hit counts if all are nonzero; those that are always readable come first.
        outputs: the values to record, in the order of their offsets.
        size: bytes of the record.
        bitmap_offset: byte offset of the bitmap of unreadable values in the record, or None.
        returns: whether the hit is a function's return.
        kernel: whether addresses may be in the kernel.
        result: as in :class:`RecordLayout`.
        start: for the end of a span, the plan of its start; see
            :mod:`usdt.engine.compiler.spans`.
        image: for the end of a span, the bytes in its record that are from the start.
        end_probe: for a span, as in :class:`SpanLayout`.
        body: what a program (:mod:`usdt.engine.programs`) does at the hit, instead of a record.
    """

    predicates: tuple[Node, ...]
    outputs: tuple[Output, ...]
    size: int
    bitmap_offset: int | None = None
    returns: bool = False
    kernel: bool = False
    result: int | None = None
    start: ProbePlan | None = None
    image: int = 0
    end_probe: str = ""
    body: Hashable = None

    @property
    def faultable(self) -> bool:
        """True if a value may be unreadable, for example because a page is absent."""
        return any(map(can_fail, self.predicates)) or any(map(_may_fault, self.outputs))

    @property
    def has_python_stack(self) -> bool:
        """Whether its program walks Python frames, for which it needs maps."""
        return any(
            isinstance(output.column, StackColumn) and output.column.kind is StackKind.PYTHON
            for output in self.outputs
        )

    @property
    def always_false(self) -> bool:
        """True if a predicate is always false."""
        return any(isinstance(node, Number) and not node.value for node in self.predicates)

    @property
    def layout(self) -> RecordLayout:
        """The layout of its records."""
        fields = tuple(map(_field, self.outputs))
        if self.start is not None:
            before = tuple(map(_field, self.start.outputs))
            span = SpanLayout(self.end_probe, len(before) - 1)
            return RecordLayout(self.size, self.bitmap_offset, before + fields, span=span)
        return RecordLayout(self.size, self.bitmap_offset, fields, self.returns, self.result)


def _may_fault(output: Output) -> bool:
    reads = isinstance(output.column, _READ)
    return output.may_fault or (reads and output.captured is None)


def _field(output: Output) -> RecordField:
    reason = why_unreadable(output.node) if output.may_fault else ""
    return RecordField(output.key, output.column, output.offset, output.may_fault, reason)


def make_plan(
    items: Sequence[Item],
    arguments: Sequence[Argument],
    *,
    text: str,
    probe: str,
    declared: int,
    max_string: int = DEFAULT_STRING,
    max_struct: int = 0,
    function: str = "",
    types: TypeProvider | None = None,
    stacks: Sequence[StackKind] = (),
    stack_copy: Callable[[], StackCopyColumn | None] | None = None,
    kernel: bool = False,
    whole_call: bool = False,
    duration: Node | None = None,
    registers: ContextRegisters | None = None,
    in_short: bool = False,
) -> ProbePlan:
    """Return the plan for the items of a probe and the arguments of one site.

    Args:
        items: columns and predicates; without a column, or by the item ``args``, every argument
            that is not hidden is shown.
        arguments: the arguments of this site.
        text: the probe as written, for errors.
        probe: its name, for errors.
        declared: the largest number of arguments at any site of the probe.
        max_string: bytes that str() keeps, without the NUL.
        max_struct: bytes that are kept of a structure; 0: a pointer to one is shown as an address.
        function: the value of ``func``; by default the probe's name.
        types: resolves members and named types; None if no type information is available.
        stacks: stacks to record in addition to the items.
        stack_copy: as in :class:`Scope`.
        kernel: whether addresses may be in the kernel.
        whole_call: whether the hit is the return of a system call, whose arguments are shown
            beside ``return`` if no other value is asked for.
        duration: what ``duration`` is, at the end of a pair; None: known at a function's return.
        registers: the registers of the context; None if it has none.
        in_short: whether arguments that lead to structures are shown with them, in short.

    Raises:
        LanguageError: a name or type in an item is unknown, operands do not fit, or there are more
            than 64 values.
    """
    named = {item.name: item for item in arguments}
    scope = Scope(
        text,
        probe,
        named,
        declared,
        function or probe,
        max_string,
        max_struct,
        types,
        duration,
        registers or ContextRegisters(),
        stack_copy,
        in_short,
    )
    if "return" in named:
        items = [replace(item, expression=with_result(item.expression)) for item in items]
    if ALL_ARGUMENTS not in named:
        items = [replace(item, expression=without_args(item.expression)) for item in items]
    values = [item for item in items if not item.is_predicate]
    every = [item for item in arguments if not item.hidden]
    if not values or (whole_call and all(map(_is_result, values))):
        outputs = _argument_outputs(every, scope)
    else:
        outputs = _value_outputs(values, every, scope)
    predicates = _predicates(items, scope) if any(item.is_predicate for item in items) else []
    shown = list(outputs.values())
    shown += [stack_output(kind, scope) for kind in stacks if kind.value not in outputs]
    if len(shown) > MAX_OUTPUTS:
        raise LanguageError(text, 0, f"{len(shown)} values; at most {MAX_OUTPUTS} can be shown")
    whole = whole_call and list(outputs)[: len(every)] == [item.name for item in every]
    return _lay_out(predicates, shown, kernel=kernel, result=len(every) - 1 if whole else None)


def _is_result(item: Item) -> bool:
    return isinstance(item.expression, Name) and item.expression.name == "return"


def _predicates(items: Sequence[Item], scope: Scope) -> list[Node]:
    from usdt.engine.compiler.resolve.expressions import resolve  # noqa: PLC0415 - few runs have one

    nodes = [resolve(item.expression, scope) for item in items if item.is_predicate]
    found = [node for node in nodes if not (isinstance(node, Number) and node.value)]
    found.sort(key=can_fail)  # cheap predicates first: those that cannot fail read no memory
    return found


def _argument_outputs(arguments: Sequence[Argument], scope: Scope) -> dict[str, Output]:
    return {
        item.name: argument_output(item, item.name, scope, expand_pointers=scope.in_short)
        for item in arguments
    }


def _value_outputs(
    values: Sequence[Item], arguments: Sequence[Argument], scope: Scope
) -> dict[str, Output]:
    # The item ``args`` stands for every argument, without the result.
    outputs: dict[str, Output] = {}
    for item in values:
        if item.text == ALL_ARGUMENTS and item.text not in scope.arguments:
            passed = [one for one in arguments if one.name != "return"]
            for key, made in _argument_outputs(passed, scope).items():
                outputs.setdefault(key, made)
        elif item.text not in outputs:
            outputs[item.text] = output_of(item, scope)
    return outputs


def _lay_out(
    predicates: list[Node], shown: list[Output], *, kernel: bool, result: int | None
) -> ProbePlan:
    has_bitmap = any(output.may_fault for output in shown)
    outputs, end = placed(shown, HEADER_SIZE + (8 if has_bitmap else 0))
    bitmap = HEADER_SIZE if has_bitmap else None
    return ProbePlan(tuple(predicates), outputs, end, bitmap, kernel=kernel, result=result)


def placed(outputs: Sequence[Output], start: int) -> tuple[tuple[Output, ...], int]:
    """Return outputs with offsets in a record, from ``start`` on, and the offset after them."""
    found = []
    for output in outputs:
        column = output.column
        found.append(replace(output, offset=start) if column.stored else output)
        start += column.prefix_size + padded(column.size)
    return tuple(found), start
