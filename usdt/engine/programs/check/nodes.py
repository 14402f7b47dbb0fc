"""Between expressions of the engine and typed values of programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import replace
from usdt.engine.compiler.constant_folding import fold
from usdt.engine.compiler.ir import (
    S64,
    U64,
    Arithmetic,
    Convert,
    Deref,
    LValue,
    Node,
    Number,
    PointerExpr,
)
from usdt.engine.compiler.resolve.btf_types import BtfTypes
from usdt.engine.programs.members import type_of
from usdt.engine.programs.typed import Read, ReadText, Scalar, saved
from usdt.engine.programs.types import (
    INT64,
    UINT64,
    ArrayType,
    IntegerType,
    PointerType,
    StringType,
    StructType,
    bytes_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.compiler.scope import TypeProvider
    from usdt.engine.programs.typed import Bytes, Step, Value
    from usdt.engine.programs.variables import Variable

__all__ = ("constant", "literal", "lvalue_of", "pointer_of", "value_of", "wide")

_BYTE = ValueType(ValueClass.BYTES, 1)


def constant(value: int) -> Scalar:
    """Return a constant."""
    signed = value < 1 << 63
    return Scalar(Number(value, S64 if signed else U64), INT64 if signed else UINT64)


def literal(value: int) -> Scalar:
    """Return a constant of the smallest signed type that holds it, as those of a program are."""
    made = constant(value)
    bits = (value if value >= 0 else ~value).bit_length() + 1
    size = next((one for one in (1, 2, 4, 8) if bits <= 8 * one), 0)
    return replace(made, type=IntegerType(size, signed=True)) if size else made


def wide(value: Scalar) -> Node:
    """Return the number as one of 64 bits."""
    node = value.node
    if node.type.size == 8 and node.type.kind in (ValueClass.SIGNED, ValueClass.UNSIGNED):
        return node
    return fold(Convert(node, S64))


def pointer_of(value: Scalar) -> Node:
    """Return a pointer with its target, as type information understands it."""
    kind = value.type
    if not isinstance(kind, PointerType):
        return value.node
    return PointerExpr(value.node, kind.target, U64, kind.type_id, kind.kernel, kind.points_to)


def value_of(
    node: Node,
    types: TypeProvider | None,
    before: tuple[Step, ...],
    max_string: int,
    *,
    in_program: bool = False,
) -> Value:
    """Return the value of an expression that type information or a probe gives.

    Args:
        node: the expression.
        types: the type information.
        before: the steps that the expression needs.
        max_string: the most bytes of a string.
        in_program: whether the object is in memory of the program, or of the kernel.

    Raises:
        BtfError: types contain one another.
    """
    names = None if types is None else types.names(node)
    if in_program:
        node = _read_as_kernels(node)
    match node:
        case PointerExpr():
            shown = None if types is None else types.shown(node)
            spelling = shown.cast if shown is not None and shown.cast else "void *"
            target, number, inner = node.target, node.type_id, node.points_to
            kind = PointerType(target, number, types, node.kernel, spelling, inner)
            return Scalar(node.address, kind, before)
        case LValue():
            return _object(node, types, before, max_string)
    signed = node.type.signed
    return Scalar(node, IntegerType(node.type.size, signed, names=names), before)


def _read_as_kernels(node: Node) -> Node:
    # What a pointer in memory of the program leads to need not be the kernel's.
    match node:
        case LValue() | Deref():
            return replace(node, kernel=True)
        case PointerExpr(address=address):
            return replace(node, address=_read_as_kernels(address))
        case Convert(operand=operand):
            return replace(node, operand=_read_as_kernels(operand))
        case Arithmetic(left=left):  # of a bit field
            return replace(node, left=_read_as_kernels(left))
    return node


def _object(
    node: LValue, types: TypeProvider | None, before: tuple[Step, ...], max_string: int
) -> Bytes:
    # An object in memory: it is read when its value is needed.
    target = PointerType(_BYTE, None, types, node.kernel)
    address = Scalar(node.address, target, before)
    size = node.type.size
    if node.type.kind is ValueClass.STRING:
        return ReadText(address, StringType(min(size + 1, max_string)))
    if node.element is not None:
        element = IntegerType(node.element.size, node.element.signed)
        return Read(address, ArrayType(element, size // element.size, node.type_id, types))
    if types is None or node.type_id is None:
        return Read(address, ArrayType(IntegerType(1, signed=False), size))
    if isinstance(types, BtfTypes):
        kind = type_of(types, node.type_id)
        if isinstance(kind, ArrayType):
            return Read(address, kind)
    shown = types.shown(node)
    spelling = shown.cast if shown is not None and shown.cast else "struct"
    return Read(address, StructType(size, node.type_id, types, spelling))


def lvalue_of(
    value: Bytes, new_variable: Callable[[], Variable]
) -> tuple[LValue, TypeProvider | None, tuple[Step, ...]] | None:
    """Return the object whose members or elements are asked for; None for other values.

    A value that is not in traced memory is put into the program's, and read there.
    """
    kind = value.type
    if not isinstance(kind, StructType | ArrayType):
        return None
    element = None
    if isinstance(kind, ArrayType) and isinstance(kind.element, IntegerType):
        element = ValueType(
            ValueClass.SIGNED if kind.element.signed else ValueClass.UNSIGNED, kind.element.size
        )
    whole = ValueType(ValueClass.BYTES, bytes_of(kind))
    if isinstance(value, Read):
        address = value.address
        kernel = isinstance(address.type, PointerType) and address.type.kernel
        made = LValue(address.node, whole, element, kind.type_id, kernel)
        return made, kind.types, address.before
    variable = new_variable()
    made = LValue(saved(variable), whole, element, kind.type_id, kernel=True)
    return made, kind.types, ((variable, value),)
