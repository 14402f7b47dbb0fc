"""Results as JSON lines; docs/json.md describes them."""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any

from usdt.engine.aggregate.distribution import PERCENTILES
from usdt.engine.aggregate.output.text import in_unit, spanned
from usdt.engine.aggregate.spec import Linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from usdt.engine.aggregate.distribution import Distribution
    from usdt.engine.aggregate.pairs import UnpairedCounts
    from usdt.engine.aggregate.results import LeftOut, Result
    from usdt.engine.aggregate.spec import Aggregation, Buckets
    from usdt.engine.aggregate.values import Value
    from usdt.engine.runtime.session import Lost

__all__ = (
    "bucket_list",
    "bucket_members",
    "left_out_line",
    "missed_line",
    "pairs_line",
    "result_line",
)


def result_line(
    result: Result, aggregation: Aggregation, about: Mapping[str, Any], *, fine: bool = False
) -> str:
    """Return the line of one result.

    Args:
        result: the result.
        aggregation: what was aggregated.
        about: the members common to all results.
        fine: whether the buckets are those of the distribution.
    """
    head = "".join(f"{quote(name)}: {json.dumps(value)}, " for name, value in about.items())
    key = ""
    if result.key:
        parts = ", ".join(f"{quote(part.name)}: {part.json}" for part in result.key)
        key = f'"key": {{{parts}}}, '
        named = [f"{quote(part.name)}: {quote(part.named)}" for part in result.key if part.named]
        if named:
            key += f'"names": {{{", ".join(named)}}}, '
    which = f'"probe": {quote(result.name)}, '
    if result.probe != result.name:
        which += f'"request": {quote(result.probe)}, '
    if aggregation.counts_alone:
        return f'{{{head}{which}{key}"count": {result.value.count}}}\n'
    numbers = json.dumps(_numbers(result.value, aggregation, fine=fine))[1:-1]
    return f"{{{head}{which}{key}{numbers}}}\n"


def _numbers(value: Value, aggregation: Aggregation, *, fine: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"count": value.count}
    if aggregation.stats:
        found["min"] = value.min
        found["avg"] = value.average
        found["max"] = value.max
        found["sum"] = value.sum
    if value.distribution is not None:
        for name, percent in PERCENTILES.items():
            found[name] = value.percentile(percent)
        found["error"] = value.error
        if value.distribution.unplaced:
            found["unplaced"] = value.distribution.unplaced
        found["distribution"] = _sparse(value.distribution)
    if fine and value.distribution is not None:
        found["resolution"] = value.distribution.buckets.resolution
        found["buckets"] = _fine_buckets(value.distribution, aggregation.unit)
    elif aggregation.buckets is not None:
        found |= bucket_members(value.buckets, aggregation.buckets)
    return found


def _sparse(distribution: Distribution) -> list[tuple[int, int]]:
    # The lowest value of each bucket with hits, and their number.
    edges = distribution.buckets.edges
    return [(edges(bucket)[0], hits) for bucket, hits in sorted(distribution.counts.items())]


def _fine_buckets(distribution: Distribution, unit: int) -> list[dict[str, Any]]:
    # Only buckets with hits: there are thousands.
    found = []
    for bucket in sorted(distribution.counts):
        low, high = (in_unit(edge, unit) for edge in distribution.buckets.edges(bucket))
        found.append({"low": low, "high": high, "count": distribution.counts[bucket]})
    return found


def bucket_members(counts: tuple[int, ...], buckets: Buckets) -> dict[str, Any]:
    """Return the members that describe buckets; equal widths are known from them."""
    found: dict[str, Any] = {"buckets": bucket_list(counts, buckets)}
    if not isinstance(buckets, Linear):
        return found
    return {"linear": {name: getattr(buckets, name) for name in ("low", "high", "step")}} | found


def bucket_list(counts: tuple[int, ...], buckets: Buckets) -> list[dict[str, Any]]:
    """Return every bucket from the first with hits to the last."""
    first, last = spanned(counts)
    found = []
    for index in range(first, last + 1):
        low, high = buckets.edges(index)
        found.append({"low": low, "high": high, "count": counts[index]})
    return found


def missed_line(item: Lost) -> str:
    """Return the line about hits of a probe that could not be aggregated."""
    return json.dumps({"lost": item.lost, "unreadable": item.unread, "probe": item.probe}) + "\n"


def pairs_line(pairs: UnpairedCounts) -> str:
    """Return the line about starts and ends without a counterpart."""
    found = {"unfinished": pairs.unfinished, "unmatched": pairs.unmatched, "deep": pairs.deep}
    return json.dumps(found) + "\n"


def left_out_line(left_out: LeftOut, about: Mapping[str, Any]) -> str:
    """Return the line about the results that ``--top`` has left out; ``about`` comes first."""
    found = {"keys": left_out.keys, "count": left_out.count, "largest": left_out.largest}
    return json.dumps({**about, "left_out": found}) + "\n"
