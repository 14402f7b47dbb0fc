"""Outputs: the values that a plan records at a hit, made from items and arguments.

:func:`output_of` chooses the column of an item by its syntax and, if a type provider knows it, by
its type. The plan assigns offsets in the record later.
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
from usdt.base.frozen import frozen, replace
from usdt.cgroups.labels import CgroupName
from usdt.engine.compiler.arguments import Display
from usdt.engine.compiler.ir import (
    U32,
    U64,
    ArgumentValue,
    Arithmetic,
    Builtin,
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
from usdt.engine.compiler.limits import MAX_READ
from usdt.engine.compiler.record.columns import (
    ArrayColumn,
    BufferColumn,
    BytesColumn,
    CgroupColumn,
    Column,
    CommColumn,
    ConstColumn,
    FloatColumn,
    IntColumn,
    IntFormat,
    SocketAddressColumn,
    StringColumn,
    StructColumn,
    StructForm,
    StructListColumn,
    SymbolColumn,
    SymbolKind,
    UnavailableColumn,
    stack_column,
)
from usdt.engine.compiler.resolve.names import argument_of, resolve_caller
from usdt.engine.compiler.value_names import Enumerators, ValueNames
from usdt.engine.language.tree import (
    MAX_FRAMES,
    Call,
    Cast,
    Index,
    Member,
    Name,
    StackKind,
    Unary,
    children,
    stack_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.arch.locations import ValueType
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.scope import DefaultFormat, Scope
    from usdt.engine.language.tree import Expression, Item

__all__ = ("Output", "argument_output", "output_of", "stack_output", "unavailable_output")

_SOCKET_ADDRESS = 128  # bytes of a struct sockaddr_storage
_NOTHING = Number(0, U64)  # the node of an output that computes nothing
_INT_FORMATS = {
    Display.INTEGER: IntFormat.DECIMAL,
    Display.BOOL: IntFormat.BOOL,
    Display.HEX: IntFormat.HEX,
}
_TRUTH = Enumerators(((0, "false"), (1, "true")))


@frozen
class Output:
    """One value to show.

    Attributes:
        key: the item as written, without unnecessary blanks.
        column: how it is recorded and shown.
        node: the value; for strings, buffers, arrays and structures its address.
        offset: byte offset in the record; None if it is not stored, or not laid out yet.
        length: for buffers, arrays and lists the number of bytes to read, else None.
        may_fault: whether its bit in the bitmap of unreadable values can be set.
    """

    key: str
    column: Column
    node: Node = _NOTHING
    offset: int | None = None
    length: Node | None = None
    may_fault: bool = False

    @property
    def size(self) -> int:
        """Bytes reserved in the record, without padding and without the length prefix."""
        return self.column.size

    @property
    def read_size(self) -> int:
        """Bytes to read of a string: at most its size in the tracepoint's record."""
        location = self.node.fetch if isinstance(self.node, ArgumentValue) else None
        if isinstance(location, ContextArea) and location.location == "here":
            return min(self.size, location.size)
        return self.size

    @property
    def captured(self) -> Captured | None:
        """The location of bytes that were captured at the function's entry; None for others."""
        location = self.node.fetch if isinstance(self.node, ArgumentValue) else None
        return location if isinstance(location, Captured) and location.size else None


def output_of(item: Item, scope: Scope) -> Output:
    """Return the output of an item.

    Raises:
        LanguageError: a name or type in the item is unknown, or operands do not fit.
    """
    output = _output(item.expression, item.text, scope)
    low = _low_part_in(item.expression, scope)
    return output if low is None else _with_low_part(output, low)


def _output(tree: Expression, key: str, scope: Scope) -> Output:
    if isinstance(tree, Call):
        return _call(tree, key, scope)
    if isinstance(tree, Name):
        if tree.name in scope.arguments:
            return argument_output(argument_of(tree, scope), key, scope)
        builtin = None if tree.at_return else _BUILTINS.get(tree.name)
        if builtin is not None:
            return builtin(tree, key, scope)
    from usdt.engine.compiler.resolve.expressions import resolve  # noqa: PLC0415 - for computed items

    return _typed(key, resolve(tree, scope), scope)


