"""Aggregates as lines of a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.durations import duration_text
from usdt.base.text import plural, printable
from usdt.engine.aggregate.output.text import bar, edge_label, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from usdt.engine.api.aggregates import Histogram

__all__ = ("histogram_lines", "stack_lines", "value_lines")

_MOST = 10  # values and stacks that are shown
_PERCENTS = (50, 90, 99)


def value_lines(counts: Mapping[Any, int]) -> list[str]:
    """Return the most frequent values: hits, share and value."""
    lines = [f"{_share(counts, hits)}  {_value(value)}" for value, hits in _most(counts)]
    return [*lines, *_rest(counts, "value")]


def stack_lines(counts: Mapping[Any, int]) -> list[str]:
    """Return the most frequent stacks, the innermost function first."""
    lines = []
    for frames, hits in _most(counts):
        lines.append(_share(counts, hits))
        lines += [f"{'':10}{printable(str(frame))}" for frame in frames or ("(no frames)",)]
    return [*lines, *_rest(counts, "stack")]


def histogram_lines(found: Mapping[Any, Histogram], *, times: bool = False) -> list[str]:
    """Return histograms with their percentiles; with ``times`` of nanoseconds."""
    edge = duration_text if times else number
    lines = []
    for histogram in found.values():
        most = max(histogram.values(), default=0)
        lines += [
            bar(edge_label(low, high, single=not times, edge=edge), hits, most).rstrip("\n")
            for (low, high), hits in histogram.items()
        ]
        known = [(percent, histogram.percentile(percent)) for percent in _PERCENTS]
        shown = [f"p{percent} {edge(value)}" for percent, value in known if value is not None]
        lines.append("  ".join([plural(histogram.count, "hit"), *shown]))
    return lines


def _most(counts: Mapping[Any, int]) -> Sequence[tuple[Any, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[:_MOST]


def _share(counts: Mapping[Any, int], hits: int) -> str:
    return f"{hits:>10} {100 * hits / sum(counts.values()):5.1f}%"


def _rest(counts: Mapping[Any, int], what: str) -> list[str]:
    more = len(counts) - _MOST
    return [f"{'':10} and {more} more {what}{'s' * (more != 1)}"] if more > 0 else []


def _value(value: object) -> str:
    return f'"{printable(value)}"' if isinstance(value, str) else printable(str(value))
