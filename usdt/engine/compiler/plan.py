"""From a probe's items to what its program must do: predicates, values to show, the record.

A record, as the program writes it into the ring buffer and :mod:`usdt.engine.output.decode` reads
it:

    0    u64   time, CLOCK_MONOTONIC nanoseconds
    8    u32   thread ID
    12   u32   process ID
    16   u32   CPU
    20   u32   case: which probe, which plan
    24   char  comm[16]
    40   u64   only if some value may be unreadable: bit n = output n was not
    …          outputs, each padded to eight bytes

A string, buffer or stack is preceded by an s64: the bytes that count, or a negative errno. So is a
structure, and by its address behind that (:mod:`usdt.engine.compiler.record.length_prefix`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    AtFunctionReturn,
    Captured,
    ContextArea,
    Register,
    Unreadable,
    ValueClass,
)
from usdt.base.errors import LanguageError
from usdt.base.frozen import frozen
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    U32,
    U64,
    ArgumentValue,
    Arithmetic,
    Convert,
    LValue,
    Node,
    Number,
    PointerExpr,
    RegisterAggregate,
    Unavailable,
    can_fail,
    of_kernel,
)
from usdt.engine.compiler.limits import DEFAULT_STRING, MAX_FRAMES, MAX_OUTPUTS, MAX_READ
from usdt.engine.compiler.resolve import Resolver, Scope, address_of_lvalue, resolve
from usdt.engine.compiler.value_names import ValueNames
from usdt.engine.language.tree import Call, Name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.arch.locations import ValueType
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.resolve import TypeProvider
    from usdt.engine.compiler.scope import DefaultFormat
    from usdt.engine.language.tree import Item

__all__ = ("HEADER_SIZE", "LED", "Output", "ProbePlan", "make_plan")

HEADER_SIZE = 40
LED = (
    "string",
    "buffer",
    "array",
    "typed",
    "ustack",
    "kstack",
)  # forms that a length or a negative errno precedes
_TRUTH = ValueNames("symbols", ((0, "false"), (1, "true")))
_ROOMLESS = ("comm", "func", "opaque")  # forms that take no room in a record


@frozen
class Output:
    """One value to show.

    Attributes:
        key: the item as written, without spaces.
        form: integer, bool, hex, usym and ksym (an address to be shown as a symbol), float, bytes,
            string, buffer, array, typed, ustack, kstack, comm, func, or opaque.
        node: the value; for string, buffer and typed the address.
        offset: where it is in the record; -1 for comm, func and opaque, which take no room.
        size: bytes of room for it, less the leading length of a string, buffer or stack.
        length: of a buffer, how many bytes to read; its own expression.
        fallible: whether its bit in the word of unreadable values can be set.
        text: of func, what is shown at every hit; of an array, its elements in the words of
            :mod:`struct`; of typed, ``*`` where a pointer is shown with it, ``k`` where types of
            the kernel led there, and ``v`` of a list, whose length says how many elements count.
        names: of an integer's values, if they have some.
        shape: of typed, what lies at the address.
        cast: the type in C, where one is known.
    """

    key: str
    form: str
    node: Node
    offset: int = -1
    size: int = 0
    length: Node | None = None
    fallible: bool = False
    text: str = ""
    names: ValueNames | None = None
    shape: TypeSnapshot | None = None
    cast: str = ""

    @property
    def reach(self) -> int:
        """Bytes that are read of a string: no more than an event's record has of it."""
        fetch = self.node.fetch if isinstance(self.node, ArgumentValue) else None
        if isinstance(fetch, ContextArea) and fetch.location == "here":
            return min(self.size, fetch.size)
        return self.size

    @property
    def whole(self) -> Captured | None:
        """Where a string, buffer or aggregate stands that was taken at a function's entry."""
        fetch = self.node.fetch if isinstance(self.node, ArgumentValue) else None
        return fetch if isinstance(fetch, Captured) and fetch.size else None


