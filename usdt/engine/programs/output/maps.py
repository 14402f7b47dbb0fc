"""The contents of maps: read from the kernel, in bpftrace's order, as rows of keys and values."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen, replace
from usdt.bpf._uapi import MapType
from usdt.engine.programs.codegen.aggregates import BUCKET_SIZE, value_size_of
from usdt.engine.programs.output.series import latest_intervals
from usdt.engine.programs.output.values import decode
from usdt.engine.programs.types import Aggregate, AggregateType, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.bpf.maps import Map
    from usdt.engine.programs.check.state import MapState
    from usdt.engine.programs.types import Type

__all__ = ("Row", "average", "empty_row", "read_rows", "reset")

_SIGN = 1 << 63
_MASK = (1 << 64) - 1
_HISTOGRAMS = (Aggregate.HIST, Aggregate.LHIST)


@frozen
class Row:
    """An entry of a map.

    Attributes:
        key: the key; None for a map without keys.
        value: the value: for count, sum, min and max a number; for avg and stats (count, total);
            for histograms the numbers of hits by bucket; for tseries the values by interval.
    """

    key: Any
    value: Any


def read_rows(found: MapState, made: Map | None) -> list[Row]:
    """Return the entries of a map, sorted by value, then by key; those of tseries() by key.

    A count without keys is always there.
    """
    if made is None or found.value is None or found.key is None:
        return []
    if found.in_array and isinstance(found.value, AggregateType):
        rows = _array_rows(found.value, made.items())
    elif isinstance(found.value, AggregateType):
        rows = _aggregated(found.value, found.key, made.items())
    else:
        kind = found.value
        rows = [(decode(found.key, key), decode(kind, value)) for key, value in made.items()]
    if not rows and not found.keyed and found.value == AggregateType(Aggregate.COUNT):
        return [Row(None, 0)]  # as in bpftrace
    rows.sort(key=lambda row: _order(row[0]))
    if not (isinstance(found.value, AggregateType) and found.value.function is Aggregate.TSERIES):
        rows.sort(key=lambda row: _order(row[1]))
    return [Row(key if found.keyed else None, value) for key, value in rows]


def empty_row(found: MapState) -> Row | None:
    """Return what print() shows of a map without keys that has no value; None for a histogram."""
    match found.value:
        case AggregateType(function=Aggregate.AVG | Aggregate.STATS):
            return Row(None, (0, 0))
        case AggregateType(function=Aggregate.HIST | Aggregate.LHIST | Aggregate.TSERIES) | None:
            return None
        case AggregateType():
            return Row(None, 0)
        case kind:
            return Row(None, decode(kind, bytes(size_of(kind))))


def reset(found: MapState, made: Map, *, keep: bool) -> None:
    """Remove the entries of a map or, to ``keep`` them, set their values to zeros."""
    array = made.spec.type is MapType.PERCPU_ARRAY
    marked = array and keep and bool(read_rows(found, made))
    nothing = bytes(made.value_size)
    keys = [*made.keys()]
    for key in keys:
        if array or keep:
            made.set(key, nothing)
        else:
            made.delete(key)
    if marked:
        made.set(keys[-1], b"\1".ljust(made.value_size, b"\0"))


def _order(value: Any) -> Any:
    # Values of one map have one type. Histograms are in the order of their hits.
    if isinstance(value, dict):
        return sum(value.values())
    return value


def _aggregated(
    type_: AggregateType, key_type: Type, items: Iterable[tuple[bytes, bytes]]
) -> list[tuple[Any, Any]]:
    size = value_size_of(type_)
    words = struct.Struct(f"={size // 8}Q")
    found: dict[Any, Any] = {}
    for key, data in items:
        parts = list(words.iter_unpack(data))
        decoded = decode(key_type, key)
        if type_.function in _HISTOGRAMS:
            bucket = struct.unpack_from("=q", key, len(key) - BUCKET_SIZE)[0]
            hits = sum(part[0] for part in parts)
            found.setdefault(decoded, {})[bucket] = hits
        elif type_.function is Aggregate.TSERIES:
            found.setdefault(decoded, []).extend(parts)
        else:
            found[decoded] = _summed(type_, parts)
    if type_.function is Aggregate.TSERIES:
        return [(key, _series(type_, parts)) for key, parts in found.items()]
    return [*found.items()]


def _series(type_: AggregateType, parts: list[tuple[int, ...]]) -> dict[int, int]:
    # The value of each interval: the last one, if nothing is computed of them.
    found: dict[int, int] = {}
    for number, pairs in latest_intervals(type_, parts).items():
        if type_.inner is None:
            found[number] = _signed(max(pairs)[1], type_)
            continue
        value = _summed(replace(type_, function=type_.inner), [*pairs])
        found[number] = average(value) if type_.inner is Aggregate.AVG else value
    return found


def average(value: tuple[int, int]) -> int:
    """Return the average of (count, total), rounded toward 0, as in C."""
    count, total = value
    whole = abs(total) // count if count else 0
    return -whole if total < 0 else whole


def _array_rows(
    type_: AggregateType, items: Iterable[tuple[bytes, bytes]]
) -> list[tuple[Any, Any]]:
    # The one row of a map without keys: none if nothing was added.
    words = struct.Struct(f"={value_size_of(type_) // 8}Q")
    *values, mark = ([*words.iter_unpack(data)] for _, data in items)
    if not any(any(part) for parts in (*values, mark) for part in parts):
        return []
    if type_.function in _HISTOGRAMS:
        hits = [sum(part[0] for part in parts) for parts in values]
        return [(0, {index - 1: count for index, count in enumerate(hits) if count})]
    if type_.function is Aggregate.TSERIES:
        return [(0, _series(type_, [part for parts in values for part in parts]))]
    return [(0, _summed(type_, values[0]))]


def _summed(type_: AggregateType, parts: list[tuple[int, ...]]) -> Any:
    match type_.function:
        case Aggregate.COUNT:
            return sum(part[0] for part in parts)
        case Aggregate.SUM:
            return _signed(sum(part[1] for part in parts), type_)
        case Aggregate.AVG | Aggregate.STATS:
            return sum(part[0] for part in parts), _signed(sum(part[1] for part in parts), type_)
        case _:
            if not any(hits for hits, _ in parts):  # nothing since zero()
                return 0
            most = max(value for _, value in parts)
            most = most ^ _MASK if type_.function is Aggregate.MIN else most
            return _signed(most ^ _SIGN, type_) if type_.signed else most


def _signed(value: int, type_: AggregateType) -> int:
    value &= _MASK
    return value - (1 << 64) if type_.signed and value & _SIGN else value
