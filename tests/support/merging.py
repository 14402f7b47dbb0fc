"""Streams of results as machines write them, and what merging makes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.engine.aggregate.distribution import Distribution
from usdt.engine.aggregate.output.json import result_line
from usdt.engine.aggregate.results import Part, Result
from usdt.engine.aggregate.spec import Aggregation, Items, Linear, Log2
from usdt.engine.aggregate.values import Value
from usdt.engine.merge.merge import Merge
from usdt.engine.merge.output import (
    Choice,
    header_line,
    json_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("REALTIME", "SHAPES", "Hit", "again", "header", "merged", "stream", "total")

REALTIME = 1_700_000_000_000_000_000
Hit = tuple[str, int, int]  # host, key, value

SHAPES = {
    "count": Aggregation(),
    "stats": Aggregation(stats=True, resolution=5),
    "hist": Aggregation(stats=True, buckets=Log2(), resolution=5),
    "linear": Aggregation(stats=True, buckets=Linear(-5, 100, 10), resolution=3),
    "latency": Aggregation(stats=True, buckets=Log2(), resolution=5, pair=Items(), unit=1000),
    "fine": Aggregation(stats=True, buckets=Log2(), resolution=2),
    "heatmap": Aggregation(buckets=Log2()),
}


def header(host: str, **more: Any) -> str:
    about = {
        "usdt": 1,
        "host": host,
        "boot_id": host,
        "machine_id": None,
        "kernel": "6.18.5",
        "machine": "x86_64",
        "cpus": 2,
        "version": "0.1.0",
        "command": "count",
        "probes": ["p:q"],
        "by": ["arg0"],
        "clock": {"monotonic": 1000, "realtime": REALTIME, "error": 50},
    }
    return json.dumps(about | more) + "\n"


def value_of(values: Sequence[int], aggregation: Aggregation) -> Value:
    """What a machine would have computed of these values."""
    buckets: tuple[int, ...] = ()
    if aggregation.buckets is not None:
        counts = [0] * aggregation.buckets.number
        for value in values:
            counts[aggregation.buckets.bucket(value // aggregation.unit)] += 1
        buckets = tuple(counts)
    spread = None
    if aggregation.distribution is not None:
        of = aggregation.distribution
        found = [of.bucket(value) for value in values]
        spread = Distribution(of, {bucket: found.count(bucket) for bucket in {*found}})
    if not aggregation.stats:
        return Value(len(values), buckets=buckets)
    return Value(len(values), sum(values), min(values), max(values), buckets, spread)


def stream(hits: Iterable[Hit], kind: str, *, host: str) -> list[str]:
    """The stream of one machine that has seen these hits."""
    aggregation = SHAPES[kind]
    about = {"start": "p:s", "unit": "us"} if aggregation.pair is not None else {}
    keys: dict[int, list[int]] = {}
    for _, key, value in hits:
        keys.setdefault(key, []).append(value)
    lines = [header(host)]
    for key, values in keys.items():
        part = Part("arg0", str(key), str(key), number=key)
        result = Result("p:q", "p:q", (part,), value_of(values, aggregation))
        lines.append(result_line(result, aggregation, about, fine=kind == "fine"))
    return lines


def merged(*streams: Iterable[str], by_host: bool = False) -> Merge:
    problems: list[str] = []
    merge = Merge(by_host=by_host, warn=problems.append)
    for number, lines in enumerate(streams):
        source = merge.source(f"s{number}")
        for line in lines:
            merge.add(line, source)
    assert problems == []
    return merge


def again(merge: Merge) -> list[str]:
    """What merge --json prints, to be merged again."""
    return [header_line(merge), *json_lines(merge, Choice())]


def total(merge: Merge) -> int:
    """The number of all hits."""
    return sum(result.value.count for group in merge.groups() for result in group.results)
