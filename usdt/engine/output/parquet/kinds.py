"""Types of columns: of an item by its compiled type, of a JSON value by what it is."""

from __future__ import annotations

import enum
from typing import Any, assert_never

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
)

__all__ = (
    "FRAME_MEMBERS",
    "NUMBER_TEXTS",
    "Kind",
    "error_of",
    "kind_of_column",
    "kind_of_value",
    "united",
)

#: How JSON writes numbers that it has no tokens for.
NUMBER_TEXTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Kind(enum.Enum):
    """The type of a column."""

    INT32 = "int32"
    INT64 = "int64"
    UINT64 = "uint64"
    DECIMAL = "decimal"  # integers, if some are negative and others do not fit int64
    BOOL = "bool"
    DOUBLE = "double"
    STRING = "string"
    CATEGORY = "category"  # a string that repeats
    BINARY = "binary"
    JSON = "json"  # a string of JSON text
    INTS = "ints"
    UINTS = "uints"
    FRAME = "frame"
    FRAMES = "frames"
    TIMESTAMP = "timestamp"
    TEXTS = "texts"  # a map of strings
    BUCKETS = "buckets"
    DISTRIBUTION = "distribution"


#: The members of a frame (docs/json.md), and whether each is a text, a flag or a number.
FRAME_MEMBERS = {
    "symbol": Kind.STRING,
    "offset": Kind.INT64,
    "module": Kind.STRING,
    "build_id": Kind.STRING,
    "file_id": Kind.STRING,
    "link_address": Kind.UINT64,
    "address": Kind.UINT64,
    "file": Kind.STRING,
    "line": Kind.INT64,
    "inlined": Kind.BOOL,
    "python": Kind.BOOL,
}

_INTEGERS = frozenset((Kind.INT64, Kind.UINT64, Kind.DECIMAL))


def kind_of_column(column: Column) -> Kind | None:
    """Return the kind of an item's values; None for a value that no program can read."""
    match column:
        case IntColumn(format=IntFormat.BOOL):
            return Kind.BOOL
        case IntColumn(format=IntFormat.HEX):
            return Kind.STRING
        case IntColumn():
            return Kind.INT64 if column.struct_code == "q" else Kind.UINT64
        case FloatColumn():
            return Kind.DOUBLE
        case StringColumn() | ConstColumn() | CommColumn() | CgroupColumn():
            return Kind.STRING
        case BufferColumn() | BytesColumn():
            return Kind.BINARY
        case ArrayColumn():
            return Kind.INTS if column.element_code.islower() else Kind.UINTS
        case SocketAddressColumn() | StructColumn() | StructListColumn():
            return Kind.JSON
        case StackColumn() | StackCopyColumn():
            return Kind.FRAMES
        case SymbolColumn():
            return Kind.FRAME
        case UnavailableColumn():
            return None
        case _:
            assert_never(column)


def kind_of_value(value: Any) -> Kind | None:
    """Return the kind of a value of a JSON stream; None for one that any column can have."""
    match value:
        case None | []:
            return None
        case bool():
            return Kind.BOOL
        case int():
            return _kind_of_integer(value)
        case float():
            return Kind.DOUBLE
        case str():
            return None if value in NUMBER_TEXTS else Kind.STRING
        case list():
            return _kind_of_list(value)
        case dict():
            if error_of(value) is not None:
                return None
            return Kind.FRAME if _is_frame(value) else Kind.JSON
    return Kind.JSON


def _kind_of_integer(value: int) -> Kind:
    if -1 << 63 <= value < 1 << 63:
        return Kind.INT64
    if 0 <= value < 1 << 64:
        return Kind.UINT64
    return Kind.DECIMAL if abs(value) < 10**38 else Kind.JSON


def _kind_of_list(value: list[Any]) -> Kind:
    if all(isinstance(item, dict) for item in value):
        last = error_of(value[-1]) is not None  # why the stack ends early
        frames = all(map(_is_frame, value[:-1] if last else value))
        return Kind.FRAMES if frames else Kind.JSON
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        return Kind.JSON
    if min(value) >= -1 << 63 and max(value) < 1 << 63:
        return Kind.INTS
    return Kind.UINTS if min(value) >= 0 and max(value) < 1 << 64 else Kind.JSON


def _is_frame(value: dict[str, Any]) -> bool:
    return "symbol" in value and value.keys() <= FRAME_MEMBERS.keys()


def error_of(value: Any) -> str | None:
    """Return the reason why a value of a JSON stream could not be read; None if it could."""
    if isinstance(value, dict) and len(value) == 1:
        reason = value.get("error")
        return reason if isinstance(reason, str) else None
    return None


def united(first: Kind | None, other: Kind | None) -> Kind | None:
    """Return the kind of a column that has values of two kinds."""
    if first is None or other is None or first is other:
        return first or other
    return Kind.DECIMAL if {first, other} <= _INTEGERS else Kind.JSON
