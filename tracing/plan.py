"""From a probe's items to what its program must do: predicates, values to show, the record.

A record, as the program writes it into the ring buffer and :mod:`tracing.decode` reads it:

    0    u64   time, CLOCK_MONOTONIC nanoseconds
    8    u32   thread ID
    12   u32   process ID
    16   u32   CPU
    20   u32   case: which probe, which plan
    24   char  comm[16]
    40   u64   only if some value may be unreadable: bit n = output n was not
    …          outputs, each padded to eight bytes

A string, buffer or stack is preceded by an s64: the bytes that count, or a negative errno.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpf.errors import LanguageError
from bpf.frozen import frozen
from tracing.fold import fold
from tracing.ir import (
    U32,
    U64,
    Arithmetic,
    Convert,
    Fetched,
    Node,
    Number,
    Opaque,
    Place,
    Pointer,
    can_fail,
)
from tracing.language.tree import Call, Name
from tracing.resolve import (
    DEFAULT_STRING,
    MAX_READ,
    Scope,
    address_of,
    given_limit,
    resolve,
    scalar,
)
from tracing.stacks import MAX_FRAMES
from tracing.values import Kept, Kind, RecordBytes, Register, Unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracing.language.tree import Item
    from tracing.names import Names
    from tracing.resolve import Types
    from tracing.values import Argument, ValueType

__all__ = ("HEADER_SIZE", "LED", "MAX_OUTPUTS", "MAX_READ", "Output", "Plan", "make_plan")

HEADER_SIZE = 40
MAX_OUTPUTS = 64  # bits of the word that marks unreadable values
LED = (
    "string",
    "buffer",
    "array",
    "ustack",
    "kstack",
)  # forms that a length or a negative errno precedes
_ROOMLESS = ("comm", "func", "opaque")  # forms that take no room in a record


@frozen
class Output:
    """One value to show.

    Attributes:
        key: the item as written, without spaces.
        form: integer, hex, usym and ksym (an address to be shown as a symbol), float, bytes,
            string, buffer, array, ustack, kstack, comm, func, or opaque.
        node: the value; for string and buffer the address.
        offset: where it is in the record; -1 for comm, func and opaque, which take no room.
        size: bytes of room for it, less the leading length of a string, buffer or stack.
        length: of a buffer, how many bytes to read; its own expression.
        fallible: whether its bit in the word of unreadable values can be set.
        text: of func, what is shown at every hit; of an array, its elements in the words of
            :mod:`struct`.
        names: of an integer's values, if they have some.
    """

    key: str
    form: str
    node: Node
    offset: int = -1
    size: int = 0
    length: Node | None = None
    fallible: bool = False
    text: str = ""
    names: Names | None = None

    @property
    def reach(self) -> int:
        """Bytes that are read of a string: no more than an event's record has of it."""
        fetch = self.node.fetch if isinstance(self.node, Fetched) else None
        if isinstance(fetch, RecordBytes) and fetch.location == "here":
            return min(self.size, fetch.size)
        return self.size

    @property
    def whole(self) -> Kept | None:
        """Where a string, buffer or aggregate stands that was taken at a function's entry."""
        fetch = self.node.fetch if isinstance(self.node, Fetched) else None
        return fetch if isinstance(fetch, Kept) and fetch.size else None


@frozen
class Plan:
    """Everything a program does at a hit. Hashable: equal plans share one program.

    Attributes:
        predicates: all must be true (not 0); those that cannot be unreadable come first.
        outputs: what is recorded, in the order written.
        size: bytes of the record.
        marks: offset of the word of unreadable values, or -1.
        returns: whether the hit is a function's return.
        kernel: whether addresses may be the kernel's.
    """

    predicates: tuple[Node, ...]
    outputs: tuple[Output, ...]
    size: int
    marks: int
    returns: bool = False
    kernel: bool = False

    @property
    def faultable(self) -> bool:
        """Whether a page fault may keep something from being read."""
        return any(map(can_fail, self.predicates)) or any(
            output.fallible or (output.form in ("string", "buffer") and output.whole is None)
            for output in self.outputs
        )

    @property
    def never(self) -> bool:
        """Whether some predicate is always false."""
        return any(isinstance(node, Number) and not node.value for node in self.predicates)


