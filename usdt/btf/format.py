"""The layout of BTF, ``include/uapi/linux/btf.h``: header, kinds, sizes of records.

A record is three words (name, info, size or type) and what its kind adds. Since 2026 the header may
have a section that says how much each kind adds, so that kinds from the future can be skipped; the
number of items has 24 bits and the kind 7, which reads older files alike.
"""

from __future__ import annotations

import enum
import struct

from usdt.base.errors import BtfError
from usdt.base.frozen import frozen

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
_LEAST_HEADER = 24
_LAYOUT_HEADER = 32
_LAYOUT = struct.Struct("BBH")  # info_sz, elem_sz, flags: the flags do not matter for skipping
_KIND_NUMBERS = 128


class Kind(enum.IntEnum):
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


class Linkage(enum.IntEnum):
    """``enum btf_func_linkage``; those of variables have the same numbers."""

    STATIC = 0
    GLOBAL = 1
    EXTERN = 2


#: Kind → bytes it adds to the 12 of every record: once, and per item.
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


#: Types within types; Linux has a dozen.
MAX_NESTING = 64


def nesting_error(name: str, number: int) -> BtfError:
    """The error for types that contain one another, or are nested absurdly."""
    return BtfError(f"{name}: BTF type {number} is nested too deeply, or in itself")


def kind_of(info: int) -> int:
    """The kind in an info word, perhaps one that :class:`Kind` does not have."""
    return info >> 24 & 0x7F


@frozen
class Header:
    """Where things are, in bytes from the start of the data, all checked to lie within it.

    Attributes:
        order: "little" or "big".
        types: start and end of the records.
        strings: start and end of the strings.
        sizes: :data:`RECORD_SIZES`, and what the file itself says about other kinds.
    """

    order: str
    types: tuple[int, int]
    strings: tuple[int, int]
    sizes: dict[int, tuple[int, int]]


def parse_header(data: bytes, name: str) -> Header:
    """Read and check the header of BTF.

    Raises:
        BtfError: it is no BTF, or its sections do not fit.
    """
    if len(data) < _LEAST_HEADER:
        raise BtfError(f"{name}: BTF has a header of {_LEAST_HEADER} bytes, found {len(data)}")
    order = _byte_order(data, name)
    mark = "<" if order == "little" else ">"
    _, version, _, size, *sections = struct.unpack_from(f"{mark}HBBIIIII", data)
    if version != _VERSION:
        raise BtfError(f"{name}: BTF version {version}, only version {_VERSION} is known")
    if not _LEAST_HEADER <= size <= len(data):
        raise BtfError(f"{name}: BTF header of {size} bytes in {len(data)} bytes of data")
    types = _section(data, name, "types", size, tuple(sections[:2]))
    strings = _section(data, name, "strings", size, tuple(sections[2:]))
    if types[0] % 4 or (types[1] - types[0]) % 4:
        raise BtfError(f"{name}: BTF types are not made of whole words")
    if strings[1] > strings[0] and data[strings[1] - 1]:
        raise BtfError(f"{name}: the strings of BTF do not end with a NUL")
    sizes = RECORD_SIZES
    if size >= _LAYOUT_HEADER:
        where = struct.unpack_from(f"{mark}II", data, _LEAST_HEADER)
        start, end = _section(data, name, "layout", size, where)
        sizes = _sizes(data[start:end], mark)
    return Header(order, types, strings, sizes)


def _byte_order(data: bytes, name: str) -> str:
    for order, mark in (("little", "<"), ("big", ">")):
        if struct.unpack_from(mark + "H", data)[0] == MAGIC:
            return order
    raise BtfError(f"{name}: not BTF, it begins with {data[:4].hex(' ')} and not with 9f eb")


def _section(
    data: bytes, name: str, what: str, header: int, place: tuple[int, ...]
) -> tuple[int, int]:
    offset, length = place
    start = header + offset
    if start + length > len(data):
        raise BtfError(
            f"{name}: BTF {what} of {length} bytes at {start} end behind the {len(data)} bytes"
            " there are"
        )
    return start, start + length


def _sizes(layout: bytes, mark: str) -> dict[int, tuple[int, int]]:
    # What this toolkit knows about a kind it reads by its own knowledge.
    rows = list(struct.iter_unpack(mark + _LAYOUT.format, layout[: len(layout) & ~3]))
    told = {kind: (info, item) for kind, (info, item, _) in enumerate(rows[:_KIND_NUMBERS])}
    told.pop(Kind.VOID, None)
    return {**told, **RECORD_SIZES}