def _low_part_in(tree: Expression, scope: Scope) -> Argument | None:
    # The argument of which only the low part is known, and from which a number is computed.
    match tree:
        case Name():
            found = scope.arguments.get(tree.name)
            return found if found is not None and found.part_of else None
        case Cast(operand=Name(name=name)):
            found = scope.arguments.get(name)
            if found is not None and 0 < tree.type.size <= found.type.size:
                return None  # the low part is what was asked for
        case Unary(op="*") | Member() | Index():
            return None  # memory
        case Call(function=function) if function != "hex":
            return None
    parts = (_low_part_in(one, scope) for one in children(tree))
    return next((one for one in parts if one is not None), None)


def _with_low_part(output: Output, argument: Argument) -> Output:
    # The output of a number that is computed from the low part of an argument.
    column, node = output.column, output.node
    if not isinstance(column, IntColumn):
        return output
    if node.type.size > argument.type.size:
        from usdt.engine.compiler.constant_folding import fold  # noqa: PLC0415 - rare

        node = fold(Convert(node, argument.type))
        column = replace(column, type=node.type)
    return replace(output, column=replace(column, part_of=argument.part_of), node=node)


def _caller(tree: Name, key: str, scope: Scope) -> Output:
    node = resolve_caller(tree, scope)
    kind = SymbolKind.KERNEL_CALLER if scope.registers.kernel else SymbolKind.USER_CALLER
    return Output(key, SymbolColumn(node.type, kind), node, may_fault=can_fail(node))


def _cgroup_name(kind: CgroupName) -> Callable[[Name, str, Scope], Output]:
    return lambda _, key, __: Output(key, CgroupColumn(kind), Builtin("cgroup", U64))


# The built-ins that are no numbers
_BUILTINS: dict[str, Callable[[Name, str, Scope], Output]] = {
    "caller": _caller,
    **{kind.value: _cgroup_name(kind) for kind in CgroupName},
    "comm": lambda _, key, __: Output(key, CommColumn()),
    "func": lambda _, key, scope: Output(key, ConstColumn(scope.function)),
    "kstack": lambda _, key, scope: stack_output(StackKind.KERNEL, scope, key),
    "pystack": lambda _, key, scope: stack_output(StackKind.PYTHON, scope, key),
    "ustack": lambda _, key, scope: stack_output(StackKind.USER, scope, key),
}


def stack_output(kind: StackKind, scope: Scope, key: str = "", frames: int = MAX_FRAMES) -> Output:
    """Return the output of a stack; its default key is the kind."""
    copy = scope.stack_copy() if kind is StackKind.USER and scope.stack_copy else None
    if copy is not None:
        return Output(key or kind.value, replace(copy, frames=frames))
    return Output(key or kind.value, stack_column(kind, frames))


def unavailable_output(key: str, node: Unavailable) -> Output:
    """Return the output of a value that cannot be read here."""
    return Output(key, UnavailableColumn(node.reason), node)


def argument_output(
    argument: Argument, key: str, scope: Scope, *, expand_pointers: bool = True
) -> Output:
    """Return the output of an argument.

    With ``expand_pointers``, a pointer to a structure is shown with the structure.
    """
    if isinstance(argument.fetch, Unreadable):
        return unavailable_output(key, Unavailable(argument.fetch.reason, argument.type))
    node = ArgumentValue(argument.fetch, argument.type)
    if argument.display is Display.STRING:
        # A string of a fixed size is never cut: one byte is reserved for a NUL that it lacks.
        fixed = argument.type.size if node.type.kind is ValueClass.STRING else 0
        return _string(key, node, min(fixed + 1 if fixed else MAX_READ, scope.max_string + 1))
    if argument.display is Display.SOCKET_ADDRESS and argument.length is not None:
        column = SocketAddressColumn(_SOCKET_ADDRESS)
        return Output(key, column, node, length=argument.length)
    if argument.element is not None and isinstance(argument.fetch, ContextArea):
        return _context_array(key, node, argument.fetch, argument.element, scope)
    if scope.types is not None and argument.type_ref is not None:
        typed = scope.types.argument(argument, node)
        return _typed(key, typed, scope, expand_pointers=expand_pointers)
    output = _plain(key, node, argument.display, argument.names)
    return _with_low_part(output, argument) if argument.part_of else output


