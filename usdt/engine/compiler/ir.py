"""Typed expressions: what the code generator is given after names and types are resolved.

Every value of an integer expression is, at run time, the number itself extended to 64 bits by
its type; the nodes say where a conversion changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    AtFunctionReturn,
    Captured,
    ContextArea,
    Memory,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.arch.locations import Location

__all__ = (
    "S32",
    "S64",
    "U32",
    "U64",
    "ArgumentValue",
    "Arithmetic",
    "Builtin",
    "Compare",
    "Convert",
    "Deref",
    "LValue",
    "Node",
    "Not",
    "Number",
    "PointerExpr",
    "RegisterAggregate",
    "ShortCircuit",
    "StringEquals",
    "StringEqualsConst",
    "Unavailable",
    "bounds",
    "can_fail",
    "children",
    "narrows",
    "of_kernel",
    "why_unreadable",
    "wrap",
)

S32 = ValueType(ValueClass.SIGNED, 4)
U32 = ValueType(ValueClass.UNSIGNED, 4)
S64 = ValueType(ValueClass.SIGNED, 8)
U64 = ValueType(ValueClass.UNSIGNED, 8)


@frozen
class Number:
    """A constant; ``value`` is within its type."""

    value: int
    type: ValueType


@frozen
class ArgumentValue:
    """An argument as the front describes it; ``handle``: its type, if that says more than C's."""

    fetch: Location
    type: ValueType
    handle: object = None


@frozen
class RegisterAggregate:
    """The bytes of a structure that lies in registers, where its address would be.

    Attributes:
        parts: offset in the structure and the number that lies there, of 1, 2, 4 or 8 bytes.
    """

    parts: tuple[tuple[int, Node], ...]
    type: ValueType


@frozen
class Builtin:
    """pid, tid, uid, gid, cpu, ts, cgroup: from a helper of the kernel."""

    name: str
    type: ValueType


@frozen
class Unavailable:
    """A value that cannot be read here; any expression with it cannot either."""

    reason: str
    type: ValueType = U64


@frozen
class PointerExpr:
    """An address whose target type is known from a cast or from debug information.

    ``handle`` is the target's type in the words of the latter; ``kernel``: that is a type of the
    kernel, which may have its addresses among a process's
    (:mod:`usdt.engine.compiler.codegen.expressions.memory`).
    """

    address: Node
    target: ValueType
    type: ValueType = U64
    handle: object = None
    kernel: bool = False


@frozen
class LValue:
    """What lies at an address and is no number: a structure, an array; text is of kind STRING.

    Attributes:
        element: of an array of integers, what it is made of.
        handle: its type in the words of :class:`usdt.engine.compiler.resolve.TypeProvider`.
        kernel: as of :class:`PointerExpr`.
    """

    address: Node
    type: ValueType
    element: ValueType | None = None
    handle: object = None
    kernel: bool = False


@frozen
class Deref:
    """The value at an address of the traced process; ``handle`` and ``kernel`` as elsewhere."""

    address: Node
    type: ValueType
    handle: object = None
    kernel: bool = False


@frozen
class Convert:
    """A value converted to another integer type, as C does."""

    operand: Node
    type: ValueType
    handle: object = None


@frozen
class Arithmetic:
    """``+ - * / % & | ^ << >>`` and unary ``~ -`` (right is None); operands have the type."""

    op: str
    left: Node
    right: Node | None
    type: ValueType


@frozen
class Compare:
    """``== != < <= > >=``; ``operands`` is the type that both sides were converted to."""

    op: str
    left: Node
    right: Node
    operands: ValueType
    type: ValueType = S32


@frozen
class StringEqualsConst:
    """A string against a constant.

    Attributes:
        address: where the string is in the traced process; None means ``comm``.
        text: without a NUL.
        prefix: only the beginning has to be equal.
        equal: False for ``!=``.
    """

    address: Node | None
    text: bytes
    prefix: bool
    equal: bool
    type: ValueType = S32


@frozen
class StringEquals:
    """Two strings at addresses, each cut after ``limit`` bytes; ``equal``: False for ``!=``."""

    left: Node
    right: Node
    limit: int
    equal: bool
    type: ValueType = S32


@frozen
class ShortCircuit:
    """``&&`` or ``||``, short-circuit."""

    op: str
    left: Node
    right: Node
    type: ValueType = S32


@frozen
class Not:
    """``!``."""

    operand: Node
    type: ValueType = S32


Node = (
    Number
    | ArgumentValue
    | RegisterAggregate
    | Builtin
    | Unavailable
    | PointerExpr
    | LValue
    | Deref
    | Convert
    | Arithmetic
    | Compare
    | StringEqualsConst
    | StringEquals
    | ShortCircuit
    | Not
)


def wrap(value: int, kind: ValueType) -> int:
    """``value`` converted to an integer type as C does: modulo 2^bits."""
    bits = kind.size * 8
    value &= (1 << bits) - 1
    if kind.signed and value >> (bits - 1):
        value -= 1 << bits
    return value


def bounds(kind: ValueType) -> tuple[int, int]:
    """The least and the largest value of an integer type."""
    bits = kind.size * 8
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind.signed else (0, (1 << bits) - 1)


def narrows(source: ValueType, target: ValueType) -> bool:
    """Whether a number of the source type may lie outside the target type."""
    if target.size == 8:
        return False
    if source.signed == target.signed:
        return source.size > target.size
    return source.signed or source.size >= target.size


def children(node: Node) -> tuple[Node, ...]:
    """The operands of a node, left to right."""
    match node:
        case PointerExpr(address=inner) | Deref(address=inner) | LValue(address=inner):
            return (inner,)
        case Convert(operand=inner) | Not(operand=inner):
            return (inner,)
        case Arithmetic(left=left, right=right):
            return (left,) if right is None else (left, right)
        case Compare(left=left, right=right) | ShortCircuit(left=left, right=right):
            return (left, right)
        case StringEquals(left=left, right=right):
            return (left, right)
        case StringEqualsConst(address=address):
            return () if address is None else (address,)
        case RegisterAggregate(parts=parts):
            return tuple(part for _, part in parts)
    return ()


def of_kernel(node: Node | None) -> bool:
    """Whether an address is the kernel's for certain, or a pointer as the kernel's types say."""
    if isinstance(node, ArgumentValue):
        return isinstance(node.fetch, ContextArea)
    return isinstance(node, (PointerExpr, LValue)) and node.kernel


def why_unreadable(node: Node) -> str:
    """What to say of an expression that could not be evaluated at a hit: all it may have been."""
    return ", or ".join(dict.fromkeys(_reasons(node)))


def _reasons(node: Node) -> Iterator[str]:
    match node:
        case Unavailable(reason=reason):
            yield reason
        case RegisterAggregate():
            yield "it lies in registers and has no address"
        case ArgumentValue(fetch=Memory(kernel=True)):
            pass
        case Deref() | StringEquals() | ArgumentValue(fetch=Memory() | ContextArea()):
            yield "memory not readable"
        case StringEqualsConst(address=address) if address is not None:
            yield "memory not readable"
        case ArgumentValue(
            fetch=Unreadable(reason=reason) | AtFunctionReturn(register=Unreadable(reason=reason))
        ):
            yield reason
        case ArgumentValue(fetch=Captured(reason=reason)) if reason:
            yield reason
    for child in children(node):
        yield from _reasons(child)
    match node:
        case Arithmetic(op="/" | "%", right=right) if not isinstance(right, Number):
            yield "division by zero"


def can_fail(node: Node) -> bool:
    """Whether evaluation may find something unreadable: user memory, or a division by zero."""
    return any(True for _ in _reasons(node))
