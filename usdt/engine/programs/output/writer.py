"""What a program prints, as bpftrace does it: in text, or as one JSON object a line."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Protocol

from usdt.engine.programs.members import members_of
from usdt.engine.programs.output.histograms import buckets, drawn
from usdt.engine.programs.output.maps import Row, average
from usdt.engine.programs.output.series import drawn_series, interval_time, intervals
from usdt.engine.programs.output.values import shown
from usdt.engine.programs.types import (
    Aggregate,
    AggregateType,
    ArrayType,
    IntegerType,
    NoType,
    PointerType,
    ShownAs,
    StructType,
    TupleType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.programs.check.state import MapState
    from usdt.engine.programs.output.values import Symbols
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.programs.types import Type

__all__ = ("JsonWriter", "TextWriter", "Writer")

_HISTOGRAMS = (Aggregate.HIST, Aggregate.LHIST)


class Writer(Protocol):
    """A form of the output."""

    def attached(self, number: int) -> None:
        """Say how many probes are attached."""

    def text(
        self, kind: str, text: str, types: Sequence[Type] = (), values: Sequence[Any] = ()
    ) -> None:
        """Write what printf() and the like have printed; ``values`` are those of printf()."""

    def value(self, type_: Type, value: Any) -> None:
        """Write a value of print()."""

    def map(self, found: MapState, rows: Sequence[Row]) -> None:
        """Write a map."""

    def helper_error(self, source: Source, start: int, helper: str, code: int) -> bool:
        """Write that a helper has failed; return whether this form has such reports."""

    def gap(self) -> None:
        """Write what follows print() of a map with keys."""

    def end(self) -> None:
        """Write what stands between the events and the maps at the end."""


class TextWriter:
    """Writes text.

    Args:
        write: takes the text.
        symbols: looks up names.
        quiet: whether the number of probes is not said.
    """

    def __init__(
        self, write: Callable[[str], object], symbols: Symbols, *, quiet: bool = False
    ) -> None:
        self._write = write
        self._symbols = symbols
        self._quiet = quiet

    def attached(self, number: int) -> None:
        """Say how many probes are attached."""
        if not self._quiet:
            self._write(f"Attached {number} probe{'' if number == 1 else 's'}\n")

    def text(
        self, kind: str, text: str, types: Sequence[Type] = (), values: Sequence[Any] = ()
    ) -> None:
        """Write what printf() and the like have printed."""
        del kind, types, values
        self._write(text)

    def value(self, type_: Type, value: Any) -> None:
        """Write a value of print()."""
        self._write(f"{shown(type_, value, self._symbols)}\n")

    def end(self) -> None:
        """Write what stands between the events and the maps at the end: two empty lines."""
        self._write("\n\n")

    def map(self, found: MapState, rows: Sequence[Row]) -> None:
        """Write a map: a line, or a histogram, for each entry."""
        self._write("".join(f"{line}\n" for row in rows for line in self._lines(found, row)))

    def helper_error(self, source: Source, start: int, helper: str, code: int) -> bool:
        """Write nothing: it is a warning, beside the output."""
        del source, start, helper, code
        return False

    def gap(self) -> None:
        """Write an empty line, which follows print() of a map with keys."""
        self._write("\n")

    def _lines(self, found: MapState, row: Row) -> Iterator[str]:
        name = found.variable.name
        if row.key is not None and found.key is not None:
            name += f"[{_key_text(found.key, row.key, self._symbols)}]"
        kind = found.value
        if isinstance(kind, AggregateType) and kind.function in _HISTOGRAMS:
            yield f"{name}:"
            yield from drawn(kind, row.value)
            yield ""
            return
        if isinstance(kind, AggregateType) and kind.function is Aggregate.TSERIES:
            yield f"{name}:"
            yield from drawn_series(kind, row.value)
            yield from [""] if row.value else ()
            return
        yield f"{name}: {self._value_text(kind, row.value)}"

    def _value_text(self, kind: Type | None, value: Any) -> str:
        if not isinstance(kind, AggregateType):
            return "" if kind is None else shown(kind, value, self._symbols)
        match kind.function:
            case Aggregate.AVG:
                return str(average(value))
            case Aggregate.STATS:
                return f"count {value[0]}, average {average(value)}, total {value[1]}"
        return str(value)


def _key_text(type_: Type, key: Any, symbols: Symbols) -> str:
    if isinstance(type_, TupleType) and not type_.names:
        parts = zip(type_.elements, key, strict=True)
        return ", ".join(shown(kind, part, symbols) for kind, part in parts)
    return shown(type_, key, symbols)


class JsonWriter:
    """Writes JSON, one object a line; the arguments are those of :class:`TextWriter`."""

    def __init__(
        self, write: Callable[[str], object], symbols: Symbols, *, quiet: bool = False
    ) -> None:
        self._put = write
        self._symbols = symbols
        self._quiet = quiet

    def _write(self, kind: str, data: Any, **more: Any) -> None:
        self._put(f"{_json_text({'type': kind, **more, 'data': data})}\n")

    def attached(self, number: int) -> None:
        """Say how many probes are attached: by both members, as versions of bpftrace do."""
        if not self._quiet:
            self._write("attached_probes", {"probes": number}, count=number)

    def text(
        self, kind: str, text: str, types: Sequence[Type] = (), values: Sequence[Any] = ()
    ) -> None:
        """Write what printf() and the like have printed."""
        del types, values
        self._write(kind, text.removesuffix("\n") if kind == "join" else text)

    def value(self, type_: Type, value: Any) -> None:
        """Write a value of print()."""
        self._write("value", self._json(type_, value))

    def end(self) -> None:
        """Write nothing: every object is a line."""

    def helper_error(self, source: Source, start: int, helper: str, code: int) -> bool:
        """Write the error and its place; the text of ``-e`` is called ``stdin``."""
        source, start = source.at(start)
        before = source.text[:start]
        found = {
            "type": "helper_error",
            "msg": os.strerror(-code),
            "helper": helper,
            "retcode": code,
            "filename": "stdin" if source.name == "-e" else source.name,
            "line": before.count("\n") + 1,
            "col": start - before.rfind("\n"),
        }
        self._put(f"{_json_text(found)}\n")
        return True

    def gap(self) -> None:
        """Write nothing."""

    def map(self, found: MapState, rows: Sequence[Row]) -> None:
        """Write a map as one object."""
        kind = found.value
        function = kind.function if isinstance(kind, AggregateType) else None
        name = "hist" if function in _HISTOGRAMS else "map"
        name = "stats" if function in (Aggregate.AVG, Aggregate.STATS) else name
        name = "tseries" if function is Aggregate.TSERIES else name
        values = {
            _json_key(found.key, row.key, self._symbols): self._map_value(kind, row.value)
            for row in rows
        }
        if not found.keyed and rows:
            self._write(name, {found.variable.name: values[""]})
        elif rows:
            self._write(name, {found.variable.name: values})

    def _map_value(self, kind: Type | None, value: Any) -> Any:
        if not isinstance(kind, AggregateType):
            return None if kind is None else self._json(kind, value)
        match kind.function:
            case Aggregate.AVG:
                return average(value)
            case Aggregate.STATS:
                return {"count": value[0], "average": average(value), "total": value[1]}
            case Aggregate.HIST | Aggregate.LHIST:
                return [_bucket(one.low, one.high, one.hits) for one in buckets(kind, value)]
            case Aggregate.TSERIES:
                return tuple(_interval(start, one) for start, one in intervals(kind, value))
        return value

    def _json(self, type_: Type, value: Any) -> Any:
        match type_:
            case IntegerType(shown=ShownAs.NUMBER) | PointerType():  # enumerators as numbers
                return value
            case IntegerType(shown=ShownAs.BOOLEAN):
                return bool(value)
            case TupleType(elements=elements, names=names):
                parts = [self._json(one, part) for one, part in zip(elements, value, strict=True)]
                return dict(zip(names, parts, strict=True)) if names else tuple(parts)
            case ArrayType(element=element):
                return tuple(self._json(element, one) for one in value)
            case StructType():
                rows = zip(members_of(type_), value, strict=True)
                return {one.name: self._json(one.type, part) for one, part in rows}
            case NoType():
                return None
        return shown(type_, value, self._symbols)


def _json_key(type_: Type | None, key: Any, symbols: Symbols) -> str:
    if key is None or type_ is None:
        return ""
    if isinstance(type_, TupleType) and not type_.names:
        parts = zip(type_.elements, key, strict=True)
        return ",".join(_key_part(kind, part, symbols) for kind, part in parts)
    return _key_part(type_, key, symbols)


def _key_part(type_: Type, key: Any, symbols: Symbols) -> str:
    # As text, but without spaces in tuples and records.
    if not isinstance(type_, TupleType):
        return shown(type_, key, symbols)
    pairs = zip(type_.elements, key, strict=True)
    parts = [_key_part(kind, part, symbols) for kind, part in pairs]
    if not type_.names:
        return f"({','.join(parts)})"
    named = (f".{name}={part}" for name, part in zip(type_.names, parts, strict=True))
    return f"{{{','.join(named)}}}"


def _json_text(value: Any) -> str:
    # Spaces are where bpftrace has them, for scripts that compare lines: none in tuples and arrays.
    match value:
        case _Compact():
            return json.dumps(value, separators=(",", ":"))
        case dict():
            parts = (f"{json.dumps(name)}: {_json_text(one)}" for name, one in value.items())
            return f"{{{', '.join(parts)}}}"
        case tuple():
            return f"[{','.join(map(_json_text, value))}]"
        case list():
            return f"[{', '.join(map(_json_text, value))}]"
    return json.dumps(value)


class _Compact(dict[str, Any]):
    # An object that bpftrace writes without spaces.
    pass


def _interval(start: int, value: int) -> _Compact:
    return _Compact(interval_start=interval_time(start), value=value)


def _bucket(low: int | None, high: int | None, hits: int) -> dict[str, int]:
    found = {}
    if low is not None:
        found["min"] = low
    if high is not None:
        found["max"] = high - 1
    return {**found, "count": hits}
