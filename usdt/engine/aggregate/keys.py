"""Layout of a map's key: where each part is stored, and how it is read back.

    0    u32   row: the probe and its request
    4    u32   interval
    8    …     parts, each padded to eight bytes; unused bytes are 0

A buffer is preceded by a u64: its number of bytes. An array is its elements, and an integer of 16
bytes is its bytes. A stack is its ID in the map of stacks of its greatest size (u32) and the
process ID (u32); one that the program has walked is its hash, which is its key in the map of such
stacks (u64), and the process ID (u64). An address to be shown as a symbol is followed by the
process ID (u64), and so is the hash of a Python stack, or the negative reason why it is none (s64).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, assert_never

from usdt.arch.locations import ValueClass, ValueType
from usdt.base.frozen import frozen
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
    StackColumn,
    StackCopyColumn,
    StringColumn,
    StructColumn,
    StructListColumn,
    SymbolColumn,
    UnavailableColumn,
    padded,
    stack_column,
)
from usdt.engine.language.tree import StackKind, stack_of
from usdt.engine.output.formatters.structures import StructValueFormatter
from usdt.engine.output.socket_addresses import socket_address, socket_address_text
from usdt.engine.output.truncated import TruncatedHex, TruncatedInt, TruncatedStr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.cgroups.labels import CgroupName
    from usdt.engine.compiler.outputs import Output
    from usdt.engine.compiler.record.columns import SymbolKind
    from usdt.engine.language.tree import Item

__all__ = (
    "COMM_SIZE",
    "GROUP_KEY",
    "HEADER",
    "NO_FRAMES",
    "Address",
    "CgroupId",
    "KeyField",
    "KeyLayout",
    "PythonStack",
    "Stack",
    "lay_out",
)

HEADER = struct.Struct("=II")
COMM_SIZE = 16
_WIDE = 16  # bytes of a stack that the program has walked, and of a Python stack
NO_FRAMES = (1 << 31) - 1  # stack ID of an unavailable stack


@frozen
class Stack:
    """A stack by its ID in the map of stacks of its column's size.

    Attributes:
        walked: whether the program has walked it by unwind tables.
    """

    column: StackColumn
    number: int
    pid: int
    walked: bool = False


@frozen
class PythonStack:
    """A Python stack by its hash in the map of stacks of its column's size.

    ``number`` is negative if there is no stack: see :mod:`usdt.cpython.stack_record`.
    """

    column: StackColumn
    number: int
    pid: int


@frozen
class Address:
    """An address to be shown as a symbol."""

    kind: SymbolKind
    address: int
    pid: int


@frozen
class CgroupId:
    """The ID of a cgroup, to be shown by a name."""

    kind: CgroupName
    number: int


@frozen
class KeyField:
    """One part of a key.

    Attributes:
        name: the item as written.
        column: type and format of the value.
        offset: offset in the key; None if the part is not stored.
        size: bytes reserved, without the length of a buffer.
    """

    name: str
    column: Column
    offset: int | None
    size: int

    @property
    def walked(self) -> bool:
        """Whether it is a stack that the program walks by unwind tables."""
        stack = isinstance(self.column, StackColumn) and self.column.kind is StackKind.USER
        return stack and self.size == _WIDE

    @property
    def is_decimal(self) -> bool:
        """Whether it is an integer that is shown as it is: decimal, whole and without a name."""
        column = self.column
        if not isinstance(column, IntColumn) or column.format is IntFormat.HEX:
            return False
        return not column.part_of and column.names is None

    @property
    def code(self) -> str:
        """The struct code of an integer."""
        signed = isinstance(self.column, IntColumn) and self.column.type.kind is ValueClass.SIGNED
        return "q" if signed else "Q"

    @property
    def capacity(self) -> int:
        """The size in the key, in bytes."""
        return padded(self.size) + (
            8 if isinstance(self.column, BufferColumn | SocketAddressColumn) else 0
        )

    def read(self, key: bytes) -> Any:
        """Return the value: int, float, str, a tuple of int, :class:`Stack` or :class:`Address`."""
        start = self.offset or 0
        data = key[start : start + self.capacity]
        column = self.column
        match column:
            case IntColumn():
                return _number(column, data)
            case ConstColumn():
                return column.text
            case StringColumn() | CommColumn():
                return self._string(data)
            case BufferColumn():
                length = min(int(struct.unpack_from("=Q", data)[0]), self.size)
                return data[8 : 8 + length].decode("utf-8", "surrogateescape")
            case SocketAddressColumn():
                length = min(int(struct.unpack_from("=Q", data)[0]), self.size)
                return socket_address_text(socket_address(data[8 : 8 + length]))
            case BytesColumn():
                return data[: self.size].hex()
            case StackColumn(kind=StackKind.PYTHON):
                number, pid = struct.unpack("=qQ", data)
                return PythonStack(column, number, pid)
            case StackColumn():
                number, pid = struct.unpack("=QQ" if self.walked else "=II", data)
                return Stack(column, number, pid, self.walked)
            case CgroupColumn():
                return CgroupId(column.kind, struct.unpack("=Q", data)[0])
            case SymbolColumn():
                address, pid = struct.unpack("=QQ", data)
                return Address(column.kind, address, pid)
            case FloatColumn():
                return struct.unpack_from("=f" if column.width == 4 else "=d", data)[0]
            case ArrayColumn():
                code = column.element_code
                return struct.unpack(
                    f"={self.size // struct.calcsize(code)}{code}", data[: self.size]
                )
            case StructColumn():
                return StructValueFormatter(self.name, column, "=")(self.size, bytes(8) + data)
            case StackCopyColumn() | StructListColumn() | UnavailableColumn():
                raise TypeError(f"{self.name}: {type(column).__name__} in a key")
            case _:
                assert_never(column)

    def _string(self, data: bytes) -> str:
        raw = data[: self.size].split(b"\0", 1)[0]
        text = raw.decode("utf-8", "surrogateescape")
        cut = isinstance(self.column, StringColumn) and len(raw) == self.size - 1
        return TruncatedStr(text) if cut else text


def _number(column: IntColumn, data: bytes) -> Any:
    signed = column.type.kind is ValueClass.SIGNED
    number = int(struct.unpack("=q" if signed else "=Q", data)[0])
    if column.format is IntFormat.HEX:
        shown = hex(number & ((1 << 8 * column.type.size) - 1))
        return TruncatedHex(shown) if column.part_of else shown
    if column.part_of:
        return TruncatedInt(number)
    return number if column.names is None else column.names.number(number)


@frozen
class KeyLayout:
    """All parts of a key, in the order of the items."""

    fields: tuple[KeyField, ...]

    @property
    def size(self) -> int:
        """The size of the key in bytes."""
        return max([HEADER.size, *((field.offset or 0) + field.capacity for field in self.fields)])

    def read(self, key: bytes) -> tuple[Any, ...]:
        """Return the values of all parts."""
        return tuple(field.read(key) for field in self.fields)

    def reader(self) -> Callable[[bytes], tuple[Any, ...]]:
        """Return a function that does the same; for numbers alone it is C code."""
        offset, codes = HEADER.size, ""
        for field in self.fields:
            if not field.is_decimal or field.offset != offset:
                return self.read
            codes += field.code
            offset += struct.calcsize(field.code)
        return struct.Struct(f"={HEADER.size}x{codes}").unpack_from


#: The key of a value whose own key was evaluated at the start: the number that stands for it.
GROUP_KEY = KeyLayout((KeyField("", IntColumn(ValueType(ValueClass.UNSIGNED, 8)), HEADER.size, 8),))


def lay_out(items: Sequence[Item], outputs: Sequence[Output], *, walked: bool = False) -> KeyLayout:
    """Return the layout of the key of some items.

    Args:
        items: the items.
        outputs: the expressions, one for each item that is not a stack.
        walked: whether the program walks user stacks by unwind tables.
    """
    ahead = iter(outputs)
    offset = HEADER.size
    fields = []
    for item in items:
        stack = stack_of(item.expression)
        if stack is not None:
            column = stack_column(*stack)
            by_tables = walked and column.kind is StackKind.USER
            wide = by_tables or column.kind is StackKind.PYTHON
            field = KeyField(item.text, column, offset, _WIDE if wide else 8)
        else:
            field = _field(next(ahead), offset)
        fields.append(field)
        if field.offset is not None:
            offset += field.capacity
    return KeyLayout(tuple(fields))


def _field(output: Output, offset: int) -> KeyField:
    column = output.column
    match column:
        case UnavailableColumn() | ConstColumn():
            return KeyField(output.key, column, None, 0)
        case CommColumn():
            return KeyField(output.key, column, offset, COMM_SIZE)
        case BytesColumn():
            return KeyField(output.key, column, offset, column.length)
        case SymbolColumn():
            return KeyField(output.key, column, offset, 16)
        case StructColumn(capacity=size):  # an integer of 16 bytes; structures have no columns
            return KeyField(output.key, column, offset, size)
        case StructListColumn():  # by its address
            return KeyField(output.key, IntColumn(output.node.type), offset, 8)
    return KeyField(output.key, column, offset, column.size)
