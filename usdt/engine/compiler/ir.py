"""Typed expressions: the intermediate representation between name resolution and codegen.

At run time, the value of an integer expression is in a 64-bit register, sign- or zero-extended
according to its type. :class:`Convert` nodes are explicit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import (
    AtFunctionReturn,
    Captured,
    ContextArea,
    ForReturn,
    Memory,
    PerCpuAddress,
    Unreadable,
    ValueClass,
    ValueType,
)
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.arch.abi.passed import RegisterPiece
    from usdt.arch.locations import Location
    from usdt.engine.language.tree import TypeName

__all__ = (
    "DURATION",
    "S32",
    "S64",
    "U32",
    "U64",
    "ArgumentValue",
    "Arithmetic",
    "BtfType",
    "Builtin",
    "ByAddress",
    "Compare",
    "Convert",
    "Deref",
    "InRegisters",
    "LValue",
    "NoValue",
    "Node",
    "Not",
    "Number",
    "PointerExpr",
    "RegisterAggregate",
    "ShortCircuit",
    "StringEquals",
    "StringEqualsConst",
    "StringMatches",
    "TypeRef",
    "Unavailable",
    "address_in",
    "bounds",
    "can_fail",
    "children",
    "narrows",
    "of_kernel",
    "why_unreadable",
    "wrap",
)

DURATION = "duration"  # a built-in that is known at a function's return

S32 = ValueType(ValueClass.SIGNED, 4)
U32 = ValueType(ValueClass.UNSIGNED, 4)
S64 = ValueType(ValueClass.SIGNED, 8)
U64 = ValueType(ValueClass.UNSIGNED, 8)


@frozen
class BtfType:
    """The type of an argument whose location holds its value; ``id`` is that of BTF.

    ``computed`` is the value, if an expression computes it; the location is then not used.
    """

    id: int
    computed: Node | None = None


@frozen
class ByAddress:
    """The type of an argument whose location holds the address of the object, as BtfType."""

    id: int
    computed: Node | None = None


@frozen
class InRegisters:
    """The type of a value in registers that is no single number.

    Attributes:
        id: ID of the type.
        pieces: the registers.
        bits: bit offset of the value in the pieces.
        returned: True if the registers are those at the function's return.
        for_return: True if what the value leads to is read at the return, as in out().
    """

    id: int
    pieces: tuple[RegisterPiece, ...]
    bits: int = 0
    returned: bool = False
    for_return: bool = False


@frozen
class NoValue:
    """The type of a variable that has no value here, but perhaps an address, for ``&``.

    Attributes:
        reason: why it has no value.
        kernel: whether it is a variable of the kernel.
    """

    reason: str
    kernel: bool = False


#: The type of an argument in BTF, and what its location holds.
TypeRef = BtfType | ByAddress | InRegisters | NoValue


@frozen
class Number:
    """An integer constant; ``value`` is in the range of its type."""

    value: int
    type: ValueType


@frozen
class ArgumentValue:
    """An argument, as its probe provider describes it.

    ``type_id`` is the ID of its type in BTF, if ``type`` does not say everything; else None.
    """

    fetch: Location
    type: ValueType
    type_id: int | None = None


@frozen
class RegisterAggregate:
    """A structure that is in registers; it replaces the address of the structure.

    Attributes:
        parts: pairs of a byte offset in the structure and the number there, of 1, 2, 4 or 8
            bytes.
    """

    parts: tuple[tuple[int, Node], ...]
    type: ValueType


@frozen
class Builtin:
    """An integer built-in: pid, tid, uid, gid, cpu, ts, cgroup or duration."""

    name: str
    type: ValueType


@frozen
class Unavailable:
    """A value that cannot be read here; an expression that uses it is unavailable too."""

    reason: str
    type: ValueType = U64


@frozen
class PointerExpr:
    """An address whose target type is known from a cast or from debug information.

    Attributes:
        address: the address as an integer.
        target: the type of the target; elements of pointer arithmetic have its size.
        type: the type of the pointer as an integer.
        type_id: the ID of the target's type in BTF; None if it is not from there.
        kernel: whether a type of the kernel says that this is a pointer
            (:mod:`usdt.engine.compiler.codegen.expressions.memory` says why it matters).
        points_to: the type of the target, if it is a pointer by a cast, as in ``(int **)arg0``.
    """

    address: Node
    target: ValueType
    type: ValueType = U64
    type_id: int | None = None
    kernel: bool = False
    points_to: TypeName | None = None


@frozen
class LValue:
    """An object in memory that is not a number: a structure, an array or a string.

    Attributes:
        address: where it is.
        type: of class STRING for an array of characters, else BYTES.
        element: the type of an element, if it is an array of integers.
        type_id: the ID of its type in BTF.
        kernel: as in :class:`PointerExpr`.
        registers: the registers that hold it; None if it is in memory.
    """

    address: Node
    type: ValueType
    element: ValueType | None = None
    type_id: int | None = None
    kernel: bool = False
    registers: InRegisters | None = None


@frozen
class Deref:
    """The number at an address; ``type_id`` and ``kernel`` as in :class:`LValue`."""

    address: Node
    type: ValueType
    type_id: int | None = None
    kernel: bool = False


@frozen
class Convert:
    """A conversion to another integer type, as in C."""

    operand: Node
    type: ValueType
    type_id: int | None = None


@frozen
class Arithmetic:
    """``+ - * / % & | ^ << >>``, or unary ``~ -`` (``right`` is None).

    The operands have been converted to ``type``, except for the right one of a shift.
    """

    op: str
    left: Node
    right: Node | None
    type: ValueType


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@frozen
class Compare:
    """``== != < <= > >=``; both sides have been converted to the type ``operands``."""

    op: str
    left: Node
    right: Node
    operands: ValueType
    type: ValueType = S32

    @property
    def opposite(self) -> str:
        """The operator of the negated comparison."""
        return _OPPOSITE[self.op]


@frozen
class StringEqualsConst:
    """A comparison of a string with a constant.

    Attributes:
        address: where the string is in memory; None: it is ``comm``.
        text: the constant, without a NUL.
        prefix: whether the string only has to begin with ``text``.
        equal: True for ``==``, False for ``!=``.
        counted: whether exactly the bytes of ``text`` are compared, which may be NUL.
    """

    address: Node | None
    text: bytes
    prefix: bool
    equal: bool
    type: ValueType = S32
    counted: bool = False


@frozen
class StringMatches:
    """A comparison of a string with a pattern.

    Attributes:
        address: where the string is in memory; None: it is ``comm``.
        length: its number of bytes; None: a NUL ends it.
        parts: two or more parts of the pattern; between two parts it has any bytes.
        limit: the number of bytes that are compared.
        cut: whether the string ends at the limit; otherwise a longer one has another end.
        equal: True for ``==``, False for ``!=``.
    """

    address: Node | None
    length: Node | None
    parts: tuple[bytes, ...]
    limit: int
    cut: bool
    equal: bool
    type: ValueType = S32

    def matches(self, text: bytes) -> bool:
        """Return True if a string, without its NUL, matches the pattern."""
        first, *middle, last = self.parts
        if len(text) > self.limit:
            text = text[: self.limit + (not self.cut)]
        if not text.startswith(first):
            return False
        at = len(first)
        for part in middle:
            found = text.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        if not last:
            return True
        return len(text) <= self.limit and len(text) - len(last) >= at and text.endswith(last)


@frozen
class StringEquals:
    """A comparison of two strings at addresses.

    Attributes:
        limit: the number of bytes of each string that are compared.
        equal: True for ``==``, False for ``!=``.
    """

    left: Node
    right: Node
    limit: int
    equal: bool
    type: ValueType = S32


@frozen
class ShortCircuit:
    """``&&`` or ``||``, with short-circuit evaluation."""

    op: str
    left: Node
    right: Node
    type: ValueType = S32


@frozen
class Not:
    """Logical negation, ``!``."""

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
    | StringMatches
    | StringEquals
    | ShortCircuit
    | Not
)


def address_in(fetch: Location) -> Node:
    """Return the address that a location holds, such as that of an object."""
    place = fetch.entry if isinstance(fetch, ForReturn) else fetch
    size = place.size if isinstance(place, Memory) else U64.size
    node = ArgumentValue(fetch, ValueType(ValueClass.UNSIGNED, size))
    return node if node.type == U64 else Convert(node, U64)


def wrap(value: int, kind: ValueType) -> int:
    """Return ``value`` converted to an integer type, modulo 2^bits as in C."""
    bits = kind.size * 8
    value &= (1 << bits) - 1
    if kind.signed and value >> (bits - 1):
        value -= 1 << bits
    return value


def bounds(kind: ValueType) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    bits = kind.size * 8
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind.signed else (0, (1 << bits) - 1)


def narrows(source: ValueType, target: ValueType) -> bool:
    """Return True if a conversion from ``source`` to ``target`` must extend the register again.

    That is the case if a value may be out of the range of ``target``, and ``target`` is smaller
    than the 64-bit register.
    """
    if target.size == 8:
        return False
    if source.signed == target.signed:
        return source.size > target.size
    return source.signed or source.size >= target.size


def children(node: Node) -> tuple[Node, ...]:
    """Return the operands of a node, from left to right."""
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
        case StringMatches(address=address, length=length):
            return tuple(one for one in (address, length) if one is not None)
        case RegisterAggregate(parts=parts):
            return tuple(part for _, part in parts)
    return ()


def of_kernel(node: Node | None) -> bool:
    """Return True for an address in the context, and for a pointer by the kernel's types."""
    if isinstance(node, ArgumentValue):
        return isinstance(node.fetch, ContextArea)
    return isinstance(node, (PointerExpr, LValue)) and node.kernel


