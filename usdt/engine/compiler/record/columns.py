"""Columns: the types of the values in a record, which say how a value is stored and shown.

:data:`Column` is the union of these types. Code that distinguishes them uses ``match``, with
:func:`typing.assert_never` after the last ``case`` if it must handle every type.

Each type has these attributes:

    size          bytes reserved for the value, without padding and without the length prefix
    prefix_size   bytes of the length prefix before it (:mod:`.length_prefix`): 8 or 0
    stored        whether the record contains it
    struct_code   the :mod:`struct` format of the value with its length prefix and padding
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import Names, frozen
from usdt.cpython.stack_record import SLOT_SIZE
from usdt.engine.language.tree import MAX_FRAMES, StackKind

if TYPE_CHECKING:
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.cgroups.labels import CgroupName
    from usdt.engine.compiler.value_names import ValueNames

__all__ = (
    "WORD",
    "AnyStack",
    "ArrayColumn",
    "BufferColumn",
    "BytesColumn",
    "CgroupColumn",
    "Column",
    "CommColumn",
    "ConstColumn",
    "FloatColumn",
    "IntColumn",
    "IntFormat",
    "SocketAddressColumn",
    "StackColumn",
    "StackCopyColumn",
    "StringColumn",
    "StructColumn",
    "StructForm",
    "StructListColumn",
    "SymbolColumn",
    "SymbolKind",
    "UnavailableColumn",
    "padded",
    "prefixed_code",
    "stack_column",
)

WORD = 8  # bytes; every value is padded to a multiple of it
# Frames at the beginning of a kernel stack that are not shown: those of the program that records it
_OWN_FRAMES = 8
# Slots of a Python stack that may be those of C code between its first frames
_C_FRAMES = 4


class IntFormat(Names):
    """How an integer is shown; recordings contain the values of this enum."""

    DECIMAL = "integer"
    BOOL = "bool"
    HEX = "hex"


class StructForm(Names):
    """How much of a structure is shown; recordings contain the values of this enum."""

    WHOLE = ""  # on lines of its own, if it is large
    LINE = "l"  # on one line
    SHORT = "s"  # on one line, without members that are larger structures


class SymbolKind(Names):
    """What an address is that is shown as a symbol; recordings contain the values of this enum."""

    USER = "usym"  # an address of the process
    KERNEL = "ksym"
    USER_CALLER = "ucaller"  # a return address of the process: the call is before it
    KERNEL_CALLER = "kcaller"

    @property
    def stack(self) -> StackKind:
        """The kind of the stacks that such an address is in."""
        match self:
            case SymbolKind.USER | SymbolKind.USER_CALLER:
                return StackKind.USER
            case SymbolKind.KERNEL | SymbolKind.KERNEL_CALLER:
                return StackKind.KERNEL
            case _:
                assert_never(self)


def stack_column(kind: StackKind, frames: int = MAX_FRAMES) -> StackColumn:
    """Return the column of a stack of which at most ``frames`` frames are shown."""
    match kind:
        case StackKind.USER:
            recorded = frames
        case StackKind.KERNEL:
            recorded = frames + _OWN_FRAMES
        case StackKind.PYTHON:
            return StackColumn(kind, SLOT_SIZE * min(frames + _C_FRAMES, MAX_FRAMES), frames)
        case _:
            assert_never(kind)
    return StackColumn(kind, WORD * min(recorded, MAX_FRAMES), frames)


def padded(size: int) -> int:
    """Return ``size`` in bytes, rounded up to a multiple of eight."""
    return -(-size // WORD) * WORD


def prefixed_code(size: int) -> str:
    """Return the :mod:`struct` format of a length prefix and ``size`` bytes, padded."""
    return f"q{size}s{-size % WORD}x"


@frozen
class IntColumn:
    """An integer of 1, 2, 4 or 8 bytes, which is stored extended to eight.

    Attributes:
        type: its type before it is extended.
        format: how a value is shown that has no name.
        names: the names of its values, if they have any.
        cast: its C type, or "" if that is not known.
        part_of: bytes of the number of which it is only the low part; 0 if it is all.
    """

    type: ValueType
    format: IntFormat = IntFormat.DECIMAL
    names: ValueNames | None = None
    cast: str = ""
    part_of: int = 0

    size = WORD
    prefix_size = 0
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        signed = self.type.kind is ValueClass.SIGNED and self.format is not IntFormat.HEX
        return "q" if signed else "Q"


@frozen
class SymbolColumn:
    """An address that is shown as a symbol; ``kind`` says of what."""

    type: ValueType
    kind: SymbolKind

    size = WORD
    prefix_size = 0
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        return "q" if self.type.kind is ValueClass.SIGNED else "Q"


@frozen
class CgroupColumn:
    """The ID of a cgroup that is shown by a name; ``kind`` says by which."""

    kind: CgroupName

    size = WORD
    prefix_size = 0
    stored = True
    struct_code = "Q"


@frozen
class FloatColumn:
    """A floating-point number of ``width`` bytes, 4 or 8; ``cast`` as in :class:`IntColumn`."""

    width: int
    cast: str = ""

    size = WORD
    prefix_size = 0
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        return "d" if self.width == WORD else "f4x"


@frozen
class BytesColumn:
    """An aggregate of ``length`` bytes, passed by value; ``cast`` as in :class:`IntColumn`."""

    length: int
    cast: str = ""

    prefix_size = 0
    stored = True

    @property
    def size(self) -> int:
        """See the module."""
        return max(WORD, self.length)

    @property
    def struct_code(self) -> str:
        """See the module."""
        return f"{self.length}s{padded(self.size) - self.length}x"


class _Prefixed:
    # A column with a length prefix.
    __slots__ = ()
    prefix_size = WORD
    stored = True

    @property
    def size(self) -> int:
        raise NotImplementedError

    @property
    def struct_code(self) -> str:
        return prefixed_code(self.size)


class _WithAddress(_Prefixed):
    # A column that has its address before its ``capacity`` bytes.
    __slots__ = ()
    capacity: int

    @property
    def size(self) -> int:
        return WORD + self.capacity


class _NotStored:
    # A column whose value is not in the record.
    __slots__ = ()
    size = 0
    prefix_size = 0
    stored = False
    struct_code = ""


@frozen
class StringColumn(_Prefixed):
    """A NUL-terminated string.

    Attributes:
        size: the maximum number of bytes that are kept, with the NUL.
        kernel: whether its address is a pointer by the kernel's types, or is in the context. The
            string itself may still be in a process's memory.
    """

    size: int
    kernel: bool = False


@frozen
class BufferColumn(_Prefixed):
    """Bytes that are shown as text; ``size`` is the maximum number that are kept."""

    size: int


@frozen
class SocketAddressColumn(_Prefixed):
    """A ``struct sockaddr``; ``size`` is the maximum number of bytes that are kept."""

    size: int


@frozen
class ArrayColumn(_Prefixed):
    """An array of integers.

    Attributes:
        size: the maximum number of bytes that are kept.
        element_code: the :mod:`struct` format of an element.
        raw: whether the elements are only the bytes of a value that is no array of integers.
    """

    size: int
    element_code: str
    raw: bool = False


@frozen
class StructColumn(_WithAddress):
    """A structure: its address, then its first bytes.

    Attributes:
        shape: its type.
        capacity: bytes that are kept.
        by_pointer: whether the item is a pointer to it, which is shown with it.
        kernel: as in :class:`StringColumn`.
        form: how much of it is shown.
    """

    shape: TypeSnapshot
    capacity: int
    by_pointer: bool = False
    kernel: bool = False
    form: StructForm = StructForm.WHOLE


@frozen
class StructListColumn(_WithAddress):
    """A list of values of one type: its address, then the values.

    Attributes:
        shape: an array type; its length is the maximum number of values that are kept.
        capacity: the maximum number of bytes that are kept.
    """

    shape: TypeSnapshot
    capacity: int


@frozen
class StackColumn(_Prefixed):
    """The addresses of a stack, innermost first; ``size`` in bytes is a multiple of eight.

    Of a Python stack, slots: see :mod:`usdt.cpython.stack_record`.

    ``frames`` is the greatest number of frames that are shown.
    """

    kind: StackKind
    size: int
    frames: int = MAX_FRAMES


@frozen
class StackCopyColumn(_Prefixed):
    """The registers of a thread and a copy of the top of its stack, unwound when it is shown.

    ``struct pt_regs`` comes first, then the stack from the last multiple of ``STACK_UNIT`` at or
    below the stack pointer. The length prefix is the number of bytes of the stack.

    Attributes:
        registers: bytes of ``struct pt_regs``.
        stack: maximum bytes of the stack.
        frames: the greatest number of frames that are shown.
    """

    registers: int
    stack: int
    frames: int = MAX_FRAMES

    @property
    def kind(self) -> StackKind:
        """The kind of stack that it becomes."""
        return StackKind.USER

    @property
    def size(self) -> int:
        """Bytes in the record after the length prefix."""
        return self.registers + self.stack


@frozen
class CommColumn(_NotStored):
    """The name of the thread, which is in the header of every record."""


@frozen
class ConstColumn(_NotStored):
    """A string that is the same at every hit."""

    text: str


@frozen
class UnavailableColumn(_NotStored):
    """A value that no program can read here; ``reason`` is shown."""

    reason: str


AnyStack = StackColumn | StackCopyColumn

Column = (
    IntColumn
    | SymbolColumn
    | CgroupColumn
    | FloatColumn
    | BytesColumn
    | StringColumn
    | BufferColumn
    | SocketAddressColumn
    | ArrayColumn
    | StructColumn
    | StructListColumn
    | StackColumn
    | StackCopyColumn
    | CommColumn
    | ConstColumn
    | UnavailableColumn
)
