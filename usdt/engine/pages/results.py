"""Merged results for a page: tables, histograms, rates over time and heatmaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.base.frozen import replace
from usdt.engine.aggregate.columns import columns
from usdt.engine.aggregate.output.text import duration, label, spanned
from usdt.engine.aggregate.results import order_by
from usdt.engine.aggregate.spec import LogLinear
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.pages.latencies import OTHERS
from usdt.engine.pages.texts import NAME, shortened
from usdt.engine.pages.timebins import TimeBins

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from usdt.engine.aggregate.distribution import Distribution
    from usdt.engine.aggregate.results import Part, Result
    from usdt.engine.merge.merge import Group
    from usdt.engine.merge.numbers import Shape
    from usdt.engine.pages.texts import Texts

__all__ = ("results_json",)

_KINDS = 10
_ROWS = 200  # of a kind
_HISTOGRAMS = 6
_COARSE = 3  # resolution of histograms
_SERIES = 20
_BINS = 400
_CELLS = 20_000
_FRAMES = 40
_LONGEST = 4000  # characters of a part of a key


def results_json(groups: Sequence[Group], texts: Texts) -> tuple[list[dict[str, Any]], int]:
    """Return the data of the page: one object for each kind of results.

    Args:
        groups: the results, those of each interval in a group of their own.
        texts: bounds the texts.

    Returns:
        The data, and the number of kinds that it does not have.
    """
    kinds: dict[Shape, list[Group]] = {}
    for group in groups:
        kinds.setdefault(group.shape, []).append(group)
    shown = [_kind(found, texts) for found in [*kinds.values()][:_KINDS]]
    return shown, len(kinds) - len(shown)


def _kind(groups: Sequence[Group], texts: Texts) -> dict[str, Any]:
    shape, keys = groups[0].shape, groups[0].keys
    aggregation = shape.aggregation
    found = columns(aggregation)
    order = order_by(found, keys, None)
    results: Sequence[Result] = (
        sorted(_totals(groups), key=order) if len(groups) > 1 else groups[0].results.ordered(order)
    )
    results = results[::-1]
    shown = results[:_ROWS]
    made: dict[str, Any] = {
        "what": shortened(escape(shape.what)),
        "columns": [{"name": column.name, "time": column.time} for column in found],
        "keys": [shortened(escape(key)) for key in keys],
        "rows": [
            {
                "probe": texts.fitting(result.probe, NAME),
                "numbers": [_number(column.number(result.value)) for column in found],
                "keys": [texts.fitting(_key(part), _LONGEST) for part in result.key],
            }
            for result in shown
        ],
        "all": len(results),
    }
    if aggregation.buckets is not None or shape.fine:
        made["histograms"] = [_histogram(result, shape) for result in results[:_HISTOGRAMS]]
    if groups[0].end is not None:
        made |= _over_time(groups, results)
    return made


def _totals(groups: Sequence[Group]) -> list[Result]:
    # Adds the intervals up.
    found: dict[Hashable, Result] = {}
    for group in groups:
        for result in group.results:
            same = _same(result)
            known = found.get(same)
            value = result.value if known is None else known.value.plus(result.value)
            found[same] = replace(result, value=value)
    return [*found.values()]


def _same(result: Result) -> Hashable:
    return result.probe, result.name, tuple(part.json for part in result.key)


def _number(value: float | None) -> float | None:
    # JavaScript has no larger integers.
    return float(value) if isinstance(value, int) and abs(value) > 1 << 53 else value


def _key(part: Part) -> str:
    if part.frames:
        more = len(part.frames) - _FRAMES
        return "\n".join([*part.frames[:_FRAMES], *([f"… {more} more"] if more > 0 else [])])
    return f"{part.text} ({part.named})" if part.named else part.text


def _title(result: Result) -> str:
    keys = [f"{escape(part.name)}={_key(part).partition(chr(10))[0]}" for part in result.key]
    return shortened("  ".join([escape(result.probe), *keys]))


# ---------------------------------------------------------------- histograms


def _histogram(result: Result, shape: Shape) -> dict[str, Any]:
    value, buckets = result.value, shape.aggregation.buckets
    bars: list[tuple[str, int]] = []
    if shape.fine and value.distribution is not None:
        bars = _fine(value.distribution, time=bool(shape.unit))
    elif buckets is not None:
        first, last = spanned(value.buckets)
        bars = [(_bucket(shape, index), value.buckets[index]) for index in range(first, last + 1)]
    return {
        "title": _title(result),
        "labels": [name for name, _ in bars],
        "counts": [count for _, count in bars],
    }


def _fine(spread: Distribution, *, time: bool) -> list[tuple[str, int]]:
    coarse = LogLinear(min(_COARSE, spread.buckets.resolution))
    counts: dict[int, int] = {}
    for bucket, count in spread.counts.items():
        wider = coarse.bucket(spread.buckets.edges(bucket)[0])
        counts[wider] = counts.get(wider, 0) + count
    lows = [(coarse.edges(bucket)[0], count) for bucket, count in sorted(counts.items())]
    return [(duration(low) if time else str(low), count) for low, count in lows]


def _bucket(shape: Shape, index: int) -> str:
    buckets = shape.aggregation.buckets
    if buckets is None:
        return ""
    if not shape.unit:
        return label(buckets, index)
    edges = buckets.edges(index)
    low, high = (
        None if edge is None else duration(edge * shape.aggregation.unit) for edge in edges
    )
    return f"[{low}, {high or '...'})" if low is not None else f"(..., {high})"


# ---------------------------------------------------------------- over time


def _over_time(groups: Sequence[Group], results: Sequence[Result]) -> dict[str, Any]:
    lanes = {_same(result): lane for lane, result in enumerate(results[:_SERIES])}
    shape = groups[0].shape
    width = round((shape.interval or 1) * 1e9)
    rates, maps = TimeBins(_BINS, width=width), TimeBins(_BINS, _CELLS, width)
    for group in groups:
        end = max(0, (group.end or 0) - 1)  # within the interval, not at the next one's start
        for result in group.results:
            if result.value.count > 0:
                rates.add(end, lanes.get(_same(result), _SERIES), result.value.count)
            for bucket, count in enumerate(result.value.buckets if shape.heatmap else ()):
                if count > 0:
                    maps.add(end, bucket, count)
    made = {"rates": _rates(rates, [_title(result) for result in results[:_SERIES]])}
    if maps.cells:
        made["heatmap"] = _heatmap(maps, shape)
    return made


def _rates(rates: TimeBins, titles: list[str]) -> dict[str, Any]:
    rows = [[0] * rates.bins for _ in range(_SERIES + 1)]
    for at, lane, count in rates.rows():
        rows[lane][at] += count
    names = [*titles, OTHERS] if any(rows[_SERIES]) else titles
    return {
        "start": rates.first * rates.width / 1e6,
        "width": rates.width / 1e6,
        "names": names,
        "rows": [row for row, _ in zip(rows, names, strict=False)],
    }


def _heatmap(maps: TimeBins, shape: Shape) -> dict[str, Any]:
    cells = maps.rows()
    lowest = min(bucket for _, bucket, _ in cells)
    highest = max(bucket for _, bucket, _ in cells)
    return {
        "start": maps.first * maps.width / 1e6,
        "width": maps.width / 1e6,
        "bins": maps.bins,
        "labels": [_bucket(shape, bucket) for bucket in range(lowest, highest + 1)],
        "cells": [number for at, bucket, n in cells for number in (at, bucket - lowest, n)],
    }
