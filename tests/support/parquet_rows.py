"""Rows of a Parquet file beside the JSON lines of the same events or results."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ("check_same", "ending_of", "header_of", "rows_of", "types_of")

_GROUPS = ("args", "end_args", "key")
_TOLD = ("names", "end_names", "memory", "end_memory", "timestamp")


def rows_of(path: Path | str) -> list[dict[str, Any]]:
    """The rows; moments are nanoseconds since 1970."""
    with parquet.ParquetFile(path) as file:
        table = file.read()
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            moments = table.column(index).cast(pa.int64())
            table = table.set_column(index, field.name, moments)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def _file(path: Path | str) -> tuple[Any, dict[bytes, bytes]]:
    # The schema and the metadata.
    with parquet.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.metadata


def types_of(path: Path | str) -> dict[str, str]:
    """The type of each column."""
    return {field.name: str(field.type) for field in _file(path)[0]}


def header_of(path: Path | str) -> dict[str, Any]:
    """The header of the stream, from the file's metadata."""
    found: dict[str, Any] = json.loads(_file(path)[1][b"usdt"])
    return found


def ending_of(path: Path | str) -> list[dict[str, Any]]:
    """The objects behind the events or results of the stream."""
    found: list[dict[str, Any]] = json.loads(_file(path)[1][b"usdt.end"])
    return found


def check_same(path: Path | str, lines: Iterable[str]) -> int:
    """Compare a file with the JSON stream of the same run; return the number of its rows."""
    objects = [json.loads(line) for line in lines]
    header = next((one for one in objects if "usdt" in one), None)
    if header is not None:
        assert header_of(path) == header
    events = [one for one in objects if "probe" in one and ("time" in one or "count" in one)]
    losses = [one for one in objects if one not in events and one.keys().isdisjoint({"usdt"})]
    assert ending_of(path) == [one for one in losses if "clock" not in one]
    rows = rows_of(path)
    assert len(rows) == len(events)
    types = types_of(path)
    for row, event in zip(rows, events, strict=True):
        _check_row(row, event, types)
    return len(rows)


def _check_row(row: dict[str, Any], event: dict[str, Any], types: dict[str, str]) -> None:
    errors = dict(row.pop("errors") or ())
    seen = set()
    for name, value in event.items():
        if name in _GROUPS:
            for key, one in value.items():
                column = f"{name}.{key}" if f"{name}.{key}" in row else key
                seen.add(column)
                _check_value(row[column], one, errors.pop(column, None), types[column])
        elif name not in _TOLD:
            seen.add(name)
            _check_value(row[name], value, errors.pop(name, None), types[name])
    assert not errors
    _check_notes(row, event)
    rest = {name for name in row if name not in seen and row[name] is not None}
    assert rest <= {"timestamp", "host", "names", "memory"}, rest


def _check_notes(row: dict[str, Any], event: dict[str, Any]) -> None:
    group = "key" if "key" in event else "args"
    known = {
        name: {
            column if half != "end_" else f"end_args.{column}": value
            for half in ("", "end_")
            for column, value in event.get(half + name, {}).items()
        }
        for name in ("names", "memory")
    }
    names = {name.removeprefix(f"{group}."): text for name, text in row["names"] or ()}
    assert names == known["names"]
    memory = json.loads(row["memory"] or "{}")
    assert {name.removeprefix("args."): one for name, one in memory.items()} == known["memory"]


def _check_value(found: Any, value: Any, error: str | None, kind: str) -> None:
    if isinstance(value, dict) and value.keys() == {"error"}:
        assert (found, error) == (None, value["error"])
        return
    if isinstance(value, list) and value and value[-1] == {"error": error}:
        value, error = value[:-1], None
    if error is not None:  # the text has bytes that are not UTF-8
        raw = value.encode("utf-8", "surrogateescape")
        assert error == f"not UTF-8: {raw.hex()}"
        assert found == raw.decode("utf-8", "backslashreplace")
        return
    if kind == "binary":
        assert found in (_bytes(value), value.encode("utf-8", "surrogateescape"))
    elif kind == "double" and isinstance(value, str):
        assert math.isnan(found) if value == "NaN" else found == float(value)
    elif kind == "string" and found != value:
        assert json.loads(found) == value
    elif isinstance(value, list | dict):
        assert _without_nulls(found) == _without_nulls(_pairs(value, found))
    else:
        assert found == value


def _bytes(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _pairs(value: Any, found: Any) -> Any:
    # A distribution has pairs where Parquet has members.
    if isinstance(value, list) and found and isinstance(found[0], dict) and "low" in found[0]:
        return [{"low": one[0], "count": one[1]} if isinstance(one, list) else one for one in value]
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