@frozen
class ProbePlan:
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
            output.fallible
            or (output.form in ("string", "buffer", "typed") and output.whole is None)
            for output in self.outputs
        )

    @property
    def always_false(self) -> bool:
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
    max_struct: int = 0,
    function: str = "",
    types: TypeProvider | None = None,
    stacks: Sequence[str] = (),
    kernel: bool = False,
) -> ProbePlan:
    """Plan the items of one probe for one set of arguments.

    Args:
        items: none or only predicates means: show every argument.
        arguments: how this call site passes each.
        text: the probe as written, for messages.
        probe: its name, for messages.
        declared: the largest number of arguments at any site of the probe.
        max_string: bytes that str() keeps, without the NUL.
        max_struct: bytes that are kept of a structure; 0: of a pointer to one its address is shown.
        function: what ``func`` is; by default the probe's name.
        types: what knows members and named types, if anything does.
        stacks: ``ustack``, ``kstack``: to be recorded whatever the items are.
        kernel: whether addresses may be the kernel's.

    Raises:
        LanguageError: an item cannot be understood here.
    """
    named = {item.name: item for item in arguments}
    whole = function or probe
    scope = Scope(text, probe, named, declared, whole, max_string, max_struct, types)
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
        _argument(item, item.name, scope, wide=False) for item in arguments if not item.hidden
    ]
    shown += [_stack(kind) for kind in stacks if kind not in outputs]
    if len(shown) > MAX_OUTPUTS:
        raise LanguageError(text, 0, f"{len(shown)} values; at most {MAX_OUTPUTS} can be shown")
    return _lay_out(predicates, shown, kernel=kernel)


def _lay_out(predicates: list[Node], shown: list[Output], *, kernel: bool) -> ProbePlan:
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
    return ProbePlan(tuple(predicates), tuple(placed), offset, marks, kernel=kernel)


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
        output.shape,
        output.cast,
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


def _argument(argument: Argument, key: str, scope: Scope, *, wide: bool = True) -> Output:
    if isinstance(argument.fetch, Unreadable):
        return Output(key, "opaque", Unavailable(argument.fetch.reason, argument.type))
    node = ArgumentValue(argument.fetch, argument.type)
    if argument.form == "string":
        # What has a length of its own shows whole: there is room for a byte that it never has.
        room = (
            argument.type.size + 1
            if argument.type.size and node.type.kind is ValueClass.STRING
            else 0
        )
        return _read(key, "string", node, min(room or MAX_READ, scope.max_string + 1), None)
    if argument.element is not None and isinstance(argument.fetch, ContextArea):
        return _array(key, node, argument.fetch, argument.element, scope)
    if scope.types is not None and argument.handle is not None:
        return _typed(key, scope.types.argument(argument, node), scope, wide=wide)
    return _plain(key, node, argument.form or "integer", argument.names)


