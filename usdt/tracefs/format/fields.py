"""The fields of an event: names, C types and offsets; a record → values."""

from __future__ import annotations

import re
import struct
import sys
from typing import TYPE_CHECKING, Literal

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("EventFormat", "FormatError", "FormatField", "Value", "parse_format")

Value = int | str | bytes | list["Value"] | None
Kind = Literal["integer", "string", "array", "bytes"]
Location = Literal["here", "data_loc", "rel_loc"]

_FIELD = re.compile(
    r"\s*field(?P<special>\sspecial)?:(?P<declared>[^;]+);\s*offset:(?P<offset>\d{1,9});"
    r"\s*size:(?P<size>\d{1,9});(?:\s*signed:(?P<signed>\d);)?"
)
_DECLARED = re.compile(
    r"(?P<location>__data_loc|__rel_loc)?\s*(?P<type>.*?)\s*(?P<open>(?:\[\d*\])*)\s*"
    r"(?P<name>[A-Za-z_]\w*)\s*(?P<dimensions>(?:\[[^\]]*\])*)\s*$",
    re.DOTALL,
)
_MAX_FIELDS = 4096  # the kernel's events have some hundred at most
_WORD = struct.calcsize("P")

#: C type → (bytes, signed). For types that are not listed, the size and ``signed`` of the file
#: are used.
TYPES: dict[str, tuple[int, bool]] = {
    **{f"u{8 * n}": (n, False) for n in (1, 2, 4, 8)},
    **{f"s{8 * n}": (n, True) for n in (1, 2, 4, 8)},
    **{f"__u{8 * n}": (n, False) for n in (1, 2, 4, 8)},
    **{f"__s{8 * n}": (n, True) for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}_t": (n, False) for n in (1, 2, 4, 8)},
    **{f"int{8 * n}_t": (n, True) for n in (1, 2, 4, 8)},
    **{f"x{8 * n}": (n, False) for n in (1, 2, 4, 8)},
    "char": (1, True),
    "signed char": (1, True),
    "unsigned char": (1, False),
    "bool": (1, False),
    "short": (2, True),
    "unsigned short": (2, False),
    "umode_t": (2, False),
    "int": (4, True),
    "unsigned": (4, False),
    "unsigned int": (4, False),
    "uint": (4, False),
    "pid_t": (4, True),
    "clockid_t": (4, True),
    "key_t": (4, True),
    "mqd_t": (4, True),
    "timer_t": (4, True),
    "key_serial_t": (4, True),
    "qid_t": (4, False),
    "uid_t": (4, False),
    "gid_t": (4, False),
    "rwf_t": (4, True),
    "long": (_WORD, True),
    "unsigned long": (_WORD, False),
    "size_t": (_WORD, False),
    "ssize_t": (_WORD, True),
    "off_t": (_WORD, True),
    "long long": (8, True),
    "unsigned long long": (8, False),
    "loff_t": (8, True),
}


class FormatError(TracingError):
    """A malformed format file."""


@frozen
class FormatField:
    """A field of an event.

    Attributes:
        name: the kernel's name.
        type: its C type without array brackets, ``const char *``.
        offset: in the record, bytes.
        size: bytes at that offset.
        kind: how the bytes are decoded.
        location: whether the value is there, or where the four bytes there point.
        element: bytes of the integer, or of an element of an array.
        signed: whether the integer or the elements are signed.
        count: number of elements of an array of fixed length; else 0.
    """

    name: str
    type: str
    offset: int
    size: int
    kind: Kind
    location: Location
    element: int
    signed: bool
    count: int = 0

    @property
    def is_common(self) -> bool:
        """True for a field that every event has."""
        return self.name.startswith("common_")

    @property
    def declaration(self) -> str:
        """The declaration in C, ``char comm[16]``."""
        brackets = f"[{self.count or ''}]" if self.kind in ("string", "array") else ""
        space = "" if self.type.endswith("*") else " "
        return f"{self.type}{space}{self.name}{brackets}"


@frozen
class EventFormat:
    """A parsed format file.

    Attributes:
        name: of the event.
        number: the event's ID, ``common_type`` in its records.
        fields: all fields, common ones first.
        print_fmt: how the kernel prints a record: a C format string and its arguments.
    """

    name: str
    number: int
    fields: tuple[FormatField, ...]
    print_fmt: str

    @property
    def own(self) -> tuple[FormatField, ...]:
        """The fields of the event itself, without the common ones."""
        return tuple(field for field in self.fields if not field.is_common)

    def decode(self, record: bytes | memoryview) -> dict[str, Value]:
        """Decode a record; return its values by name.

        Strings end at their NUL; bytes that are not UTF-8 become surrogates. A value that is not
        within the record is None: a string that the kernel could not read, or a damaged record.
        """
        data = memoryview(record)
        return {field.name: read(data, field) for field in self.fields}