def make_plan(
    items: Sequence[Item],
    arguments: Sequence[Argument],
    *,
    text: str,
    probe: str,
    declared: int,
    max_string: int = DEFAULT_STRING,
    function: str = "",
    types: Types | None = None,
    stacks: Sequence[str] = (),
    kernel: bool = False,
) -> Plan:
    """Plan the items of one probe for one set of arguments.

    Args:
        items: none or only predicates means: show every argument.
        arguments: how this call site passes each.
        text: the probe as written, for messages.
        probe: its name, for messages.
        declared: the largest number of arguments at any site of the probe.
        max_string: bytes that str() keeps, without the NUL.
        function: what ``func`` is; by default the probe's name.
        types: what knows members and named types, if anything does.
        stacks: ``ustack``, ``kstack``: to be recorded whatever the items are.
        kernel: whether addresses may be the kernel's.

    Raises:
        LanguageError: an item cannot be understood here.
    """
    named = {item.name: item for item in arguments}
    scope = Scope(text, probe, named, declared, function or probe, max_string, types)
    predicates: list[Node] = []
    outputs: dict[str, Output] = {}
    for item in items:
        if item.is_predicate:
            node = resolve(item.expression, scope)
            if not (isinstance(node, Number) and node.value):
                predicates.append(node)
        elif item.text not in outputs:
            outputs[item.text] = _output(item, scope)
    predicates.sort(key=can_fail)  # what reads no memory first: often it decides alone
    shown = list(outputs.values()) or [
        _argument(item, item.name, scope) for item in arguments if not item.hidden
    ]
    shown += [_stack(kind) for kind in stacks if kind not in outputs]
    if len(shown) > MAX_OUTPUTS:
        raise LanguageError(text, 0, f"{len(shown)} values; at most {MAX_OUTPUTS} can be shown")
    return _lay_out(predicates, shown, kernel=kernel)


