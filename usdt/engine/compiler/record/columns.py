"""What a value of a record is: how it is stored, and how it is shown.

Every column is one of the types that :data:`Column` joins. Code that has to know which one uses
``match``, with :func:`typing.assert_never` behind the last case where every type counts.

Each type has these attributes:

    size          bytes reserved for the value, without padding and without a length prefix
    prefix_size   bytes of the length prefix before it (:mod:`.length_prefix`): 8 or 0
    stored        whether it is in the record at all
    struct_code   the reserved bytes in the format language of :mod:`struct`
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Literal

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from usdt.btf.values.type_snapshot import TypeSnapshot
    from usdt.engine.compiler.value_names import ValueNames

__all__ = (
    "WORD",
    "ArrayColumn",
    "BufferColumn",
    "BytesColumn",
    "Column",
    "CommColumn",
    "ConstColumn",
    "FloatColumn",
    "IntColumn",
    "IntFormat",
    "StackColumn",
    "StackKind",
    "StringColumn",
    "StructColumn",
    "StructListColumn",
    "SymbolColumn",
    "UnavailableColumn",
    "padded",
    "prefixed_code",
)

WORD = 8  # bytes; every value is padded to a multiple of it

StackKind = Literal["ustack", "kstack"]  # of the process, of the kernel


class IntFormat(enum.Enum):
    """How an integer is shown; the values are the words of recordings."""

    DECIMAL = "integer"
    BOOL = "bool"
    HEX = "hex"


def padded(size: int) -> int:
    """Return ``size`` rounded up to whole words."""
    return -(-size // WORD) * WORD


def prefixed_code(size: int) -> str:
    """Return the :mod:`struct` code of a length prefix and ``size`` bytes, padded."""
    return f"q{size}s{-size % WORD}x"


@frozen
class IntColumn:
    """An integer of 1, 2, 4 or 8 bytes, extended to eight.

    Attributes:
        type: of the integer before it is extended.
        format: how it is shown, if its value has no name.
        names: of its values, if they have any.
        cast: its C type, if that is known.
    """

    type: ValueType
    format: IntFormat = IntFormat.DECIMAL
    names: ValueNames | None = None
    cast: str = ""

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
    """An address that is shown as a symbol: of the process (``ustack``) or of the kernel."""

    type: ValueType
    kind: StackKind

    size = WORD
    prefix_size = 0
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        return "q" if self.type.kind is ValueClass.SIGNED else "Q"


@frozen
class FloatColumn:
    """A floating-point number of ``width`` bytes, 4 or 8; ``cast``: as of an integer."""

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
    """An aggregate that was passed by value: ``length`` bytes; ``cast``: as of an integer."""

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


@frozen
class StringColumn:
    """A string that ends with a NUL.

    Attributes:
        size: the most bytes that are kept, with the NUL.
        kernel: whether types of the kernel led to its address, which may still be a process's.
    """

    size: int
    kernel: bool = False

    prefix_size = WORD
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        return prefixed_code(self.size)


@frozen
class BufferColumn:
    """Bytes that are shown as text; the prefix counts them, ``size`` is the most that are kept."""

    size: int

    prefix_size = WORD
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        return prefixed_code(self.size)


@frozen
class ArrayColumn:
    """Integers in a row.

    Attributes:
        size: the most bytes that are kept; the prefix says how many count.
        element_code: an element in the format language of :mod:`struct`.
    """

    size: int
    element_code: str

    prefix_size = WORD
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        return prefixed_code(self.size)


@frozen
class StructColumn:
    """A structure: its address, and as many of its bytes as are kept.

    Attributes:
        shape: its type.
        capacity: bytes that are kept.
        by_pointer: whether a pointer to it was given, which is shown with it.
        kernel: whether types of the kernel led to it.
    """

    shape: TypeSnapshot
    capacity: int
    by_pointer: bool = False
    kernel: bool = False

    prefix_size = WORD
    stored = True

    @property
    def size(self) -> int:
        """See the module."""
        return WORD + self.capacity

    @property
    def struct_code(self) -> str:
        """See the module."""
        return prefixed_code(self.size)


@frozen
class StructListColumn:
    """Values of one type in a row, behind their address.

    Attributes:
        shape: the type of an array of as many as are kept; the prefix says how many bytes count.
        capacity: bytes that are kept.
    """

    shape: TypeSnapshot
    capacity: int

    prefix_size = WORD
    stored = True

    @property
    def size(self) -> int:
        """See the module."""
        return WORD + self.capacity

    @property
    def struct_code(self) -> str:
        """See the module."""
        return prefixed_code(self.size)


@frozen
class StackColumn:
    """The addresses of a stack, innermost first; ``size`` is a multiple of eight bytes."""

    kind: StackKind
    size: int

    prefix_size = WORD
    stored = True

    @property
    def struct_code(self) -> str:
        """See the module."""
        return prefixed_code(self.size)


@frozen
class CommColumn:
    """The name of the thread, which every record has in its header."""

    size = 0
    prefix_size = 0
    stored = False
    struct_code = ""


@frozen
class ConstColumn:
    """A text that is the same at every hit."""

    text: str

    size = 0
    prefix_size = 0
    stored = False
    struct_code = ""


@frozen
class UnavailableColumn:
    """A value that no program can read here; ``reason`` is shown."""

    reason: str

    size = 0
    prefix_size = 0
    stored = False
    struct_code = ""


Column = (
    IntColumn
    | SymbolColumn
    | FloatColumn
    | BytesColumn
    | StringColumn
    | BufferColumn
    | ArrayColumn
    | StructColumn
    | StructListColumn
    | StackColumn
    | CommColumn
    | ConstColumn
    | UnavailableColumn
)