def _context_array(
    key: str, node: Node, area: ContextArea, element: ValueType, scope: Scope
) -> Output:
    # An array of integers in the tracepoint's record. With "data_loc" and "rel_loc", the upper
    # half of a u32 is the length in bytes.
    code = _element_code(element)
    if area.location == "here":
        size = min(area.size, MAX_READ)
        return Output(key, ArrayColumn(size, code), node, length=Number(size, U64))
    word = ArgumentValue(Register(area.offset, 4), U32)
    length = Arithmetic(">>", word, Number(16, U32), U32)
    return Output(key, ArrayColumn(_array_size(element, scope), code), node, length=length)


def _element_code(element: ValueType) -> str:
    code = "_bh_i___q"[element.size]
    return code if element.signed else code.upper()


def _array_size(element: ValueType, scope: Scope) -> int:
    # Bytes of as many elements as max_string allows, at least one.
    return max(scope.max_string // element.size, 1) * element.size


def _typed(key: str, node: Node, scope: Scope, *, expand_pointers: bool = True) -> Output:
    # The output of an expression whose type a type provider may know.
    shown = scope.types.shown(node) if scope.types is not None else None
    if shown is not None and shown.display is Display.TAGGED_UNION:
        return _tagged_union(key, node, shown, scope, expand_pointers=expand_pointers)
    if shown is not None and shown.begin is not None:
        return _container(key, shown, scope)
    if isinstance(node, LValue):
        return _lvalue(key, node, shown, scope)
    names = scope.types.names(node) if scope.types is not None else None
    if shown is None:
        is_address = isinstance(node, PointerExpr) and (
            node.type_id is not None or node.target.kind is ValueClass.BYTES
        )
        return _plain(key, node, Display.HEX if is_address else Display.INTEGER, names)
    if shown.display is Display.STRING:
        return _string(key, node, scope.max_string + 1)
    if shown.display is Display.STRUCT:
        if expand_pointers and scope.max_struct and shown.shape is not None:
            return _struct(key, node, shown.shape, scope, limit=scope.max_struct, by_pointer=True)
        return _plain(key, node, Display.HEX, cast=shown.cast)
    names = _TRUTH if shown.display is Display.BOOL else names
    return _plain(key, node, shown.display, names, shown.cast)


def _container(key: str, shown: DefaultFormat, scope: Scope) -> Output:
    # The contents of a C++ or Rust container: a string, integers, or values of another type.
    begin = shown.begin or Number(0, U64)
    if shown.shape is not None and shown.length is not None:
        return _counted(key, StructListColumn(shown.shape, shown.shape.size), begin, shown.length)
    if shown.element is None:
        return _counted(key, BufferColumn(scope.max_string), begin, shown.length)
    column = ArrayColumn(_array_size(shown.element, scope), _element_code(shown.element))
    return _counted(key, column, begin, shown.length)


def _counted(key: str, column: Column, address: Node, length: Node | None) -> Output:
    for node in (address, length):
        if isinstance(node, Unavailable):
            return unavailable_output(key, node)
    return Output(key, column, address, length=length)


def _string(key: str, address: Node, size: int) -> Output:
    return _counted(key, StringColumn(size, of_kernel(address)), address, None)


def _tagged_union(
    key: str, node: Node, shown: DefaultFormat, scope: Scope, *, expand_pointers: bool
) -> Output:
    # An enum with data: shown with its data if it can be shown as a structure, else as the name
    # of its variant.
    if shown.shape is not None and expand_pointers and scope.max_struct:
        output = None
        if isinstance(node, PointerExpr):
            output = _struct(key, node, shown.shape, scope, limit=scope.max_struct, by_pointer=True)
        elif isinstance(node, LValue):
            output = _lvalue(key, node, shown, scope)
        if output is not None and isinstance(output.column, StructColumn):
            return output
    begin = shown.begin or Number(0, U64)
    return _plain(key, begin, names=scope.types.names(begin) if scope.types else None)


def _lvalue(key: str, node: LValue, shown: DefaultFormat | None, scope: Scope) -> Output:
    from usdt.engine.compiler.resolve.operands import address_of_lvalue  # noqa: PLC0415 - as rare

    address = node.address
    match address:
        case ArgumentValue(fetch=AtFunctionReturn(register=Unreadable())):
            return _plain(key, address)  # as a number, it is shown with the reason
    if node.type.kind is ValueClass.STRING:
        size = min(node.type.size, scope.max_string) + 1
        return _string(key, address_of_lvalue(node), size)
    if node.element is None and shown is not None and shown.shape is not None:
        start = address if isinstance(address, RegisterAggregate) else address_of_lvalue(node)
        if shown.display is Display.INTEGER:  # of 16 bytes: shown like a structure, but never cut
            return _struct(key, start, shown.shape, scope, limit=shown.shape.size)
        if scope.max_struct:
            return _struct(key, start, shown.shape, scope, limit=scope.max_struct)
    if isinstance(address, Unavailable):
        return unavailable_output(key, address)
    size = min(node.type.size, MAX_READ)
    raw = node.element is None
    column = ArrayColumn(size, "B" if node.element is None else _element_code(node.element), raw)
    return Output(key, column, address_of_lvalue(node), length=Number(size, U64))


def _struct(
    key: str,
    address: Node,
    shape: TypeSnapshot,
    scope: Scope,
    *,
    limit: int,
    by_pointer: bool = False,
) -> Output:
    if isinstance(address, PointerExpr) and isinstance(address.address, Unavailable):
        address = address.address
    if isinstance(address, Unavailable):
        return unavailable_output(key, address)
    capacity, form = min(shape.size, limit), StructForm.WHOLE
    if scope.in_short:
        from usdt.btf.values.type_snapshot import in_short  # noqa: PLC0415 - only for structures

        whole, shape = shape, in_short(shape)
        form = StructForm.LINE if shape.types == whole.types else StructForm.SHORT
    column = StructColumn(shape, capacity, by_pointer, of_kernel(address), form)
    return Output(key, column, address)


def _plain(
    key: str,
    node: Node,
    display: Display = Display.INTEGER,
    names: ValueNames | None = None,
    cast: str = "",
) -> Output:
    # A number, or an aggregate that is shown as its bytes.
    if isinstance(node, PointerExpr) and isinstance(node.address, Unavailable):
        node = node.address
    if isinstance(node, Unavailable):
        return unavailable_output(key, node)
    if node.type.kind is ValueClass.BYTES:  # the copy may fail
        return Output(key, BytesColumn(node.type.size, cast), node, may_fault=True)
    column: Column
    if node.type.kind is ValueClass.FLOAT:
        column = FloatColumn(node.type.size, cast)
    elif display is Display.USER_SYMBOL:
        column = SymbolColumn(node.type, SymbolKind.USER)
    elif display is Display.KERNEL_SYMBOL:
        column = SymbolColumn(node.type, SymbolKind.KERNEL)
    else:
        column = IntColumn(node.type, _INT_FORMATS[display], names, cast)
    return Output(key, column, node, may_fault=can_fail(node))


def _call(tree: Call, key: str, scope: Scope) -> Output:
    from usdt.engine.compiler.constant_folding import fold  # noqa: PLC0415 - for computed items
    from usdt.engine.compiler.resolve.expressions import Resolver  # noqa: PLC0415 - the same

    resolver = Resolver(scope)
    first = tree.arguments[0]
    stack = stack_of(tree)
    if stack is not None:
        return stack_output(stack[0], scope, key, stack[1])
    if tree.function == "reg":
        return _plain(key, resolver.resolve(tree), Display.HEX)
    if tree.function == "hex":
        node = resolver.resolve(first)
        if node.type.kind is ValueClass.FLOAT:
            raise scope.error(first, "hex() shows integers, not floating-point values")
        return _plain(key, node, Display.HEX)
    if tree.function in ("usym", "ksym"):
        display = Display.USER_SYMBOL if tree.function == "usym" else Display.KERNEL_SYMBOL
        return _plain(key, fold(Convert(resolver.scalar(first), U64)), display)
    if tree.function == "str":
        limit = resolver.given_limit(tree) or scope.max_string
        return _string(key, resolver.address_of(first), limit + 1)
    length = resolver.scalar(tree.arguments[1])
    limit = length.value if isinstance(length, Number) else scope.max_string
    if not 0 <= limit <= MAX_READ:
        raise scope.error(tree, f"buf() reads 0 to {MAX_READ} bytes, not {limit}")
    return _counted(key, BufferColumn(limit), resolver.address_of(first), length)