def parse_format(text: str) -> EventFormat:
    """Parse a format file.

    Raises:
        FormatError: it is malformed.
    """
    name = re.search(r"^name:\s*(\S+)\s*$", text, re.MULTILINE)
    number = re.search(r"^ID:\s*(\d{1,9})\s*$", text, re.MULTILINE)
    shown = re.search(r"^print fmt:\s*(.*)", text, re.MULTILINE | re.DOTALL)
    if name is None or number is None:
        raise FormatError(f"not a format file: no name and ID in {text[:60]!r}")
    fields = []
    for line in text.partition("print fmt:")[0].splitlines():
        if not line.strip().startswith("field"):
            continue
        match = _FIELD.match(line)
        if match is None:
            raise FormatError(f"event {printable(name[1])}: malformed field: {line.strip()!r}")
        fields.append(_field(name[1], match))
        if len(fields) > _MAX_FIELDS:
            raise FormatError(f"event {printable(name[1])}: more than {_MAX_FIELDS} fields")
    return EventFormat(name[1], int(number[1]), tuple(fields), shown[1].strip() if shown else "")


def _field(event: str, match: re.Match[str]) -> FormatField:
    declared = _DECLARED.match(match["declared"].strip())
    if declared is None:
        raise FormatError(f"event {printable(event)}: malformed field: {match['declared']!r}")
    offset, size = int(match["offset"]), int(match["size"])
    signed = match["signed"] == "1"
    kind_name = " ".join(declared["type"].split())
    location: Location = "here"
    if declared["location"]:
        location = "data_loc" if declared["location"] == "__data_loc" else "rel_loc"
    base = TYPES.get(kind_name.removeprefix("const ").removeprefix("volatile "))
    brackets = declared["open"] + declared["dimensions"]
    common = (declared["name"], kind_name, offset, size)
    if location != "here":
        element = base[0] if base else 1
        kind: Kind = "string" if kind_name in ("char", "const char") else "array"
        if brackets.count("[") > 1:  # of strings: one location after the other
            return FormatField(*common, "array", location, 0, signed=False, count=size // 4)
        return FormatField(*common, kind, location, element, base[1] if base else signed)
    if brackets:
        count = re.fullmatch(r"\[(\d{1,9})\]", brackets)
        element = base[0] if base else (size // int(count[1]) if count and int(count[1]) else 1)
        element = element if element and size % element == 0 else 1
        kind = "string" if kind_name in ("char", "const char") else "array"
        if element not in (1, 2, 4, 8):
            return FormatField(*common, "bytes", location, size, signed=False)
        return FormatField(*common, kind, location, element, signed, size // element)
    if size not in (1, 2, 4, 8):
        return FormatField(*common, "bytes", location, size, signed=False)
    # Every argument of a system call has the size of a long and is listed as unsigned: use its
    # type.
    if base and (base[0] < size or event.startswith("sys_enter_")):
        return FormatField(*common, "integer", location, base[0], base[1])
    return FormatField(*common, "integer", location, size, signed)


def read(data: memoryview, field: FormatField) -> Value:
    """Decode one field of a record; see :meth:`EventFormat.decode`."""
    here = bytes(data[field.offset : field.offset + field.size])
    if len(here) != field.size:
        return None
    if field.location == "here":
        return _READERS[field.kind](here, field)
    if field.element == 0:  # an array of strings, each with its location
        return [_away(data, field, here[at : at + 4], at) for at in range(0, field.size, 4)]
    return _away(data, field, here, 0)


def _away(data: memoryview, field: FormatField, where: bytes, at: int) -> Value:
    # u32: the length in the upper half; in the lower half the offset, from the beginning of the
    # record or from the end of this field.
    if len(where) != 4:
        return None
    word = int.from_bytes(where, sys.byteorder)
    start, length = word & 0xFFFF, word >> 16
    if field.location == "rel_loc":
        start += field.offset + at + 4
    found = bytes(data[start : start + length])
    if len(found) != length or not length:
        return None if field.kind == "string" or field.element == 0 else []
    return _text(found) if field.kind == "string" or field.element == 0 else _array(found, field)


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _integer(data: bytes, field: FormatField) -> int:
    number = int.from_bytes(data, sys.byteorder)
    bits = 8 * field.element
    number &= (1 << bits) - 1
    return number - (1 << bits) if field.signed and number >> (bits - 1) else number


def _array(data: bytes, field: FormatField) -> Value:
    size = field.element
    return [
        int.from_bytes(data[at : at + size], sys.byteorder, signed=field.signed)
        for at in range(0, len(data) - size + 1, size)
    ]


_READERS: dict[Kind, Callable[[bytes, FormatField], Value]] = {
    "integer": _integer,
    "string": lambda data, _: _text(data),
    "array": _array,
    "bytes": lambda data, _: data,
}
