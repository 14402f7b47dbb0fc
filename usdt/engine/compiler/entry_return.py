"""Functions traced from entry to return: splits a plan into an entry plan and a return plan.

An item without ``return`` is evaluated at entry, and the memory it reads is copied then, because
it may be freed before the return. An item with ``return`` is evaluated at return, but its
operands without ``return`` at entry. So ``buf(arg1, return)`` reads memory at return, from the
address that was passed. An operand in ``out()`` counts as one with ``return``; its arguments are
those of the entry. Built-ins and stacks are those of the return, which is the hit that is
shown.

*Entry state* keeps the captured values in a hash map of the kernel:

    key     u32 thread ID or 0, u32 pair (of a probe and a plan), u64 stack pointer
    value   the key again; u64 at 16: bit n = capture n could not be read; from 24 the captures

An array, the *places*, holds most of them instead, as finding one there needs no hash and no lock:

    index   from the key, see :func:`usdt.engine.compiler.codegen.entry_state.emit_entry`
    value   as in the hash map; bit 31 of the pair is set; a free place has the stack pointer 0

If the place of a call is taken by another call, its state is in the hash map.

If a plan uses ``duration``, the first capture is the time of the entry, which the entry program
stores last. The return program replaces it by the duration before it evaluates anything.

The stack pointer tells the calls of a recursion apart. A counter of open calls would be wrong
after an exception or longjmp(). Entry state that such an exit leaves behind is overwritten or
removed by the next call at the same stack address, so no return takes it for its own. The entry
program creates entry state if the predicates hold. The return program does nothing without it,
and removes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.arch.locations import AtFunctionReturn, Captured, Constant, ForReturn, PerCpuAddress
from usdt.base.errors import NotSupported, TracingError
from usdt.base.frozen import fields_of, frozen, replace
from usdt.engine.compiler.ir import (
    DURATION,
    U32,
    U64,
    ArgumentValue,
    Builtin,
    Convert,
    Deref,
    Node,
    PointerExpr,
    RegisterAggregate,
    StringEquals,
    StringEqualsConst,
    StringMatches,
    can_fail,
    children,
    of_kernel,
    why_unreadable,
)
from usdt.engine.compiler.outputs import Output
from usdt.engine.compiler.plan import ProbePlan
from usdt.engine.compiler.record.columns import (
    ArrayColumn,
    BufferColumn,
    BytesColumn,
    CgroupColumn,
    CommColumn,
    ConstColumn,
    FloatColumn,
    IntColumn,
    SocketAddressColumn,
    StackColumn,
    StackCopyColumn,
    StringColumn,
    StructColumn,
    StructListColumn,
    SymbolColumn,
    UnavailableColumn,
    padded,
)
from usdt.engine.compiler.record.layout import DURATION_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.locations import Register

__all__ = (
    "BITMAP_OFFSET",
    "TIME_OFFSET",
    "CaptureRewriter",
    "EntryReturnMatch",
    "EntryReturnPlans",
    "EntryReturnRole",
    "blank_map",
    "for_32bit_process",
    "frame_map",
    "needs_entry",
    "needs_return",
    "place_map",
    "places_of",
    "split_entry_return",
)

BITMAP_OFFSET = 16  # in entry state: the u64 bitmap of unreadable captures
TIME_OFFSET = BITMAP_OFFSET + 8  # in entry state: the time of the entry, then the duration
_CAPTURES = BITMAP_OFFSET + 8  # in entry state: offset of the captures
_MEASURED = ArgumentValue(Captured(TIME_OFFSET), U64)  # the duration, at the return
_ROUND = 64  # bytes: sizes of entry state are multiples of it, so that probes share maps
_PLACES, _PLACE_SIZE = 1 << 10, 1 << 12  # their number, and the largest entry state in one
_CAPTURED = 64  # the maximum number of captures: bits of the bitmap


@frozen
class EntryReturnMatch:
    """How a function's return is matched with its entry.

    Attributes:
        pointer: the register that identifies the call, normally the stack pointer; None: the
            address of the context, which is the same at entry and return.
        return_pops: the numbers of bytes by which a return instruction may raise the stack
            pointer, the usual one first.
        same_thread: whether entry and return have the same thread ID.
        mark_returns: whether the record layout says that a record is of a return.
        kernel_keeps_sp: whether the kernel keeps the stack pointer of the entry for the return.
            The return program then finds it in ``ENTRY_POINTER_SLOT``
            (:mod:`usdt.engine.compiler.codegen.stack_slots`) and does not use its registers.
        arguments_stay: whether the arguments are still known at the return. Items are then
            evaluated there, and entry state has no captures.
        unmatched: why returns cannot be matched with entries; "" if they can.
    """

    pointer: Register | None
    return_pops: tuple[int, ...] = (0,)
    same_thread: bool = True
    mark_returns: bool = True
    kernel_keeps_sp: bool = False
    arguments_stay: bool = False
    unmatched: str = ""

    def required(self) -> EntryReturnMatch:
        """Return this match.

        Raises:
            NotSupported: returns cannot be matched with entries.
        """
        if self.unmatched:
            raise NotSupported(self.unmatched)
        return self


@frozen
class EntryReturnRole:
    """The role of a variant that is the entry or the return of a traced function.

    Attributes:
        entry: True for the entry, which creates the entry state; False for the return.
        pair: tells entry states of the same stack pointer apart.
        size: bytes of the entry state.
        stack: how the return is matched with the entry.
        timed: whether the entry state has the time of the entry.
        start: for a span, the plan of its start; see :mod:`usdt.engine.compiler.spans`.
        places: the number of places, a power of two; 0: there are none.
    """

    entry: bool
    pair: int
    size: int
    stack: EntryReturnMatch
    timed: bool = False
    start: ProbePlan | None = None
    places: int = 0

    @property
    def duration_offset(self) -> int:
        """The offset of the duration in the entry state, once the return has been reached."""
        return TIME_OFFSET if self.start is None else TIME_OFFSET + DURATION_OFFSET


@frozen
class EntryReturnPlans:
    """The plans of a function's entry and return; ``entry`` is None if nothing must be kept."""

    entry: ProbePlan | None
    returned: ProbePlan
    timed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the entry state; 0 if there is none."""
        return 0 if self.entry is None else -(-self.entry.size // _ROUND) * _ROUND


def frame_map(size: int) -> str:
    """Return the name of the map of entry states of ``size`` bytes."""
    return f"calls.{size}"


def place_map(size: int) -> str:
    """Return the name of the array of places for entry states of ``size`` bytes."""
    return f"places.{size}"


def places_of(size: int) -> int:
    """Return the number of places for entry states of ``size`` bytes."""
    return _PLACES if size <= _PLACE_SIZE else 0


def blank_map(size: int) -> str:
    """Return the name of the map with one blank entry state of ``size`` bytes."""
    return f"blank.{size}"


def split_entry_return(
    plan: ProbePlan, *, mark_returns: bool = True, arguments_stay: bool = False
) -> EntryReturnPlans | None:
    """Split a plan into an entry plan and a return plan.

    The options are those of :class:`EntryReturnMatch`.

    Returns:
        The plans, or None if nothing in ``plan`` needs the return.

    Raises:
        TracingError: more than 64 values must be captured at entry.
    """
    nodes = [*plan.predicates]
    for output in plan.outputs:
        nodes += [output.node] if output.length is None else [output.node, output.length]
    if not plan.returns and not any(map(needs_return, nodes)):
        return None
    timed = any(map(_uses_duration, nodes))
    if arguments_stay:
        return _split_times(plan, mark_returns=mark_returns) if timed else None
    keeper = CaptureRewriter(_CAPTURES + (8 if timed else 0), _MEASURED)
    outputs = tuple(map(keeper.output, plan.outputs))
    later = tuple(keeper.node(node) for node in plan.predicates if needs_return(node))
    sooner = tuple(node for node in plan.predicates if not needs_return(node))
    pair = timed or keeper.captures or any(map(needs_entry, sooner))
    if not pair:
        both = sooner + later
        return EntryReturnPlans(
            None, replace(plan, predicates=both, outputs=outputs, returns=mark_returns)
        )
    captures = tuple(keeper.captures.values())
    return EntryReturnPlans(
        ProbePlan(sooner, captures, keeper.size, BITMAP_OFFSET, kernel=plan.kernel),
        replace(plan, predicates=later, outputs=outputs, returns=mark_returns),
        timed,
    )


def _split_times(plan: ProbePlan, *, mark_returns: bool) -> EntryReturnPlans:
    # Only the time of the entry is kept.
    predicates = tuple(map(_with_duration, plan.predicates))
    outputs = tuple(
        replace(
            output,
            node=_with_duration(output.node),
            length=None if output.length is None else _with_duration(output.length),
        )
        for output in plan.outputs
    )
    entry = ProbePlan((), (), _CAPTURES + 8, BITMAP_OFFSET, kernel=plan.kernel)
    returned = replace(plan, predicates=predicates, outputs=outputs, returns=mark_returns)
    return EntryReturnPlans(entry, returned, timed=True)


def _with_duration(node: Node) -> Node:
    return _MEASURED if _is_duration(node) else rebuilt(node, _with_duration)


def _is_duration(node: Node) -> bool:
    return isinstance(node, Builtin) and node.name == DURATION


def _uses_duration(node: Node) -> bool:
    return _is_duration(node) or any(map(_uses_duration, children(node)))


def rebuilt(node: Node, inner: Callable[[Node], Node]) -> Node:
    """Return a copy of a node whose operands are replaced by what ``inner`` makes of them."""
    fields = fields_of(node).items()
    operands = {name: inner(value) for name, value in fields if isinstance(value, Node)}
    return replace(node, **operands) if operands else node


def for_32bit_process(plan: ProbePlan) -> ProbePlan:
    """Return the plan for a 32-bit process, whose addresses are zero-extended."""
    predicates = tuple(map(_narrowed, plan.predicates))
    outputs = tuple(
        replace(
            output,
            node=_narrowed_output(output),
            length=None if output.length is None else _narrowed(output.length),
        )
        for output in plan.outputs
    )
    return replace(plan, predicates=predicates, outputs=outputs)


def _narrowed_output(output: Output) -> Node:
    if isinstance(
        output.column,
        StringColumn | BufferColumn | SocketAddressColumn | StructColumn | StructListColumn,
    ):  # the node is an address
        return _unsigned(output.node)
    return _narrowed(output.node)


def _narrowed(node: Node) -> Node:
    match node:
        case Deref(kernel=True):
            return node
        case Deref(address=address):
            return replace(node, address=_unsigned(address))
        case StringEqualsConst(address=address) if address is not None:
            return replace(node, address=_unsigned(address))
        case StringMatches(address=address, length=length) if address is not None:
            length = None if length is None else _narrowed(length)
            return replace(node, address=_unsigned(address), length=length)
        case StringEquals(left=left, right=right):
            return replace(node, left=_unsigned(left), right=_unsigned(right))
    return rebuilt(node, _narrowed)


def _unsigned(address: Node) -> Node:
    if isinstance(address, RegisterAggregate) or of_kernel(address):
        return address
    return Convert(_narrowed(address), U32)


def needs_return(node: Node) -> bool:
    """Return True if a value is only known when the function returns."""
    if _is_duration(node):
        return True
    if isinstance(node, ArgumentValue) and isinstance(node.fetch, (AtFunctionReturn, ForReturn)):
        return True
    return any(map(needs_return, children(node)))


def needs_entry(node: Node) -> bool:
    """Return True if a value must be taken at entry: it uses an argument, or reads memory."""
    match node:
        case ArgumentValue(fetch=fetch):
            return not isinstance(fetch, (AtFunctionReturn, Constant, PerCpuAddress))
        case Deref() | StringEquals():
            return True
        case StringEqualsConst(address=address) | StringMatches(address=address):
            return address is not None
    return any(map(needs_entry, children(node)))


class CaptureRewriter:
    """Replaces values of the entry by reads of entry state, and collects them as captures.

    Args:
        size: the offset of the first capture in the entry state.
        measured: replaces ``duration``.

    Attributes:
        captures: the captures, in the order of their offsets.
        size: the offset after the last capture.
    """

    def __init__(self, size: int, measured: Node) -> None:
        self.captures: dict[tuple[type, Node, Node | None, int], Output] = {}
        self.size = size
        self._measured = measured

    def output(self, output: Output) -> Output:
        """Return the output at the return instead of ``output``."""
        match output.column:
            case CommColumn() | ConstColumn() | UnavailableColumn():
                return output
            case StackColumn() | StackCopyColumn():
                return output
            case IntColumn() | SymbolColumn() | CgroupColumn() | FloatColumn():
                return self._computed(output)
            case (
                StringColumn()
                | BufferColumn()
                | SocketAddressColumn()
                | BytesColumn()
                | ArrayColumn()
                | StructColumn()
                | StructListColumn()
            ):
                return self._bytes(output)
            case _:
                assert_never(output.column)

    def _computed(self, output: Output) -> Output:
        length = None if output.length is None else self.node(output.length)
        return replace(output, node=self.node(output.node), length=length)

    def _bytes(self, output: Output) -> Output:
        parts = [output.node] if output.length is None else [output.node, output.length]
        if any(map(needs_return, parts)):
            return self._computed(output)
        return replace(output, node=self._text(output)) if any(map(needs_entry, parts)) else output

    def node(self, node: Node) -> Node:
        """Return the expression that is evaluated at return instead of ``node``."""
        if not needs_return(node):
            return self._passed(node)
        if _is_duration(node):
            return self._measured
        match node:
            case ArgumentValue(fetch=ForReturn(entry=entry)):
                return self._passed(replace(node, fetch=entry))
            case RegisterAggregate(parts=parts):
                return replace(node, parts=tuple((start, self.node(one)) for start, one in parts))
        return rebuilt(node, self.node)

    def _passed(self, node: Node) -> Node:
        return self._number(node) if needs_entry(node) else node

    def _number(self, node: Node) -> Node:
        if isinstance(node, PointerExpr):  # expressions around it need its target type
            return replace(node, address=self.node(node.address))
        fallible = can_fail(node)
        made = self._keep(Output("", IntColumn(U64), node, may_fault=fallible))
        reason = why_unreadable(node) if fallible else ""
        bit = self._bit(made) if fallible else None
        return ArgumentValue(Captured(made.offset or 0, 0, bit, reason), node.type)

    def _text(self, output: Output) -> Node:
        made = self._keep(output)
        fallible = isinstance(output.column, BytesColumn)  # others have an errno as length prefix
        reason = why_unreadable(output.node) if fallible else ""
        fetch = Captured(
            made.offset or 0, output.size, self._bit(made) if fallible else None, reason
        )
        return ArgumentValue(fetch, output.node.type if fallible else U64)

    def _bit(self, made: Output) -> int:
        return next(n for n, known in enumerate(self.captures.values()) if known is made)

    def _keep(self, output: Output) -> Output:
        key = type(output.column), output.node, output.length, output.size
        if key not in self.captures:
            if len(self.captures) == _CAPTURED:
                raise TracingError(
                    f"at most {_CAPTURED} values of a function's entry can be kept for its return; "
                    "ask for fewer"
                )
            self.captures[key] = replace(output, key="", offset=self.size)
            self.size += output.column.prefix_size + padded(output.size)
        return self.captures[key]
