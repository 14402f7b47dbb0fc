"""Messages in the wire format of Protocol Buffers: fields are bytes, a message is their join.

    b"".join((text(1, "name"), unsigned(2, 5), message(3, *inner)))

Fields with their default value are written as well; a writer leaves them out if it wants to.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "delimited",
    "double",
    "length_delimited",
    "message",
    "packed",
    "packed_zigzag",
    "signed",
    "text",
    "unsigned",
    "varint",
    "zigzag",
)

_VARINT, _FIXED64, _LENGTH = 0, 1, 2  # wire types
_ALL = (1 << 64) - 1


def varint(number: int) -> bytes:
    """Return an integer from 0 to 2^64 - 1: seven bits a byte, the lowest first."""
    if number < 0x80:
        return number.to_bytes(1)  # raises OverflowError for negative numbers
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def unsigned(field: int, number: int) -> bytes:
    """Return a field of an unsigned integer, a bool or an enum."""
    return _tag(field, _VARINT) + varint(number)


def signed(field: int, number: int) -> bytes:
    """Return a field of the types int32 and int64."""
    return _tag(field, _VARINT) + varint(number & _ALL)


def zigzag(field: int, number: int) -> bytes:
    """Return a field of the types sint32 and sint64."""
    return _tag(field, _VARINT) + varint(_zigzag(number))


def double(field: int, number: float) -> bytes:
    """Return a field of the type double."""
    return _tag(field, _FIXED64) + struct.pack("<d", number)


def length_delimited(field: int, data: bytes) -> bytes:
    """Return a field of bytes, or of a message in its bytes."""
    return _tag(field, _LENGTH) + delimited(data)


def message(field: int, *parts: bytes) -> bytes:
    """Return a field of a message, from the fields of that."""
    return length_delimited(field, b"".join(parts))


def text(field: int, value: str) -> bytes:
    """Return a field of a string; what is not Unicode (lone surrogates) becomes a question mark."""
    return length_delimited(field, value.encode("utf-8", "replace"))


def packed(field: int, numbers: Iterable[int]) -> bytes:
    """Return a packed repeated field of integers; negative ones are of int32 or int64."""
    return length_delimited(field, b"".join(varint(number & _ALL) for number in numbers))


def packed_zigzag(field: int, numbers: Iterable[int]) -> bytes:
    """Return a packed repeated field of the types sint32 and sint64."""
    return length_delimited(field, b"".join(varint(_zigzag(number)) for number in numbers))


def delimited(data: bytes) -> bytes:
    """Return bytes after their length, as messages follow one another in a stream."""
    return varint(len(data)) + data


def _tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1