def _lay_out(predicates: list[Node], shown: list[Output], *, kernel: bool) -> Plan:
    marks = HEADER_SIZE if any(output.fallible for output in shown) else -1
    offset = HEADER_SIZE + (8 if marks >= 0 else 0)
    placed = []
    for output in shown:
        if output.form in _ROOMLESS:
            placed.append(output)
            continue
        placed.append(_at(output, offset))
        lead = 8 if output.form in LED else 0
        offset += lead + -(-output.size // 8) * 8
    return Plan(tuple(predicates), tuple(placed), offset, marks, kernel=kernel)


def _at(output: Output, offset: int) -> Output:
    return Output(
        output.key,
        output.form,
        output.node,
        offset,
        output.size,
        output.length,
        output.fallible,
        output.text,
        output.names,
    )


def _output(item: Item, scope: Scope) -> Output:
    tree = item.expression
    key = item.text
    if isinstance(tree, Call):
        return _call(tree, key, scope)
    if isinstance(tree, Name):
        if tree.name in scope.arguments:
            return _argument(scope.arguments[tree.name], key, scope)
        if tree.name == "comm":
            return Output(key, "comm", Number(0, U64))
        if tree.name == "func":
            return Output(key, "func", Number(0, U64), text=scope.function)
        if tree.name in ("ustack", "kstack"):
            return _stack(tree.name, key)
    return _typed(key, resolve(tree, scope), scope)


def _stack(kind: str, key: str = "") -> Output:
    return Output(key or kind, kind, Number(0, U64), size=8 * MAX_FRAMES)


def _argument(argument: Argument, key: str, scope: Scope) -> Output:
    if isinstance(argument.fetch, Unreadable):
        return Output(key, "opaque", Opaque(argument.fetch.reason, argument.type))
    node = Fetched(argument.fetch, argument.type)
    if argument.form == "string":
        # What has a length of its own shows whole: there is room for a byte that it never has.
        room = argument.type.size + 1 if argument.type.size and node.type.kind is Kind.STRING else 0
        return _read(key, "string", node, min(room or MAX_READ, scope.max_string + 1), None)
    if argument.element is not None and isinstance(argument.fetch, RecordBytes):
        return _array(key, node, argument.fetch, argument.element, scope)
    if scope.types is not None and argument.handle is not None:
        return _typed(key, scope.types.argument(argument, node), scope)
    return _plain(key, node, argument.form or "integer", argument.names)


def _array(key: str, node: Node, fetch: RecordBytes, element: ValueType, scope: Scope) -> Output:
    # Numbers in the record; where their length is, it counts.
    code = "_bh_i___q"[element.size]
    text = code if element.signed else code.upper()
    if fetch.location == "here":
        number = min(fetch.size, MAX_READ)
        return Output(key, "array", node, size=number, length=Number(number, U64), text=text)
    word = Fetched(Register(fetch.offset, 4), U32)
    length = Arithmetic(">>", word, Number(16, U32), U32)
    room = max(scope.max_string // element.size, 1) * element.size
    return Output(key, "array", node, size=room, length=length, text=text)


def _typed(key: str, node: Node, scope: Scope) -> Output:
    # What types from elsewhere make of an expression: text and arrays have their own forms.
    if isinstance(node, Place):
        if node.type.kind is Kind.STRING:
            room = min(node.type.size + 1, scope.max_string + 1)
            return _read(key, "string", node.address, room, None)
        size = min(node.type.size, MAX_READ)
        text = "B"
        if node.element is not None:
            text = "_bh_i___q"[node.element.size]
            text = text if node.element.signed else text.upper()
        return Output(key, "array", node, size=size, length=Number(size, U64), text=text)
    names = scope.types.names(node) if scope.types is not None else None
    form = "hex" if isinstance(node, Pointer) and node.handle is not None else "integer"
    return _plain(key, node, form, names)


def _plain(key: str, node: Node, form: str = "integer", names: Names | None = None) -> Output:
    if isinstance(node, Pointer) and isinstance(node.address, Opaque):
        node = node.address
    if isinstance(node, Opaque):
        return Output(key, "opaque", node)
    if node.type.kind is Kind.FLOAT:
        form = "float"
    if node.type.kind is Kind.BYTES:
        form = "bytes"
    size = max(8, node.type.size)
    return Output(key, form, node, size=size, fallible=can_fail(node), names=names)


def _call(tree: Call, key: str, scope: Scope) -> Output:
    first = tree.arguments[0]
    if tree.function == "hex":
        node = resolve(first, scope)
        if node.type.kind is Kind.FLOAT:
            raise scope.error(first, "hex() shows integers, not floating-point values")
        return _plain(key, node, "hex")
    if tree.function in ("usym", "ksym"):
        return _plain(key, fold(Convert(scalar(first, scope), U64)), tree.function)
    if tree.function == "str":
        limit = given_limit(tree, scope) or scope.max_string
        return _read(key, "string", address_of(first, scope), limit + 1, None)
    length = scalar(tree.arguments[1], scope)
    limit = length.value if isinstance(length, Number) else scope.max_string
    if not 0 <= limit <= MAX_READ:
        raise scope.error(tree, f"buf() reads 0 to {MAX_READ} bytes, not {limit}")
    return _read(key, "buffer", address_of(first, scope), limit, length)


def _read(key: str, form: str, address: Node, size: int, length: Node | None) -> Output:
    if isinstance(address, Opaque):
        return Output(key, "opaque", address)
    if isinstance(length, Opaque):
        return Output(key, "opaque", length)
    return Output(key, form, address, size=size, length=length)
