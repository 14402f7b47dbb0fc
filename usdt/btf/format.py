"""The format of BTF, ``include/uapi/linux/btf.h``: header, kinds, sizes of records.

A record is three words (name, info, size or type) and more data that depends on its kind. Since
2026 BTF may have a layout section with the amount of data for each kind, so that readers can skip
kinds they do not know. The number of items then has 24 bits and the kind 7; older files read the
same way.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING

from usdt.base.errors import BtfError
from usdt.base.frozen import Numbers, frozen

if TYPE_CHECKING:
    import mmap

__all__ = (
    "MAGIC",
    "MAX_NESTING",
    "RECORD_SIZES",
    "Encoding",
    "Header",
    "Kind",
    "Linkage",
    "kind_of",
    "nesting_error",
    "parse_header",
)

MAGIC = 0xEB9F
_VERSION = 1
_MIN_HEADER = 24
_LAYOUT_HEADER = 32
_LAYOUT = struct.Struct("BBH")  # info_sz, elem_sz, flags (not needed to skip records)
_KIND_NUMBERS = 128


class Kind(Numbers):
    """``BTF_KIND_*``."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19


class Encoding(enum.IntFlag):
    """``BTF_INT_*``."""

    SIGNED = 1
    CHAR = 2
    BOOL = 4


class Linkage(Numbers):
    """``enum btf_func_linkage``; variables use the same numbers."""

    STATIC = 0
    GLOBAL = 1
    EXTERN = 2


#: Kind → bytes after the first 12 of a record: once, and per item.
RECORD_SIZES: dict[int, tuple[int, int]] = {
    Kind.INT: (4, 0),
    Kind.PTR: (0, 0),
    Kind.ARRAY: (12, 0),
    Kind.STRUCT: (0, 12),
    Kind.UNION: (0, 12),
    Kind.ENUM: (0, 8),
    Kind.FWD: (0, 0),
    Kind.TYPEDEF: (0, 0),
    Kind.VOLATILE: (0, 0),
    Kind.CONST: (0, 0),
    Kind.RESTRICT: (0, 0),
    Kind.FUNC: (0, 0),  # its "number of items" is the linkage
    Kind.FUNC_PROTO: (0, 8),
    Kind.VAR: (4, 0),
    Kind.DATASEC: (0, 12),
    Kind.FLOAT: (0, 0),
    Kind.DECL_TAG: (4, 0),
    Kind.TYPE_TAG: (0, 0),
    Kind.ENUM64: (0, 12),
}


#: Levels of types within types; Linux has a dozen.
MAX_NESTING = 64


def nesting_error(name: str, number: int) -> BtfError:
    """Return the error for types that contain one another, or are nested too deeply."""
    return BtfError(f"{name}: BTF type {number} is nested too deeply, or in itself")


def kind_of(info: int) -> int:
    """Return the kind in an info word; :class:`Kind` may not have it."""
    return info >> 24 & 0x7F


@frozen
class Header:
    """The sections of BTF, in bytes from the start of the data; all lie within the data.

    Attributes:
        order: "little" or "big".
        types: start and end of the records.
        strings: start and end of the strings.
        sizes: :data:`RECORD_SIZES`, and the sizes of other kinds from the layout section.
    """

    order: str
    types: tuple[int, int]
    strings: tuple[int, int]
    sizes: dict[int, tuple[int, int]]


def parse_header(data: bytes | mmap.mmap, name: str) -> Header:
    """Read and check the header of BTF.

    Raises:
        BtfError: the data is not BTF, or its sections lie outside it.
    """
    if len(data) < _MIN_HEADER:
        raise BtfError(
            f"{name}: BTF header of {_MIN_HEADER} bytes expected, found {len(data)} bytes"
        )
    order = _byte_order(data, name)
    mark = "<" if order == "little" else ">"
    _, version, _, size, *sections = struct.unpack_from(f"{mark}HBBIIIII", data)
    if version != _VERSION:
        raise BtfError(f"{name}: BTF version {version} is not supported, only version {_VERSION}")
    if not _MIN_HEADER <= size <= len(data):
        raise BtfError(f"{name}: BTF header of {size} bytes in {len(data)} bytes of data")
    types = _section(data, name, "types", size, tuple(sections[:2]))
    strings = _section(data, name, "strings", size, tuple(sections[2:]))
    if types[0] % 4 or (types[1] - types[0]) % 4:
        raise BtfError(f"{name}: BTF types are not whole words")
    if strings[1] > strings[0] and data[strings[1] - 1]:
        raise BtfError(f"{name}: the BTF strings do not end with a NUL")
    sizes = RECORD_SIZES
    if size >= _LAYOUT_HEADER:
        where = struct.unpack_from(f"{mark}II", data, _MIN_HEADER)
        start, end = _section(data, name, "layout", size, where)
        sizes = _sizes(data[start:end], mark)
    return Header(order, types, strings, sizes)


def _byte_order(data: bytes | mmap.mmap, name: str) -> str:
    for order, mark in (("little", "<"), ("big", ">")):
        if struct.unpack_from(mark + "H", data)[0] == MAGIC:
            return order
    raise BtfError(f"{name}: not BTF: it begins with {data[:4].hex(' ')}, not with 9f eb")


def _section(
    data: bytes | mmap.mmap, name: str, what: str, header: int, extent: tuple[int, ...]
) -> tuple[int, int]:
    offset, length = extent
    start = header + offset
    if start + length > len(data):
        raise BtfError(
            f"{name}: BTF {what} section of {length} bytes at {start} ends after the data,"
            f" which has {len(data)} bytes"
        )
    return start, start + length


def _sizes(layout: bytes, mark: str) -> dict[int, tuple[int, int]]:
    # Kinds that this toolkit knows have the sizes it knows.
    rows = list(struct.iter_unpack(mark + _LAYOUT.format, layout[: len(layout) & ~3]))
    given = {kind: (info, item) for kind, (info, item, _) in enumerate(rows[:_KIND_NUMBERS])}
    given.pop(Kind.VOID, None)
    return {**given, **RECORD_SIZES}
