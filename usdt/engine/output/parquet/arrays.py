"""Values of one column → an Arrow array; the only module that imports pyarrow."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute, parquet

from usdt.arch.locations import Unreadable
from usdt.base.frozen import frozen
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.output.parquet.kinds import (
    FRAME_MEMBERS,
    NUMBER_TEXTS,
    Kind,
    error_of,
    kind_of_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from usdt.engine.output.parquet.columns import Flat

__all__ = ("JsonText", "Notes", "Table", "batch_of", "schema_of", "whole", "writer")

Table = Any  # pyarrow has no type hints
_GROUP_LEVEL = "zstd"


class JsonText(str):
    """A value as JSON text."""

    __slots__ = ()


class Notes:
    """What is said of values of a batch beside them.

    Attributes:
        errors: row → column and reason, for values that could not be read or written as they are.
        more: row → column → value, for values that their column cannot hold.
    """

    def __init__(self) -> None:
        self.errors: dict[int, list[tuple[str, str]]] = {}
        self.more: dict[int, dict[str, Any]] = {}


class _MisfitError(Exception):
    # A value that its column cannot hold.
    pass


@frozen
class _Note:
    # A value, with what is to be said of it.
    value: Any
    reason: str


_SCALARS: dict[Kind, Any] = {
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.UINT64: pa.uint64(),
    Kind.DECIMAL: pa.decimal128(38, 0),
    Kind.BOOL: pa.bool_(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.CATEGORY: pa.dictionary(pa.int32(), pa.string()),
    Kind.BINARY: pa.binary(),
    Kind.INTS: pa.list_(pa.int64()),
    Kind.UINTS: pa.list_(pa.uint64()),
    Kind.TIMESTAMP: pa.timestamp("ns", "UTC"),
}
_FRAME = pa.struct([(name, _SCALARS[kind]) for name, kind in FRAME_MEMBERS.items()])
_BUCKET = [("low", pa.float64()), ("high", pa.float64()), ("count", pa.int64())]
_TYPES = _SCALARS | {
    Kind.JSON: pa.string(),
    Kind.FRAME: _FRAME,
    Kind.FRAMES: pa.list_(_FRAME),
    Kind.TEXTS: pa.map_(pa.string(), pa.string()),
    Kind.BUCKETS: pa.list_(pa.struct(_BUCKET)),
    Kind.DISTRIBUTION: pa.list_(pa.struct([_BUCKET[0], _BUCKET[2]])),
}


def schema_of(kinds: Mapping[str, Kind]) -> Table:
    """Return the Arrow schema of columns."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in kinds.items()])


def writer(sink: Any, schema: Table) -> Any:
    """Return a writer of a Parquet file, which writes one row group for each table."""
    return parquet.ParquetWriter(sink, schema, compression=_GROUP_LEVEL)


def whole(batches: Sequence[Table], schema: Table) -> Table:
    """Return batches as one table."""
    return pa.Table.from_batches(batches, schema)


def batch_of(
    schema: Table, kinds: Mapping[str, Kind], rows: Flat, count: int, offset: int
) -> Table:
    """Return a batch of rows.

    Args:
        schema: that of ``kinds``.
        kinds: the columns.
        rows: the values of each column; without those that it lacks.
        count: the number of rows.
        offset: nanoseconds from ``time`` to those since 1970.
    """
    notes = Notes()
    found: dict[str, Table] = {}
    for name, values in rows.items():
        if name not in kinds:
            for row, value in enumerate(values):
                _leave(notes, row, name, value)
        elif kinds[name] not in (Kind.TEXTS, Kind.TIMESTAMP):
            found[name] = _array(name, kinds[name], values, notes)
    found["errors"] = _sparse(Kind.TEXTS, notes.errors, count)
    more = {row: json.dumps(values) for row, values in notes.more.items()}
    found["more"] = _sparse(Kind.JSON, more, count)
    if "names" in rows:
        found["names"] = pa.array(rows["names"], _TYPES[Kind.TEXTS])
    if "timestamp" in kinds and "time" in found:
        shifted = compute.add(found["time"], offset)
        found["timestamp"] = shifted.cast(_TYPES[Kind.TIMESTAMP])
    arrays = [
        found[name] if name in found else pa.nulls(count, _TYPES[kind])
        for name, kind in kinds.items()
    ]
    return pa.record_batch(arrays, schema=schema)


def _sparse(kind: Kind, values: dict[int, Any], count: int) -> Table:
    if not values:
        return pa.nulls(count, _TYPES[kind])
    return pa.array([values.get(row) for row in range(count)], _TYPES[kind])


def _leave(notes: Notes, row: int, name: str, value: Any) -> None:
    # Puts a value into the column for all that have none of their own.
    reason = _reason(value)
    if reason is not None:
        notes.errors.setdefault(row, []).append((name, reason))
    elif value is not None:
        notes.more.setdefault(row, {})[name] = _plain(value)


def _plain(value: Any) -> Any:
    # The value as that of a JSON stream.
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return json.loads(value) if isinstance(value, JsonText) else value


