"""The columns of a Parquet file: their names and types, until the first rows are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.engine.output.parquet.kinds import Kind, kind_of_column, kind_of_value, united

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from usdt.engine.compiler.record.layout import RecordLayout

__all__ = ("FIXED", "LAST", "Columns", "Flat", "item_name")

#: The members of objects that are columns of their own, whatever the object is.
FIXED: dict[str, Kind | None] = {
    "time": Kind.INT64,
    "timestamp": Kind.TIMESTAMP,
    "duration": Kind.INT64,
    "age": Kind.INT64,
    "host": Kind.CATEGORY,
    "pid": Kind.INT32,
    "tid": Kind.INT32,
    "cpu": Kind.INT32,
    "comm": Kind.CATEGORY,
    "probe": Kind.CATEGORY,
    "event": Kind.CATEGORY,
    "end_probe": Kind.CATEGORY,
    "self": Kind.INT64,
    "depth": Kind.INT64,
    "request": Kind.CATEGORY,
    "value": Kind.CATEGORY,
    "start": Kind.CATEGORY,
    "unit": Kind.CATEGORY,
    "interval": Kind.DOUBLE,
    "end": Kind.INT64,
    "count": Kind.INT64,
    "min": None,
    "avg": Kind.DOUBLE,
    "max": None,
    "sum": None,
    "p50": Kind.DOUBLE,
    "p90": Kind.DOUBLE,
    "p99": Kind.DOUBLE,
    "p99.9": Kind.DOUBLE,
    "error": Kind.DOUBLE,
    "unplaced": Kind.INT64,
    "resolution": Kind.INT64,
    "linear": Kind.JSON,
    "distribution": Kind.DISTRIBUTION,
    "buckets": Kind.BUCKETS,
}
#: The columns behind the items.
LAST = {
    "errors": Kind.TEXTS,
    "names": Kind.TEXTS,
    "memory": Kind.JSON,
    "more": Kind.JSON,
}
_EVENT = ("time", "timestamp", "host", "pid", "tid", "cpu", "comm", "probe")
_RESULT = ("host", "probe", "count")
_OF_COMMAND = {
    "trace": (*_EVENT, "event"),
    "record": (*_EVENT, "event"),
    "spans": (*_EVENT[:2], "duration", *_EVENT[2:], "end_probe"),
    "heatmap": ("time", "timestamp", "host", "probe", "count", "buckets"),
}
_KEYS = ("host", "pid", "tid", "cpu", "comm")  # that mean the same as for an event

#: One object or row as columns.
Flat = dict[str, Any]


def item_name(group: str, key: str) -> str:
    """Return the name of an item's column.

    Args:
        group: the member of the object that has the item: ``args``, ``end_args`` or ``key``.
        key: the item as written.
    """
    if group == "key" and key in _KEYS:
        return key
    plain = group != "end_args" and key not in FIXED and key not in LAST
    return key if plain else f"{group}.{key}"


class Columns:
    """The columns of a file. Once frozen, they stay as they are.

    Attributes:
        kinds: name → type; None if no value with a type was seen.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, Kind | None] = {}
        self.frozen = False

    def add(self, name: str, kind: Kind | None) -> None:
        """Add a column, or a type of its values; without effect once frozen."""
        if not self.frozen:
            known = FIXED.get(name)
            self.kinds[name] = known or united(self.kinds.get(name), kind)

    def add_command(self, command: str) -> None:
        """Add the columns that every file of a command has."""
        for name in _OF_COMMAND.get(command, _RESULT):
            self.add(name, None)

    def add_layout(self, layout: RecordLayout) -> list[tuple[str, Kind | None]]:
        """Add the columns of a layout; return those of its fields."""
        halves = (layout.fields, ()) if layout.span is None else layout.span.halves(layout.fields)
        found: list[tuple[str, Kind | None]] = []
        if layout.span is not None:
            found.append(("duration" if layout.span.end_probe else "age", Kind.INT64))
        for group, fields in zip(("args", "end_args"), halves, strict=True):
            found += ((item_name(group, one.key), kind_of_column(one.column)) for one in fields)
        for name, kind in found:
            self.add(name, kind)
        return found

    def add_values(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the columns of objects, with types by their values."""
        kinds: dict[str, Kind | None] = {}
        for row in rows:
            for name, value in row.items():
                kinds[name] = united(kinds.get(name), kind_of_value(value))
        for name, kind in kinds.items():
            if name not in LAST:
                self.add(name, kind)

    def freeze(self) -> dict[str, Kind]:
        """Return all columns in order; later ones go into the column ``more``."""
        if "time" in self.kinds:
            self.add("timestamp", None)
        self.frozen = True
        first = [name for name in FIXED if name in self.kinds]
        items = [name for name in self.kinds if name not in FIXED]
        found = {name: self.kinds[name] or FIXED.get(name) for name in (*first, *items)}
        numbers = {"min", "max", "sum"}
        self.kinds = {
            name: kind or (Kind.INT64 if name in numbers else Kind.STRING)
            for name, kind in found.items()
        }
        return {name: kind or Kind.STRING for name, kind in self.kinds.items()} | LAST
