"""Rows, or objects of a JSON stream, as the values of columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.engine.output.parquet.arrays import JsonText
from usdt.engine.output.parquet.columns import Flat, item_name
from usdt.engine.output.parquet.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usdt.engine.output.parquet.formatter import Row, RowPlan

__all__ = ("columns_of_objects", "columns_of_rows", "flat_object")

_TEXT_KINDS = (Kind.FRAME, Kind.FRAMES, Kind.JSON)  # that a row has as JSON text
_ABOUT = ("pid", "tid", "cpu", "comm", "probe", "event")


def columns_of_rows(rows: Sequence[Row], kinds: Mapping[str, Kind | None], host: str) -> Flat:
    """Return the values of each column for rows of any layouts."""
    plans, times, contexts, notes, values = zip(*rows, strict=True)
    count = len(rows)
    found: Flat = {"time": times, "host": [host] * count}
    found |= zip(_ABOUT, zip(*contexts, strict=True), strict=True)
    if any(notes):
        parsed = [_notes(json.loads(f"{{{text[2:]}}}")) if text else {} for text in notes]
        for name in ("names", "memory"):
            found[name] = [one.get(name) for one in parsed]
    distinct = dict.fromkeys(plans)
    for plan in distinct:
        if len(distinct) == 1:
            _add(found, plan, values, kinds)
            break
        at = [index for index, one in enumerate(plans) if one is plan]
        own: Flat = {}
        _add(own, plan, [values[index] for index in at], kinds)
        for name, column in own.items():
            whole = found.setdefault(name, [None] * count)
            for index, value in zip(at, column, strict=True):
                whole[index] = value
    return found


def _add(
    found: Flat, plan: RowPlan, values: Sequence[tuple[Any, ...]], kinds: Mapping[str, Kind | None]
) -> None:
    # Adds the columns of a plan.
    for (name, kind), column in zip(plan.fields, zip(*values, strict=True), strict=False):
        found[name] = _fitted(column, kind, kinds.get(name))
    if plan.end_probe is not None:
        found["end_probe"] = [plan.end_probe] * len(values)


def _fitted(column: Sequence[Any], kind: Kind | None, wanted: Kind | None) -> Sequence[Any]:
    if kind in _TEXT_KINDS:
        return [JsonText(value) if type(value) is str else value for value in column]
    if kind is Kind.BINARY and wanted is not Kind.BINARY:
        return [value.hex() if isinstance(value, bytes) else value for value in column]
    return column


def flat_object(found: Mapping[str, Any]) -> Flat:
    """Return the members of an object, and those of its items, by the names of their columns."""
    flat: Flat = {}
    for name, value in found.items():
        if name in ("args", "end_args", "key") and isinstance(value, dict):
            flat |= {item_name(name, key): one for key, one in value.items()}
        elif name not in ("names", "end_names", "memory", "end_memory", "timestamp"):
            flat[name] = value
    return flat | _notes(found)


def _notes(found: Mapping[str, Any]) -> Flat:
    # The columns of what is said of values beside them.
    group = "key" if "key" in found else "args"
    flat: Flat = {}
    for name in ("names", "memory"):
        notes: dict[str, Any] = {}
        for half, whose in (("", group), ("end_", "end_args")):
            notes |= {item_name(whose, key): one for key, one in found.get(half + name, {}).items()}
        if notes:
            flat[name] = [*notes.items()] if name == "names" else notes
    return flat


def columns_of_objects(rows: Sequence[Flat], host: str) -> Flat:
    """Return the values of each column for flat objects."""
    names = dict.fromkeys(name for row in rows for name in row)
    found: Flat = {name: [row.get(name) for row in rows] for name in names}
    found["host"] = [row.get("host", host) for row in rows]
    return found
