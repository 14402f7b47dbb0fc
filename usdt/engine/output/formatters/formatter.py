"""The protocol of formatters, and helpers that they share."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol

from usdt.base.frozen import frozen
from usdt.engine.compiler.record.length_prefix import USERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.cgroups.labels import CgroupName
    from usdt.engine.compiler.record.columns import (
        AnyStack,
        ArrayColumn,
        BufferColumn,
        IntColumn,
        StringColumn,
        StructColumn,
        StructListColumn,
        SymbolKind,
    )
    from usdt.engine.compiler.record.layout import RecordField, RecordLayout
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.output.stacks import StackResolver

__all__ = (
    "FieldSource",
    "Formatter",
    "constant",
    "decode_text",
    "escape",
    "is_cut",
    "numbers",
    "piece",
    "text_capacity",
)


_CHARACTERS = 4096  # that are kept as they are shown


@frozen
class FieldSource:
    """A field of a record, and the source of the expression that formats it."""

    field: RecordField
    source: str


class Formatter(Protocol):
    """A formatter of one kind of output; all methods but the first three return source.

    Attributes:
        names: the values of the names in the source.
        return_names: the names that differ for records of returns.
        stacks: resolves stacks and addresses.
    """

    stacks: StackResolver
    names: dict[str, Any]
    return_names: dict[str, Any]

    def begin(self, layout: RecordLayout) -> None:
        """Start a layout: the following calls are for values of its records."""

    def half(self) -> None:
        """Start the values of a span's end: the following calls are for them."""

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> Any:
        """Return the formatted context of a record; computed once per distinct context."""

    def as_return(self, context: Any) -> Any:
        """Return a context changed to that of a function's return."""

    def record(self, values: Sequence[FieldSource]) -> str:
        """Return the expression of a complete record."""

    def integer(self, value: str) -> str:
        """Format an integer."""

    def hexadecimal(self, value: str) -> str:
        """Format an unsigned integer in hexadecimal."""

    def low_part(self, key: str, value: str, column: IntColumn) -> str:
        """Mark a formatted integer that is only the low part of a larger one."""

    def floating(self, value: str) -> str:
        """Format a float."""

    def raw_bytes(self, value: str) -> str:
        """Format the bytes of a structure or union that was passed by value."""

    def text(self, value: str, length: str, key: str, column: StringColumn | BufferColumn) -> str:
        """Format a string or a buffer; ``length`` is a length prefix."""

    def socket_address(self, value: str, length: str, order: str) -> str:
        """Format a ``struct sockaddr``; ``length`` is a length prefix."""

    def struct(
        self, value: str, length: str, key: str, column: StructColumn | StructListColumn, order: str
    ) -> str:
        """Format a structure or list of values with its address; ``length``: length prefix."""

    def boolean(self, value: str) -> str:
        """Format a number as true or false."""

    def array(self, value: str, length: str, key: str, column: ArrayColumn, order: str) -> str:
        """Format integers of a byte order, as in :mod:`struct`; ``length`` is a length prefix."""

    def named(self, key: str, value: str, names: ValueNames) -> str:
        """Format an integer whose values have names; the value is None if it could not be read."""

    def comm(self) -> str:
        """Format the thread's name."""

    def constant(self, text: str) -> str:
        """Format a text that is the same at every hit."""

    def unreadable(self, reason: str) -> str:
        """Format a value that could not be read, with the reason."""

    def stack(self, column: AnyStack, value: str, length: str) -> str:
        """Format a stack; ``length`` is its bytes, or a negative errno."""

    def symbol(self, kind: SymbolKind, value: str) -> str:
        """Format the symbol at an address."""

    def cgroup(self, kind: CgroupName, value: str) -> str:
        """Format a name of the cgroup with an ID."""


def escape(text: str) -> str:
    r"""Escape text so that it is safe for a terminal.

    Control characters and bytes that are not UTF-8 become ``\xNN``. Other characters that are not
    printable, or that change the direction of writing, become ``\uNNNN``.
    """
    if text.isprintable():
        return text
    return "".join(map(_ESCAPED.__getitem__, text))


class _Escaped(dict[str, str]):
    # Characters as escape() shows them. Some are kept, which is faster than to ask each again.
    def __missing__(self, character: str) -> str:
        if len(self) >= _CHARACTERS:
            self.clear()
        shown = character if character.isprintable() else _escape_one(character)
        self[character] = shown
        return shown


def _escape_one(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{number - 0xDC00:02x}"
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named:
        return named
    if number < 128:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


_ESCAPED = _Escaped()


def piece(text: str) -> str:
    """Escape literal text for an f-string that is delimited by three apostrophes."""
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("{", "{{").replace("}", "}}")


def constant(names: dict[str, Any], value: Any) -> str:
    """Return the name of a constant in compiled source; each distinct constant is kept once."""
    for name, known in names.items():
        if known == value:
            return name
    name = f"constant{len(names)}"
    names[name] = value
    return name


def decode_text(value: bytes, length: int, capacity: int) -> str:
    """Decode a recorded string of up to ``capacity`` bytes and its NUL; 0: a buffer."""
    length &= USERS - 1
    return value[: length - 1 if capacity else length].decode("utf-8", "surrogateescape")


def text_capacity(column: StringColumn | BufferColumn) -> int:
    """Return the capacity of a string, for :func:`decode_text`; 0 for a buffer."""
    from usdt.engine.compiler.record.columns import StringColumn  # noqa: PLC0415

    return column.size if isinstance(column, StringColumn) else 0


def is_cut(length: int, size: int, capacity: int) -> bool:
    """Return whether a recorded text was cut.

    Args:
        length: its length prefix.
        size: bytes of its column.
        capacity: as in :func:`decode_text`.
    """
    length &= USERS - 1
    return length == capacity if capacity else length > size


def numbers(value: bytes, length: int, code: str) -> list[int]:
    """Return the elements of a recorded array of the :mod:`struct` format ``code``."""
    size = struct.calcsize(code)
    return [item for (item,) in struct.iter_unpack(code, value[: length // size * size])]
