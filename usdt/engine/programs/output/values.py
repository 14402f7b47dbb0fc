"""Values of programs from the bytes of records and maps, and as text."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Any, Protocol

from usdt.engine.programs.members import members_of
from usdt.engine.programs.types import (
    AggregateType,
    ArrayType,
    BufferType,
    IntegerType,
    NoType,
    PointerType,
    ShownAs,
    StackType,
    StringType,
    StructType,
    TupleType,
    Type,
    bytes_of,
    size_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from usdt.engine.programs.members import Member

__all__ = ("Symbols", "decode", "escaped", "reader_of", "shown")

_CODES = {(1, True): "b", (2, True): "h", (4, True): "i", (8, True): "q"}


class Symbols(Protocol):
    """What looks up names, when values are shown."""

    def kernel(self, address: int) -> str:
        """Return the name of an address of the kernel."""

    def user(self, address: int, pid: int) -> str:
        """Return the name of an address of a process."""

    def stack(self, type_: StackType, number: int, pid: int) -> Sequence[str]:
        """Return the frames of a stack."""

    def user_name(self, number: int) -> str:
        """Return the name of a user."""

    def cgroup_path(self, number: int) -> str:
        """Return the path of a cgroup."""

    def system_call(self, number: int) -> str:
        """Return the name of a system call."""

    def allocation_flags(self, value: int) -> str:
        """Return the names of flags of allocations (GFP)."""

    def time(self, nanoseconds: int, form: str) -> str:
        """Return a time of CLOCK_MONOTONIC in the form of strftime()."""


def decode(type_: Type, data: bytes, offset: int = 0) -> Any:
    """Return a value of a type: an int, a str, bytes, or a tuple.

    A stack or a symbol of a process is (number, process); a structure is a tuple of its members.
    """
    match type_:
        case IntegerType(size=size, signed=signed):
            return _integer(data, offset, size, signed=signed)
        case PointerType():
            return struct.unpack_from("=Q", data, offset)[0]
        case StringType(size=size, trailer=trailer):
            text = data[offset : offset + size].split(b"\0", 1)[0]
            end = trailer if len(text) >= size - 1 else ""
            return text.decode("utf-8", "backslashreplace") + end
        case BufferType(size=size):
            length = struct.unpack_from("=Q", data, offset)[0]
            return data[offset + 8 : offset + 8 + min(length, size)]
        case TupleType(elements=elements):
            parts = enumerate(elements)
            return tuple(decode(one, data, offset + type_.offset(n)) for n, one in parts)
        case ArrayType(element=element, count=count):
            return _array(element, count, data, offset)
        case StructType():
            return _structure(type_, data, offset)
        case StackType():
            form = "=QQ" if size_of(type_) > struct.calcsize("=iI") else "=iI"
            return struct.unpack_from(form, data, offset)
        case AggregateType() | NoType():
            return None


def reader_of(type_: Type, offset: int) -> Callable[[bytes], Any]:
    """Return the function that decodes a value at an offset, as :func:`decode` does."""
    if isinstance(type_, IntegerType):
        # Its bytes are the first ones of eight, or the last ones.
        code = _CODES[type_.size, True]
        unpack = struct.Struct(f"={code if type_.signed else code.upper()}").unpack_from
        at = offset + (8 - type_.size if sys.byteorder == "big" else 0)
        return lambda data: unpack(data, at)[0]
    if isinstance(type_, StringType):
        return _reader_of_text(type_, offset)
    return lambda data: decode(type_, data, offset)


def _reader_of_text(type_: StringType, offset: int) -> Callable[[bytes], str]:
    end, whole, trailer = offset + type_.size, type_.size - 1, type_.trailer
    if not trailer:
        return lambda data: data[offset:end].split(b"\0", 1)[0].decode("utf-8", "backslashreplace")

    def read(data: bytes) -> str:
        text = data[offset:end].split(b"\0", 1)[0]
        shown = text.decode("utf-8", "backslashreplace")
        return shown + trailer if len(text) >= whole else shown

    return read


def _integer(data: bytes, offset: int, size: int, *, signed: bool) -> int:
    # Eight bytes, of which the value has ``size``.
    value = int(struct.unpack_from("=Q", data, offset)[0])
    bits = size * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _array(element: Type, count: int, data: bytes, offset: int) -> tuple[Any, ...]:
    if isinstance(element, IntegerType):
        code = _CODES[element.size, True]
        code = code if element.signed else code.upper()
        return struct.unpack_from(f"={count}{code}", data, offset)
    size = bytes_of(element)
    return tuple(_packed(element, data, offset + n * size) for n in range(count))


def _packed(type_: Type, data: bytes, offset: int) -> Any:
    # A value as it is in traced memory, where a number has the bytes of its type.
    if isinstance(type_, IntegerType):
        return _array(type_, 1, data, offset)[0]
    return decode(type_, data, offset)


def _structure(type_: StructType, data: bytes, offset: int) -> tuple[Any, ...]:
    return tuple(_member(one, data, offset) for one in members_of(type_))


def _member(member: Member, data: bytes, offset: int) -> Any:
    at = offset + member.bit // 8
    if not member.width:
        return _packed(member.type, data, at)
    first = member.bit % 8
    size = -(-(first + member.width) // 8)
    bits = int.from_bytes(data[at : at + size], sys.byteorder)
    if sys.byteorder == "big":
        first = 8 * size - first - member.width
    bits = bits >> first & (1 << member.width) - 1
    signed = isinstance(member.type, IntegerType) and member.type.signed
    return bits - (1 << member.width) if signed and bits >> (member.width - 1) else bits


def shown(type_: Type, value: Any, symbols: Symbols) -> str:
    """Return a value as text, as print() shows it."""
    match type_:
        case IntegerType():
            return _shown_integer(type_, value, symbols)
        case PointerType():
            return hex(value)
        case StringType():
            return str(value)
        case BufferType(address=True):
            return _address(value)
        case BufferType(hardware=True):
            return ":".join(f"{byte:02X}" for byte in value)
        case BufferType():
            return escaped(value)
        case StructType():
            found = zip(members_of(type_), value, strict=True)
            rows = (f".{one.name} = {shown(one.type, part, symbols)}" for one, part in found)
            return f"{{ {', '.join(rows)} }}"
        case TupleType(elements=elements, names=names):
            parts = [shown(one, part, symbols) for one, part in zip(elements, value, strict=True)]
            if names:
                named = (f".{name} = {part}" for name, part in zip(names, parts, strict=True))
                return f"{{ {', '.join(named)} }}"
            return f"({', '.join(parts)})"
        case ArrayType(element=element):
            return f"[{','.join(shown(element, one, symbols) for one in value)}]"
        case StackType(frames=frames):
            number, pid = value
            if not frames:
                return symbols.user(number, pid)
            lines = symbols.stack(type_, number, pid)
            indent = "" if type_.mode == "raw" else " " * 8
            return "".join(f"\n{indent}{line}" for line in lines) + "\n"
        case NoType():  # a member that is no integer, such as a floating-point number
            return "null"
        case AggregateType():
            return ""


def _shown_integer(type_: IntegerType, value: int, symbols: Symbols) -> str:
    match type_.shown:
        case ShownAs.BOOLEAN:
            return "true" if value else "false"
        case ShownAs.KERNEL_SYMBOL:
            return symbols.kernel(value)
        case ShownAs.USER_NAME:
            return symbols.user_name(value)
        case ShownAs.CGROUP_PATH:
            return symbols.cgroup_path(value)
        case ShownAs.ERROR:
            return _error(value)
        case ShownAs.SIGNAL:
            return _signal(value)
        case ShownAs.SYSTEM_CALL:
            return symbols.system_call(value)
        case ShownAs.TIME:
            return symbols.time(value, type_.format)
    name = None if type_.names is None else type_.names.find(value)
    return name or str(value)


def _error(number: int) -> str:
    import os  # noqa: PLC0415 - few programs show errors

    number &= 0xFFFF_FFFF  # an int, of which the kernel's are negative
    return os.strerror(min(number, (1 << 32) - number))


def _signal(number: int) -> str:
    import signal  # noqa: PLC0415 - few programs show signals

    try:
        return signal.strsignal(number) or "N/A"
    except (ValueError, OverflowError):
        return "N/A"


def _address(data: bytes) -> str:
    import ipaddress  # noqa: PLC0415 - few programs show addresses

    return str(ipaddress.ip_address(data)) if len(data) in (4, 16) else escaped(data)


def escaped(data: bytes) -> str:
    r"""Return bytes as text: those that are not printable as ``\x0a``."""
    return "".join(chr(one) if 32 <= one < 127 else f"\\x{one:02x}" for one in data)
