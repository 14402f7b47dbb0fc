"""The typed program: what the checker makes of the syntax tree, and the code generator compiles.

A number is an expression of :mod:`usdt.engine.compiler.ir`. What those expressions do not have,
such as a map's value, is a :data:`Step`: it is computed before, and the expression refers to it by
:class:`~usdt.arch.locations.Saved`. A value in memory, such as a string, is a :data:`Bytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.locations import Saved
from usdt.base.frozen import frozen
from usdt.engine.compiler.ir import U64, ArgumentValue
from usdt.engine.programs.variables import Variable

if TYPE_CHECKING:
    from usdt.bpf._uapi import Helper
    from usdt.engine.compiler.ir import Node
    from usdt.engine.language.tree import StackKind
    from usdt.engine.programs.events import Event
    from usdt.engine.programs.types import (
        AggregateType,
        BufferType,
        StackType,
        StringType,
        TupleType,
        Type,
    )
    from usdt.engine.programs.variables import MapVariable

__all__ = (
    "AddToMap", "AggregateNumber", "Bytes", "CallHelper", "CallWithObject", "Choose", "ChooseBytes",
    "Comm", "CompareBytes", "Computation", "Computed", "Delete", "Element", "ElementNumber", "Emit",
    "Evaluate", "FindText", "ForMap", "HasKey", "If", "Increment", "JoinBytes", "JoinSteps",
    "Leave", "Loop", "LowBytes", "MakeTuple", "MapAddress", "MapBytes", "MapLength", "MapNumber",
    "Padded", "PathText", "Read", "ReadStatus", "ReadText", "Scalar", "SetMap", "SetVariable",
    "StackOf", "Statement", "Step", "Text", "TextLength", "UserSymbol", "Value", "VariableBytes",
    "WriteUser", "saved",
)  # fmt: skip


def saved(variable: Variable) -> Node:
    """Return the expression of a variable that is a number."""
    return ArgumentValue(Saved(variable.number), U64)


# ---------------------------------------------------------------- numbers


@frozen
class Scalar:
    """A number.

    Attributes:
        node: its expression.
        type: an IntegerType or a PointerType.
        before: the steps that the expression needs, in order.
    """

    node: Node
    type: Type
    before: tuple[Step, ...] = ()


@frozen
class MapNumber:
    """A number in a map; 0 if the map does not have the key."""

    map: MapVariable
    key: Value


@frozen
class Increment:
    """``++`` and ``--`` of a map's number; ``before``: the result is the number before."""

    map: MapVariable
    key: Value
    by: int
    before: bool


@frozen
class HasKey:
    """1 if a map has a key, else 0."""

    map: MapVariable
    key: Value


@frozen
class Choose:
    """``condition ? yes : no`` for numbers; also ``&&`` and ``||`` whose right side has steps."""

    condition: Scalar
    yes: Scalar
    no: Scalar


@frozen
class CallHelper:
    """The result of a helper of the kernel that takes numbers, or the context of the probe."""

    helper: Helper
    arguments: tuple[Scalar, ...] = ()
    context: bool = False
    low: bool = False  # only its low 32 bits
    high: bool = False  # only its high 32 bits


@frozen
class CallWithObject:
    """The result of a helper that takes an object of the kernel by its typed address.

    ``path``: offsets of addresses, in the context and the objects that follow, and in the last one.
    """

    helper: Helper
    path: tuple[int, ...]


@frozen
class CompareBytes:
    """1 if two values are the same, else 0. ``count`` bytes at most; -1: all.

    ``difference``: that of the first bytes that differ, else 0.
    """

    left: Bytes
    right: Bytes
    count: int = -1
    difference: bool = False


@frozen
class ElementNumber:
    """A number in a value in memory, ``offset`` bytes into it."""

    whole: Bytes
    offset: int


@frozen
class AggregateNumber:
    """The number that count() and the like have computed so far, of all CPUs."""

    map: MapVariable
    key: Value
    type: AggregateType


@frozen
class MapLength:
    """The number of entries of a map."""

    map: MapVariable


@frozen
class MapAddress:
    """The address of a value of a map; 0 if the map does not have the key."""

    map: MapVariable
    key: Value


@frozen
class TextLength:
    """The number of bytes of a string before its NUL, or of frames of a stack."""

    text: Bytes


@frozen
class FindText:
    """1 if a string has another in it, or if a ``glob`` matches; ``position``: where, or -1."""

    text: Bytes
    part: bytes | Bytes
    position: bool = False
    glob: bool = False


@frozen
class Delete:
    """``delete(@x, key)``; as a number, 1 if the map had the key, else 0."""

    map: MapVariable
    key: Value


@frozen
class ReadStatus:
    """0 if memory at an address can be read, else the negative errno of the helper."""

    address: Scalar
    kernel: bool


@frozen
class JoinSteps:
    """Statements, and the number that they lead to: a block that is an expression."""

    statements: tuple[Statement, ...]
    result: Scalar


@frozen
class WriteUser:
    """1 if the first bytes of a value were written at an address of the process, else 0.

    Nothing is written if there are fewer bytes, or if ``length`` is 0.
    """

    address: Scalar
    value: Bytes
    length: Scalar