def why_unreadable(node: Node) -> str:
    """Return the possible reasons why an expression cannot be evaluated at a hit.

    They are joined by ", or "; "" if evaluation cannot fail.
    """
    return ", or ".join(dict.fromkeys(_reasons(node)))


def _reasons(node: Node) -> Iterator[str]:
    match node:
        case Unavailable(reason=reason):
            yield reason
        case RegisterAggregate():
            yield "it lies in registers and has no address"
        case ArgumentValue(fetch=Memory(kernel=True)):
            pass
        case (
            Deref()
            | StringEquals()
            | ArgumentValue(fetch=Memory() | ContextArea() | PerCpuAddress())
        ):
            yield "memory not readable"
        case StringEqualsConst(address=address) | StringMatches(address=address) if (
            address is not None
        ):
            yield "memory not readable"
        case ArgumentValue(
            fetch=Unreadable(reason=reason) | AtFunctionReturn(register=Unreadable(reason=reason))
        ):
            yield reason
        case ArgumentValue(fetch=Captured(reason=reason)) if reason:
            yield reason
        case ArgumentValue(fetch=ForReturn(entry=entry), type=kind):
            yield from _reasons(ArgumentValue(entry, kind))
    for child in children(node):
        yield from _reasons(child)
    match node:
        case Arithmetic(op="/" | "%", right=right) if not isinstance(right, Number):
            yield "division by zero"


def can_fail(node: Node) -> bool:
    """Return True if evaluation may fail: unreadable memory, a division by zero, no value here."""
    return any(True for _ in _reasons(node))
