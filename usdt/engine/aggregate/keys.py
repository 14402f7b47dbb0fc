"""The bytes of a map's key: where each part lies, and what it says when it is read back.

    0    u32   row: which probe, which request
    4    u32   interval
    8    …     parts, each padded to eight bytes; what is not written is 0

A buffer is preceded by a u64: the bytes that count. A stack is its number in the map of stacks
(u32) and the process (u32); an address to be shown as a symbol is followed by the process (u64).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from usdt.arch.locations import ValueClass
from usdt.base.frozen import frozen
from usdt.engine.aggregate.spec import is_stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.compiler.plan import Output
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.language.tree import Item

__all__ = (
    "COMM_SIZE",
    "HEADER",
    "NO_FRAMES",
    "Address",
    "KeyField",
    "KeyLayout",
    "Stack",
    "TruncatedStr",
    "lay_out",
)

HEADER = struct.Struct("=II")
COMM_SIZE = 16
NO_FRAMES = (1 << 31) - 1  # number of a stack that has none


@frozen
class Stack:
    """A stack by its number in the map of stacks; ``kind`` is ``ustack`` or ``kstack``."""

    kind: str
    number: int
    pid: int


@frozen
class Address:
    """An address to be shown as a symbol; ``kind`` is ``ustack`` or ``kstack``."""

    kind: str
    address: int
    pid: int


class TruncatedStr(str):
    """A string that may go on: as many bytes were kept as could be."""

    __slots__ = ()


@frozen
class KeyField:
    """One part of a key.

    Attributes:
        name: the item as written.
        form: as in :class:`usdt.engine.compiler.plan.Output`; or ``ustack``, ``kstack``.
        offset: in the key; -1 for what takes no room.
        size: bytes of room, less the length of a buffer.
        kind: how a number is read.
        width: bytes of the number itself.
        text: of func, what is always shown.
        names: of an integer's values, if they have some.
    """

    name: str
    form: str
    offset: int
    size: int
    kind: ValueClass = ValueClass.UNSIGNED
    width: int = 8
    text: str = ""
    names: ValueNames | None = None

    @property
    def room(self) -> int:
        """Bytes in the key."""
        return -(-self.size // 8) * 8 + (8 if self.form == "buffer" else 0)

    def read(self, key: bytes) -> Any:
        """The value: int, float, str, :class:`Stack` or :class:`Address`."""
        data = key[self.offset : self.offset + self.room]
        match self.form:
            case "func":
                return self.text
            case "string" | "comm":
                return self._string(data)
            case "buffer":
                length = min(int(struct.unpack_from("=Q", data)[0]), self.size)
                return data[8 : 8 + length].decode("utf-8", "surrogateescape")
            case "bytes":
                return data[: self.size].hex()
            case "ustack" | "kstack":
                number, pid = struct.unpack("=II", data)
                return Stack(self.form, number, pid)
            case "usym" | "ksym":
                address, pid = struct.unpack("=QQ", data)
                return Address("ustack" if self.form == "usym" else "kstack", address, pid)
        return self._number(data)

    def _string(self, data: bytes) -> str:
        raw = data[: self.size].split(b"\0", 1)[0]
        text = raw.decode("utf-8", "surrogateescape")
        return TruncatedStr(text) if self.form == "string" and len(raw) == self.size - 1 else text

    def _number(self, data: bytes) -> Any:
        if self.kind is ValueClass.FLOAT:
            return struct.unpack_from("=f" if self.width == 4 else "=d", data)[0]
        number = int(struct.unpack("=q" if self.kind is ValueClass.SIGNED else "=Q", data)[0])
        if self.form == "hex":
            return hex(number & ((1 << 8 * self.width) - 1))
        return number if self.names is None else self.names.number(number)


@frozen
class KeyLayout:
    """All parts of a key, in the order of the items."""

    fields: tuple[KeyField, ...]

    @property
    def size(self) -> int:
        """Bytes of the key."""
        return max([HEADER.size, *(field.offset + field.room for field in self.fields)])

    def read(self, key: bytes) -> tuple[Any, ...]:
        """The values of all parts."""
        return tuple(field.read(key) for field in self.fields)


def lay_out(items: Sequence[Item], outputs: Sequence[Output]) -> KeyLayout:
    """Where the parts lie of the key of some items; ``outputs`` are those of all but stacks."""
    ahead = iter(outputs)
    offset = HEADER.size
    fields = []
    for item in items:
        if is_stack(item):
            field = KeyField(item.text, item.text, offset, 8)
        else:
            field = _field(next(ahead), offset)
        fields.append(field)
        if field.offset >= 0:
            offset += field.room
    return KeyLayout(tuple(fields))


def _field(output: Output, offset: int) -> KeyField:
    kind = output.node.type
    match output.form:
        case "opaque":
            return KeyField(output.key, output.form, -1, 0)
        case "func":
            return KeyField(output.key, output.form, -1, 0, text=output.text)
        case "comm":
            return KeyField(output.key, output.form, offset, COMM_SIZE)
        case "string" | "buffer":
            return KeyField(output.key, output.form, offset, output.size)
        case "bytes":
            return KeyField(output.key, output.form, offset, kind.size)
        case "usym" | "ksym":
            return KeyField(output.key, output.form, offset, 16)
    return KeyField(output.key, output.form, offset, 8, kind.kind, kind.size, names=output.names)