#: What is computed from maps and values in memory.
Computed = (
    AggregateNumber
    | CallWithObject
    | MapLength
    | MapAddress
    | CompareBytes
    | TextLength
    | FindText
    | Delete
    | ReadStatus
    | WriteUser
)

Computation = (
    MapNumber | Increment | HasKey | Choose | CallHelper | ElementNumber | JoinSteps | Computed
)

#: A variable and what is computed for it; a Bytes is put into memory, and its address is saved.
Step = tuple[Variable, "Computation | Scalar | Bytes"]

# ---------------------------------------------------------------- values in memory


@frozen
class Text:
    """A constant string, without a NUL; without any text, zeros of any type."""

    text: bytes
    type: Type


@frozen
class ReadText:
    """A string at an address, up to its NUL; ``limit``: at most so many bytes with the NUL."""

    address: Scalar
    type: StringType
    limit: Scalar | None = None


@frozen
class Read:
    """Bytes at an address: a structure, an array, or a buffer of ``length`` bytes."""

    address: Scalar
    type: Type
    length: Scalar | None = None


@frozen
class Comm:
    """The name of the thread."""

    type: StringType


@frozen
class VariableBytes:
    """The value of a variable in memory."""

    variable: Variable
    type: Type


@frozen
class MapBytes:
    """A value in a map; zeros if the map does not have the key."""

    map: MapVariable
    key: Value
    type: Type


@frozen
class Element:
    """A part of a value in memory, ``offset`` bytes into it."""

    whole: Bytes
    offset: int
    type: Type


@frozen
class MakeTuple:
    """A tuple of values; ``order``: in which they are computed, by their indexes."""

    elements: tuple[Value, ...]
    type: TupleType
    order: tuple[int, ...] = ()


@frozen
class Padded:
    """A string as one of a larger type: with zeros behind it, or with another string, ``after``."""

    value: Bytes
    type: Type
    after: Bytes | None = None


@frozen
class ChooseBytes:
    """``condition ? yes : no`` for values in memory of one type."""

    condition: Scalar
    yes: Bytes
    no: Bytes
    type: Type


@frozen
class JoinBytes:
    """Statements, and the value in memory that they lead to: a block that is an expression."""

    statements: tuple[Statement, ...]
    value: Bytes
    type: Type


@frozen
class LowBytes:
    """The lowest four bytes of a number, as they are in memory: a buffer."""

    value: Scalar
    type: BufferType


@frozen
class PathText:
    """The path of a file; ``path`` leads to a ``struct path``, as in CallWithObject."""

    path: tuple[int, ...]
    type: StringType


@frozen
class StackOf:
    """The user or the kernel stack."""

    kind: StackKind
    type: StackType


@frozen
class UserSymbol:
    """An address of the process, and the process: a symbol when it is shown."""

    address: Scalar
    type: StackType


Bytes = (
    Text
    | ReadText
    | Read
    | Comm
    | VariableBytes
    | MapBytes
    | Element
    | MakeTuple
    | Padded
    | ChooseBytes
    | JoinBytes
    | LowBytes
    | PathText
    | StackOf
    | UserSymbol
)

Value = Scalar | Bytes

# ---------------------------------------------------------------- statements


@frozen
class SetVariable:
    """``$x = value``."""

    variable: Variable
    value: Value


@frozen
class SetMap:
    """``@x[key] = value``; ``type`` is that of the map's values."""

    map: MapVariable
    key: Value
    value: Value
    type: Type


@frozen
class AddToMap:
    """``@x[key] = count()`` and the like.

    Attributes:
        value: the number; None for count().
        array: whether the map is an array, which has no keys.
        moment: nanoseconds since 1970, for tseries().
    """

    map: MapVariable
    key: Value
    type: AggregateType
    value: Scalar | None
    array: bool
    moment: Scalar | None = None


@frozen
class Emit:
    """Send an event to user space with some values: printf(), print(), exit() and others."""

    event: Event
    values: tuple[Value, ...] = ()


@frozen
class Evaluate:
    """An expression for its effects."""

    value: Value


@frozen
class If:
    """``if (condition) { yes } else { no }``."""

    condition: Scalar
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...] = ()


@frozen
class Loop:
    """A loop of at most ``times`` rounds, which ends when ``condition`` is 0.

    Attributes:
        times: the number of rounds, evaluated once; None: as many as the kernel allows.
        condition: evaluated before each round; None: always true.
        body: the statements of a round.
        variable: the number of the round plus ``first``, if the loop has a variable.
        first: the first value of the variable, evaluated once.
    """

    times: Scalar | None
    condition: Scalar | None
    body: tuple[Statement, ...]
    variable: Variable | None = None
    first: Scalar | None = None


@frozen
class ForMap:
    """``for ($kv : @map)``; ``variable`` is a tuple of the key and the value.

    Attributes:
        value: the number that count() and the like have computed for the key; None: the value is
            that of the entry.
    """

    map: MapVariable
    variable: Variable
    type: TupleType
    body: tuple[Statement, ...]
    value: Scalar | None = None


@frozen
class Leave:
    """``return``, ``break`` or ``continue``."""

    how: str


Statement = SetVariable | SetMap | AddToMap | Delete | Emit | Evaluate | If | Loop | ForMap | Leave
