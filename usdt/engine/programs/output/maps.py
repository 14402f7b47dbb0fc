"""The contents of maps: read from the kernel, in bpftrace's order, as rows of keys and values."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.programs.codegen.aggregates import BUCKET_SIZE, value_size_of
from usdt.engine.programs.output.values import decode
from usdt.engine.programs.types import Aggregate, AggregateType, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.bpf.maps import Map
    from usdt.engine.programs.check.state import MapState
    from usdt.engine.programs.types import Type

__all__ = ("Row", "empty_row", "read_rows")

_SIGN = 1 << 63
_MASK = (1 << 64) - 1


@frozen
class Row:
    """An entry of a map.

    Attributes:
        key: the key; None for a map without keys.
        value: the value: for count, sum, min and max a number; for avg and stats (count, total);
            for histograms the numbers of hits by bucket.
    """

    key: Any
    value: Any


def read_rows(found: MapState, made: Map | None) -> list[Row]:
    """Return the entries of a map, sorted by value, then by key."""
    if made is None or found.value is None or found.key is None:
        return []
    if isinstance(found.value, AggregateType):
        rows = _aggregated(found.value, found.key, made.items())
    else:
        kind = found.value
        rows = [(decode(found.key, key), decode(kind, value)) for key, value in made.items()]
    rows.sort(key=lambda row: (_order(row[1]), _order(row[0])))
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
        if type_.function in (Aggregate.HIST, Aggregate.LHIST):
            bucket = struct.unpack_from("=q", key, len(key) - BUCKET_SIZE)[0]
            hits = sum(part[0] for part in parts)
            found.setdefault(decoded, {})[bucket] = hits
        else:
            found[decoded] = _summed(type_, parts)
    return [*found.items()]


def _summed(type_: AggregateType, parts: list[tuple[int, ...]]) -> Any:
    match type_.function:
        case Aggregate.COUNT:
            return sum(part[0] for part in parts)
        case Aggregate.SUM:
            return _signed(sum(part[0] for part in parts), type_)
        case Aggregate.AVG | Aggregate.STATS:
            return sum(part[0] for part in parts), _signed(sum(part[1] for part in parts), type_)
        case _:
            most = max(part[0] for part in parts)
            if not most:  # nothing since zero()
                return 0
            most = most ^ _MASK if type_.function is Aggregate.MIN else most
            return _signed(most ^ _SIGN, type_) if type_.signed else most


def _signed(value: int, type_: AggregateType) -> int:
    value &= _MASK
    return value - (1 << 64) if type_.signed and value & _SIGN else value
