"""Code objects: bytes of a process → the name, the file and the lines of a function.

A program copies the start of three objects for each code object that it meets: its qualified name,
its file name and its line table. What does not fit, the caller may read from the process.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.cpython.location_table import line_of
from usdt.cpython.stack_record import CodeKey

if TYPE_CHECKING:
    from usdt.cpython.layouts import Layout

__all__ = (
    "COPY_SIZE",
    "FILENAME_AT",
    "FILENAME_SIZE",
    "QUALNAME_AT",
    "QUALNAME_SIZE",
    "READY",
    "TABLE_AT",
    "TABLE_SIZE",
    "CodeObject",
    "bytes_of",
    "copy_key",
    "decode_copy",
    "key_of_copy",
    "text_of",
    "wanted_size",
)

# A program's copy of a code object
READY = 0  # u64: 1 when the copy is complete
QUALNAME_AT, QUALNAME_SIZE = 8, 256
FILENAME_AT, FILENAME_SIZE = QUALNAME_AT + QUALNAME_SIZE, 384
TABLE_AT, TABLE_SIZE = FILENAME_AT + FILENAME_SIZE, 1400
COPY_SIZE = TABLE_AT + TABLE_SIZE
_MAX_TEXT = 4096  # characters of a name
_MAX_TABLE = 1 << 20  # bytes of a line table
_CODECS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


@frozen
class CodeObject:
    """What is known of a code object.

    Attributes:
        name: its qualified name; "" if it cannot be read.
        file: its file name; "" if it cannot be read.
        first_line: its first line.
        table: its line table, as far as it could be read.
    """

    name: str
    file: str
    first_line: int
    table: bytes

    def line(self, offset: int) -> int:
        """Return the line of an instruction; 0 if it has none or it is not known.

        Before its first instruction, a function is at its first line.
        """
        if offset < 0:
            return self.first_line
        return line_of(self.table, self.first_line, offset) or 0


def copy_key(pid: int, key: CodeKey) -> bytes:
    """Return the key of a program's copy of a code object."""
    return struct.pack("=IIQQ", pid, key.first_line, key.address, key.content)


def key_of_copy(data: bytes) -> tuple[int, CodeKey]:
    """Return the process and the code object of a key of :func:`copy_key`."""
    pid, first_line, address, content = struct.unpack("=IIQQ", data)
    return pid, CodeKey(address, content, first_line)


def decode_copy(copy: bytes, key: CodeKey, layout: Layout) -> CodeObject | None:
    """Return a code object from a program's copy; None if the copy has not all of it."""
    if len(copy) < COPY_SIZE or not int.from_bytes(copy[:8], "little"):
        return None
    name = text_of(copy[QUALNAME_AT:FILENAME_AT], layout)
    file = text_of(copy[FILENAME_AT:TABLE_AT], layout)
    table = bytes_of(copy[TABLE_AT:], layout)
    if name is None or file is None or table is None:
        return None
    return CodeObject(name, file, key.first_line, table)


def wanted_size(start: bytes, layout: Layout, *, text: bool) -> int:
    """Return the size of a string or bytes object, by its first bytes; 0 if it has none."""
    found = _string(start, layout) if text else _sized(start, layout)
    return 0 if found is None else found[0] + found[1]


def text_of(data: bytes, layout: Layout) -> str | None:
    """Return the characters of a string object; None if they are not all there."""
    found = _string(data, layout)
    if found is None:
        return None
    begin, size, codec = found
    if len(data) < begin + size:
        return None
    return data[begin : begin + size].decode(codec, "replace")


def bytes_of(data: bytes, layout: Layout) -> bytes | None:
    """Return the contents of a bytes object; None if they are not all there."""
    found = _sized(data, layout)
    if found is None or len(data) < found[0] + found[1]:
        return None
    return data[found[0] : found[0] + found[1]]


def _string(data: bytes, layout: Layout) -> tuple[int, int, str] | None:
    # Where the characters of a string begin, their bytes, and their codec.
    if len(data) < layout.string_state + 4 or len(data) < layout.string_length + 8:
        return None
    (length,) = struct.unpack_from("<q", data, layout.string_length)
    (state,) = struct.unpack_from("<I", data, layout.string_state)
    state >>= _interned_bits(state)
    kind, compact, ascii_only = state & 7, state >> 3 & 1, state >> 4 & 1
    if kind not in _CODECS or not compact or not 0 <= length <= _MAX_TEXT:
        return None
    begin = layout.ascii_data if ascii_only else layout.other_data
    return begin, length * kind, _CODECS[kind]


def _interned_bits(state: int) -> int:
    # The state of a string begins with a number from 0 to 3, whether it is interned: 2 bits, or 8
    # without a global lock, or 16 in early versions of 3.14 (Include/cpython/unicodeobject.h).
    # Behind it stands the kind, which is never 0.
    if state & 0xFF > 3:
        return 2
    return 8 if state & 0xFF00 else 16


def _sized(data: bytes, layout: Layout) -> tuple[int, int] | None:
    if len(data) < layout.bytes_size + 8:
        return None
    (size,) = struct.unpack_from("<q", data, layout.bytes_size)
    return (layout.bytes_data, size) if 0 <= size <= _MAX_TABLE else None
