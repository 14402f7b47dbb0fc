"""The types of values in programs, and the layout of values in maps and records.

A value is a number in a register, or bytes in memory. Numbers are 64 bits wide while they are
computed, as in bpftrace: the type says how they were read, how they divide and compare, and how
they are shown.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import field, frozen

if TYPE_CHECKING:
    from usdt.engine.compiler.scope import TypeProvider
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.language.tree import StackKind, TypeName

__all__ = (
    "BOOLEAN",
    "INT64",
    "NOTHING",
    "UINT32",
    "UINT64",
    "Aggregate",
    "AggregateType",
    "ArrayType",
    "BufferType",
    "IntegerType",
    "NoType",
    "PointerType",
    "ShownAs",
    "StackType",
    "StringType",
    "StructType",
    "TupleType",
    "Type",
    "aligned",
    "bytes_of",
    "is_number",
    "size_of",
    "spelled",
)

_WORD = 8


class ShownAs(enum.Enum):
    """What a number stands for; user space looks it up when it is shown."""

    NUMBER = "number"
    BOOLEAN = "bool"
    KERNEL_SYMBOL = "ksym_t"
    USER_NAME = "username_t"
    CGROUP_PATH = "cgroup_path_t"
    ERROR = "strerror_t"
    SIGNAL = "signal_name_t"
    SYSTEM_CALL = "syscall_name_t"
    TIME = "timestamp"


@frozen
class IntegerType:
    """An integer.

    Attributes:
        size: bytes: 1, 2, 4 or 8.
        signed: whether it is.
        shown: what it stands for.
        names: the names of its values, for an enum.
        format: for TIME, the format of strftime().
    """

    size: int
    signed: bool
    shown: ShownAs = ShownAs.NUMBER
    names: ValueNames | None = None
    format: str = ""


INT64 = IntegerType(8, signed=True)
UINT32 = IntegerType(4, signed=False)
UINT64 = IntegerType(8, signed=False)
BOOLEAN = IntegerType(1, signed=False, shown=ShownAs.BOOLEAN)


@frozen
class PointerType:
    """An address.

    Attributes:
        target: how the target is read: a number, or bytes of its size.
        type_id: the ID of the target's type in ``types``; None if it is not from there.
        types: the type information that knows the target; None if none does.
        kernel: whether it is an address of the kernel by its type.
        spelling: the pointer's type in C.
        points_to: the type of the target, if that is a pointer by a cast: ``(int **)arg0``.
        value: the type of the target, if that is a variable or a map's value: ``&$x``.
    """

    target: ValueType = ValueType(ValueClass.BYTES, 1)
    type_id: int | None = None
    types: TypeProvider | None = field(default=None, compare=False)
    kernel: bool = False
    spelling: str = "void *"
    points_to: TypeName | None = None
    value: Type | None = None


@frozen
class StringType:
    """A string; ``size`` is the number of bytes that hold it, with the NUL at its end.

    ``trailer`` is shown behind one that fills all of them, because it may have been longer.
    """

    size: int
    trailer: str = ""


@frozen
class BufferType:
    """Bytes: in memory a u64 length, then at most ``size`` bytes."""

    size: int
    address: bool = False  # whether it is an IP address, as ntop() shows it
    hardware: bool = False  # whether it is a MAC address


@frozen
class TupleType:
    """A tuple, or a record, whose elements have names."""

    elements: tuple[Type, ...]
    names: tuple[str, ...] = ()

    def offset(self, index: int) -> int:
        """Return the byte offset of an element; each begins at a multiple of eight."""
        return sum(aligned(size_of(one)) for one in self.elements[:index])


@frozen
class ArrayType:
    """An array; ``type_id`` and ``types`` as in :class:`StructType`, if it is from there."""

    element: Type
    count: int
    type_id: int | None = field(default=None, compare=False)
    types: TypeProvider | None = field(default=None, compare=False)


@frozen
class StructType:
    """A structure or union.

    Attributes:
        size: its bytes.
        type_id: the ID of its type in ``types``.
        types: the type information that knows it.
        spelling: its type in C.
    """

    size: int
    type_id: int
    types: TypeProvider = field(compare=False)
    spelling: str


@frozen
class StackType:
    """A stack, or a symbol of a process: what is stored is looked up when it is shown.

    A stack is its ID in the map of stacks (s32) and the process (u32); one that is walked by unwind
    tables is its hash (u64) and the process (u64); a symbol, which has no frames, is an address
    (u64) and the process (u64).
    """

    kind: StackKind
    frames: int
    mode: str = ""
    walked: bool = False


@frozen
class NoType:
    """The type of what has no value."""


NOTHING = NoType()


class Aggregate(enum.Enum):
    """The functions whose results are computed in maps; the values are their names."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    STATS = "stats"
    HIST = "hist"
    LHIST = "lhist"
    TSERIES = "tseries"