def _reason(value: Any) -> str | None:
    return value.reason if isinstance(value, Unreadable) else error_of(value)


_DIRECT = frozenset(_SCALARS) - {Kind.TIMESTAMP}


def _array(name: str, kind: Kind, values: Sequence[Any], notes: Notes) -> Table:
    if kind in _DIRECT:
        try:
            return pa.array(values, _TYPES[kind])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass  # at least one value is not what the column has: look at each
    fitted = []
    for row, value in enumerate(values):
        kept = None
        if value is not None:
            reason = _reason(value)
            try:
                kept = _Note(None, reason) if reason is not None else _CONVERTERS[kind](value)
            except _MisfitError:
                _leave(notes, row, name, value)
        if isinstance(kept, _Note):
            notes.errors.setdefault(row, []).append((name, kept.reason))
            kept = kept.value
        fitted.append(kept)
    return pa.array(fitted, _TYPES[kind])


# ---------------------------------------------------------------- one value


def _integer(low: int, high: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value < high:
            return value
        raise _MisfitError

    return convert


def _bool(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    raise _MisfitError


def _double(value: Any) -> Any:
    if isinstance(value, str) and value in NUMBER_TEXTS:
        return NUMBER_TEXTS[value]
    exact = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1 << 53
    if exact or isinstance(value, float):
        return float(value)
    raise _MisfitError


def _string(value: Any) -> Any:
    # Parquet has text in UTF-8 only: other bytes are shown as \xNN, and all are in the note.
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    if not isinstance(text, str) or isinstance(text, JsonText):
        raise _MisfitError
    try:
        text.encode()
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "surrogatepass" if _wide(text) else "surrogateescape")
        shown = "".join(escape(one) if "\ud800" <= one <= "\udfff" else one for one in text)
        return _Note(shown, f"not UTF-8: {raw.hex()}")
    return text


def _wide(text: str) -> bool:
    # Whether it has surrogates that stand for no byte, as only a JSON stream of others can.
    return any("\ud800" <= one < "\udc80" or "\udcff" < one <= "\udfff" for one in text)


def _binary(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    raise _MisfitError


def _json(value: Any) -> Any:
    if not isinstance(value, JsonText):
        return json.dumps(_plain(value))
    if value == "null":
        return None
    if value.startswith('{"error": '):
        reason = error_of(json.loads(value))
        if reason is not None:
            return _Note(None, reason)
    return str(value)


def _numbers(kind: Kind) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if value != [] and kind_of_value(value) not in (Kind.INTS, kind):
            raise _MisfitError
        if kind is Kind.UINTS and value and min(value) < 0:
            raise _MisfitError
        return value

    return convert


def _frame(value: Any) -> Any:
    return _loaded(value, Kind.FRAME)


def _frames(value: Any) -> Any:
    found = _loaded(value, Kind.FRAMES)
    reason = error_of(found[-1]) if isinstance(found, list) and found else None
    return found if reason is None else _Note(found[:-1], reason)


def _loaded(value: Any, kind: Kind) -> Any:
    found = _parsed(value) if isinstance(value, JsonText) else value
    reason = error_of(found)
    if reason is not None:
        return _Note(None, reason)
    if not (kind is Kind.FRAMES and found == []) and kind_of_value(found) is not kind:
        raise _MisfitError
    # Frames of this program are as they should be; those of a stream may be anything.
    checked = found[-1:] if kind is Kind.FRAMES and isinstance(value, JsonText) else found
    try:
        pa.array([checked], _TYPES[kind])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as err:
        raise _MisfitError from err
    return found


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    return json.loads(text)


def _distribution(value: Any) -> Any:
    try:
        return [{"low": float(low), "count": int(hits)} for low, hits in value]
    except (TypeError, ValueError, OverflowError) as err:
        raise _MisfitError from err


def _buckets(value: Any) -> Any:
    # Edges are powers of two and simple fractions, which a double holds exactly beyond int64, too.
    try:
        edges = (
            [None if one[name] is None else float(one[name]) for name in ("low", "high")]
            for one in value
        )
        counts = [int(one["count"]) for one in value]
        return [
            {"low": low, "high": high, "count": count}
            for (low, high), count in zip(edges, counts, strict=True)
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as err:
        raise _MisfitError from err


_CONVERTERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.INT32: _integer(-1 << 31, 1 << 31),
    Kind.INT64: _integer(-1 << 63, 1 << 63),
    Kind.UINT64: _integer(0, 1 << 64),
    Kind.DECIMAL: _integer(1 - 10**38, 10**38),
    Kind.BOOL: _bool,
    Kind.DOUBLE: _double,
    Kind.STRING: _string,
    Kind.CATEGORY: _string,
    Kind.BINARY: _binary,
    Kind.JSON: _json,
    Kind.INTS: _numbers(Kind.INTS),
    Kind.UINTS: _numbers(Kind.UINTS),
    Kind.FRAME: _frame,
    Kind.FRAMES: _frames,
    Kind.DISTRIBUTION: _distribution,
    Kind.BUCKETS: _buckets,
}