def _array(key: str, node: Node, fetch: ContextArea, element: ValueType, scope: Scope) -> Output:
    # Numbers in the record; where their length is, it counts.
    code = "_bh_i___q"[element.size]
    text = code if element.signed else code.upper()
    if fetch.location == "here":
        number = min(fetch.size, MAX_READ)
        return Output(key, "array", node, size=number, length=Number(number, U64), text=text)
    word = ArgumentValue(Register(fetch.offset, 4), U32)
    length = Arithmetic(">>", word, Number(16, U32), U32)
    room = max(scope.max_string // element.size, 1) * element.size
    return Output(key, "array", node, size=room, length=length, text=text)


def _typed(key: str, node: Node, scope: Scope, *, wide: bool = True) -> Output:
    # What types from elsewhere make of an expression: text, arrays and structures have their own
    # forms. ``wide``: a pointer is shown with what it points at.
    shown = scope.types.shown(node) if scope.types is not None else None
    if shown is not None and shown.form == "chosen":
        return _chosen(key, node, shown, scope, wide=wide)
    if shown is not None and shown.begin is not None:
        return _contents(key, shown, scope)
    if isinstance(node, LValue):
        return _place(key, node, shown, scope)
    names = scope.types.names(node) if scope.types is not None else None
    if shown is None:
        form = "hex" if isinstance(node, PointerExpr) and node.handle is not None else "integer"
        return _plain(key, node, form, names)
    if shown.form == "string":
        return _read(key, "string", node, scope.max_string + 1, None)
    if shown.form == "typed":
        if wide and scope.max_struct and shown.shape is not None:
            return _structure(key, node, shown.shape, scope, "*")
        return _plain(key, node, "hex", cast=shown.cast)
    names = _TRUTH if shown.form == "bool" else names
    return _plain(key, node, shown.form, names, shown.cast)


def _contents(key: str, shown: DefaultFormat, scope: Scope) -> Output:
    # What a text or a list of C++ or Rust holds, as long as it says that it is.
    begin = shown.begin or Number(0, U64)
    if shown.shape is not None and shown.length is not None:
        return _list(key, begin, shown.shape, shown.length)
    if shown.element is None:
        return _read(key, "buffer", begin, scope.max_string, shown.length)
    code = "_bh_i___q"[shown.element.size]
    room = max(scope.max_string // shown.element.size, 1) * shown.element.size
    text = code if shown.element.signed else code.upper()
    made = _read(key, "array", begin, room, shown.length)
    return made if made.form == "opaque" else _with_text(made, text)


def _chosen(key: str, node: Node, shown: DefaultFormat, scope: Scope, *, wide: bool) -> Output:
    # An enum with data: with them, where there is room and all can be read; else its form's name.
    if shown.shape is not None and wide and scope.max_struct:
        pointer = isinstance(node, PointerExpr)
        made = _structure(key, node, shown.shape, scope, "*") if pointer else None
        if isinstance(node, LValue):
            made = _place(key, node, shown, scope)
        if made is not None and made.form == "typed":
            return made
    begin = shown.begin or Number(0, U64)
    return _plain(key, begin, names=scope.types.names(begin) if scope.types else None)


def _list(key: str, begin: Node, shape: TypeSnapshot, length: Node) -> Output:
    # Structures in a row, as many as the length says; the shape has room for so many.
    for node in (begin, length):
        if isinstance(node, Unavailable):
            return Output(key, "opaque", node)
    return Output(key, "typed", begin, size=8 + shape.size, length=length, text="v", shape=shape)


def _with_text(output: Output, text: str) -> Output:
    return Output(
        output.key, output.form, output.node, size=output.size, length=output.length, text=text
    )


def _place(key: str, node: LValue, shown: DefaultFormat | None, scope: Scope) -> Output:
    if isinstance(node.address, ArgumentValue) and isinstance(node.address.fetch, AtFunctionReturn):
        lost = node.address.fetch.register
        if isinstance(lost, Unreadable):  # as a number it keeps its reason
            return _plain(key, node.address)
    if node.type.kind is ValueClass.STRING:
        room = min(node.type.size + 1, scope.max_string + 1)
        return _read(key, "string", address_of_lvalue(node), room, None)
    if node.element is None and shown is not None and shown.shape is not None and scope.max_struct:
        held = isinstance(node.address, RegisterAggregate)
        start = node.address if held else address_of_lvalue(node)
        return _structure(key, start, shown.shape, scope, "")
    size = min(node.type.size, MAX_READ)
    text = "B"
    if node.element is not None:
        text = "_bh_i___q"[node.element.size]
        text = text if node.element.signed else text.upper()
    if isinstance(node.address, Unavailable):
        return Output(key, "opaque", node.address)
    return Output(
        key, "array", address_of_lvalue(node), size=size, length=Number(size, U64), text=text
    )


def _structure(key: str, address: Node, shape: TypeSnapshot, scope: Scope, text: str) -> Output:
    # Room for the address, and for as much as is kept.
    if isinstance(address, PointerExpr) and isinstance(address.address, Unavailable):
        address = address.address
    if isinstance(address, Unavailable):
        return Output(key, "opaque", address)
    text += "k" if of_kernel(address) else ""
    size = 8 + min(shape.size, scope.max_struct)
    return Output(key, "typed", address, size=size, text=text, shape=shape)


def _plain(
    key: str, node: Node, form: str = "integer", names: ValueNames | None = None, cast: str = ""
) -> Output:
    if isinstance(node, PointerExpr) and isinstance(node.address, Unavailable):
        node = node.address
    if isinstance(node, Unavailable):
        return Output(key, "opaque", node)
    if node.type.kind is ValueClass.FLOAT:
        form = "float"
    if node.type.kind is ValueClass.BYTES:
        form = "bytes"
    size = max(8, node.type.size)
    fallible = form == "bytes" or can_fail(node)  # copying has an errno, wherever from
    return Output(key, form, node, size=size, fallible=fallible, names=names, cast=cast)


def _call(tree: Call, key: str, scope: Scope) -> Output:
    first = tree.arguments[0]
    if tree.function == "hex":
        node = resolve(first, scope)
        if node.type.kind is ValueClass.FLOAT:
            raise scope.error(first, "hex() shows integers, not floating-point values")
        return _plain(key, node, "hex")
    if tree.function in ("usym", "ksym"):
        return _plain(key, fold(Convert(Resolver(scope).scalar(first), U64)), tree.function)
    if tree.function == "str":
        limit = Resolver(scope).given_limit(tree) or scope.max_string
        return _read(key, "string", Resolver(scope).address_of(first), limit + 1, None)
    length = Resolver(scope).scalar(tree.arguments[1])
    limit = length.value if isinstance(length, Number) else scope.max_string
    if not 0 <= limit <= MAX_READ:
        raise scope.error(tree, f"buf() reads 0 to {MAX_READ} bytes, not {limit}")
    return _read(key, "buffer", Resolver(scope).address_of(first), limit, length)


def _read(key: str, form: str, address: Node, size: int, length: Node | None) -> Output:
    if isinstance(address, Unavailable):
        return Output(key, "opaque", address)
    if isinstance(length, Unavailable):
        return Output(key, "opaque", length)
    text = "k" if form == "string" and of_kernel(address) else ""
    return Output(key, form, address, size=size, length=length, text=text)