@frozen
class AggregateType:
    """The type of a map's values that a function such as count() computes.

    Attributes:
        function: the function.
        signed: whether the numbers are.
        parameters: hist: the bits; lhist: lowest, highest, step; tseries: nanoseconds of an
            interval, number of intervals.
        inner: tseries: what is computed for each interval.
    """

    function: Aggregate
    signed: bool = True
    parameters: tuple[int, ...] = ()
    inner: Aggregate | None = None


Type = (
    IntegerType
    | PointerType
    | StringType
    | BufferType
    | TupleType
    | ArrayType
    | StructType
    | StackType
    | AggregateType
    | NoType
)


def is_number(type_: Type) -> bool:
    """Return whether values of a type are in a register: integers and addresses."""
    return isinstance(type_, IntegerType | PointerType)


def aligned(size: int, to: int = _WORD) -> int:
    """Return a size rounded up to a multiple of eight, or of another number."""
    return -(-size // to) * to


def size_of(type_: Type) -> int:
    """Return the bytes of a value in a map or a record. A number has eight."""
    match type_:
        case IntegerType() | PointerType():
            return _WORD
        case StringType(size=size) | StructType(size=size):
            return aligned(size)
        case BufferType(size=size):
            return _WORD + aligned(size)
        case StackType(frames=frames, walked=walked):
            return _WORD if frames and not walked else 2 * _WORD
        case TupleType(elements=elements):
            return sum(aligned(size_of(one)) for one in elements)
        case ArrayType(element=element, count=count):
            return aligned(bytes_of(element) * count)
        case AggregateType() | NoType():
            return 0


def bytes_of(type_: Type) -> int:
    """Return the bytes of a value in C, as in traced memory and for sizeof()."""
    match type_:
        case IntegerType(size=size) | StringType(size=size) | StructType(size=size):
            return size
        case ArrayType(element=element, count=count):
            return bytes_of(element) * count
        case TupleType(elements=elements):
            end = 0
            for one in elements:
                end = aligned(end, _alignment(one)) + bytes_of(one)
            return aligned(end, _alignment(type_))
    return size_of(type_)


def _alignment(type_: Type) -> int:
    # As in C.
    match type_:
        case IntegerType(size=size):
            return size
        case StringType():
            return 1
        case ArrayType(element=element):
            return _alignment(element)
        case TupleType(elements=elements):
            return max(map(_alignment, elements), default=1)
        case StructType(type_id=number, types=types):
            known = getattr(types, "btf", None)
            return _WORD if known is None else max(known.align_of(number), 1)
    return _WORD


# What is computed in another way of unsigned numbers.
_OF_TWO_KINDS = (Aggregate.SUM, Aggregate.AVG, Aggregate.MIN, Aggregate.MAX, Aggregate.STATS)


def spelled(type_: Type) -> str:
    """Return the name of a type, for messages."""
    match type_:
        case IntegerType(shown=ShownAs.NUMBER, size=size, signed=signed):
            return f"{'' if signed else 'u'}int{size * 8}"
        case IntegerType(shown=shown):
            return shown.value
        case PointerType(spelling=spelling) | StructType(spelling=spelling):
            return spelling
        case StringType(size=size):
            return f"string[{size - bool(type_.trailer)}]"
        case BufferType(address=True):
            return "inet_t"
        case BufferType(hardware=True):
            return "mac_address_t"
        case BufferType(size=size):
            return f"buffer[{size}]"
        case TupleType(elements=elements, names=names):
            parts = [spelled(one) for one in elements]
            if names:
                parts = [f"{name}={part}" for name, part in zip(names, parts, strict=True)]
            return f"({', '.join(parts)})"
        case ArrayType(element=element, count=count):
            return f"{spelled(element)}[{count}]"
        case StackType(kind=kind, frames=frames):
            return kind.value if frames else "usym_t"
        case AggregateType(function=function, signed=signed):
            unsigned = not signed and function in _OF_TWO_KINDS
            return f"{'u' if unsigned else ''}{function.value}_t"
        case NoType():
            return "void"
