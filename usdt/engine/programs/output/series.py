"""The intervals of tseries(): their values from the bytes of maps, and their picture in text."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from usdt.engine.programs.types import AggregateType

__all__ = ("drawn_series", "interval_time", "intervals", "latest_intervals")

_SECOND = 1_000_000_000
_BUSY = (1 << 64) - 1  # as the code of the program marks an interval that it begins
_WIDTH = 53  # columns from the lowest value to the highest
# The unit of which an interval is a multiple → the name of the column, digits behind the second.
_PRECISIONS = ((_SECOND, "", 0), (1_000_000, ".ms", 3), (1000, ".μs", 6), (1, ".ns", 9))


def latest_intervals(
    type_: AggregateType, parts: Sequence[tuple[int, ...]]
) -> dict[int, list[tuple[int, int]]]:
    """Return the pairs of the last intervals, by the number of the interval.

    Args:
        type_: the type of the map's values.
        parts: the words of all entries of a key and of all CPUs: interval, pair.
    """
    known = [one for one in parts if one[0] != _BUSY and one[1]]
    newest = max((one[0] for one in known), default=0)
    found: dict[int, list[tuple[int, int]]] = {}
    for number, hits, value in sorted(known):
        if number > newest - type_.parameters[1]:
            found.setdefault(number, []).append((hits, value))
    return found


def intervals(type_: AggregateType, values: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the start of each interval that has a value, in nanoseconds since 1970, and it."""
    for number, value in values.items():
        yield number * type_.parameters[0], value


def interval_time(start: int, digits: int = 9, *, date: bool = True) -> str:
    """Return the local time of the start of an interval."""
    seconds, rest = divmod(start, _SECOND)
    form = "%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S"
    behind = f".{rest:09d}"[: digits + 1] if digits else ""
    return time.strftime(form, time.localtime(seconds)) + behind


def drawn_series(type_: AggregateType, values: Mapping[int, int]) -> Iterator[str]:
    """Yield the lines of a picture: a line for each interval from the first to the last."""
    if not values:
        yield "<no data>"
        return
    interval, first, last = type_.parameters[0], min(values), max(values)
    unit, digits = _precision(interval if len(values) > 1 else 1)
    low, high = _bounds(type_, values)
    width = max(len(f"hh:mm:ss{unit}"), len("hh:mm:ss") + (digits and digits + 1))
    scale = f"{'':{width}} {low}{high:>{_WIDTH - len(str(low))}}"
    line = "_" * (_WIDTH - 2)
    yield scale
    yield f"{f'hh:mm:ss{unit}':{width}} |{line}|"
    for number in range(first, last + 1):
        when = interval_time(number * interval, digits, date=False)
        value = values.get(number)
        yield f"{when} {_row(value, low, high)} {'-' if value is None else value}"
    yield f"{'':{width}} v{line}v"
    yield scale


def _precision(interval: int) -> tuple[str, int]:
    return next((name, digits) for unit, name, digits in _PRECISIONS if not interval % unit)


def _bounds(type_: AggregateType, values: Mapping[int, int]) -> tuple[int, int]:
    # One value alone is in the middle, unless it is the lowest or the highest that there is.
    low, high = min(values.values()), max(values.values())
    if low != high:
        return low, high
    least, most = (-(1 << 63), (1 << 63) - 1) if type_.signed else (0, (1 << 64) - 1)
    return max(low - 1, least), min(high + 1, most)


def _row(value: int | None, low: int, high: int) -> str:
    cells: list[Any] = ["|", *" " * (_WIDTH - 2), "|"]
    if value is not None:
        cells[(value - low) * (_WIDTH - 1) // (high - low)] = "*"
    return "".join(cells)
