"""What a hit costs: of a trace and of aggregations, beside the empty uprobe and bpftrace."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from loop import PART, race
from tracers import BPFTRACE, bpftrace, empty_uprobe, our_aggregation, ours, their_aggregation

if TYPE_CHECKING:
    from loop import Series, Watch

# hist, stats and latency have percentiles, bpftrace's have none. latency: every second hit ends a
# time, and both tracers attach two probes at the place.
AGGREGATIONS = {
    "count": (our_aggregation("count", "loop:hit"), ("{ @ = count(); }",)),
    "count by key": (
        our_aggregation("count", "loop:hit", "--by", "arg0 % 64"),
        ("{ @[arg0 % 64] = count(); }",),
    ),
    "hist": (our_aggregation("hist", "loop:hit(arg0)"), ("{ @ = hist(arg0); }",)),
    "stats": (our_aggregation("stats", "loop:hit(arg0)"), ("{ @ = stats(arg0); }",)),
    "stats by key": (
        our_aggregation("stats", "loop:hit(arg0)", "--by", "arg0 % 64"),
        ("{ @[arg0 % 64] = stats(arg0); }",),
    ),
    "latency": (
        our_aggregation("latency", "loop:hit(arg0 % 2 == 0)", "loop:hit(arg0 % 2 == 1)"),
        (
            "/arg0 % 2 == 0/ { @s[tid] = nsecs; }",
            "/arg0 % 2 == 1/ { @ = hist(nsecs - @s[tid]); delete(@s[tid]); }",
        ),
    ),
}


def cost_of_a_hit(hits: int, rounds: int) -> None:
    """Measure the cost of a hit, and print it."""
    print(f"cost of a hit: {hits:,} hits {PART:,} in turn; medians of {rounds} rounds")
    alone: dict[str, Watch | None] = {
        "untraced": None,
        "empty uprobe": empty_uprobe,
        "usdt trace": ours,
    }
    _print("trace", race(alone, hits, rounds))
    if BPFTRACE:
        # Apart from the others: what it does about each event disturbs them.
        _print("trace", race({"usdt trace": ours, "bpftrace trace": bpftrace}, hits, rounds))
    for name, (mine, clauses) in AGGREGATIONS.items():
        watches: dict[str, Watch | None] = {"empty uprobe": empty_uprobe, f"usdt {name}": mine}
        if BPFTRACE:
            watches[f"bpftrace {name}"] = their_aggregation(*clauses)
        _print(name, race(watches, hits, rounds))


def _print(what: str, series: dict[str, Series]) -> None:
    for name, one in series.items():
        print(f"  {name:22} {one.median:9.1f} ns {one.spread:17}{_delivery(one)}")
    floor, we, they = (
        series.get(name) for name in ("empty uprobe", f"usdt {what}", f"bpftrace {what}")
    )
    if floor and we:
        print(f"  usdt / empty uprobe: {we.over(floor):.3f}, {we.above(floor):+.1f} ns")
    if we and they:
        print(f"  usdt / bpftrace: {we.over(they):.2f}, {we.above(they):+.1f} ns")


def _delivery(one: Series) -> str:
    last = [outcome for outcome in one.outcomes if outcome.delivered is not None]
    if not last:
        return ""
    delivered = statistics.median(outcome.delivered or 0 for outcome in last)
    lost = statistics.median(outcome.lost or 0 for outcome in last)
    cpu = statistics.median(outcome.cpu or 0 for outcome in last)
    return f"   {delivered:11,.0f} delivered {lost:11,.0f} lost   {cpu:6.2f} s CPU of the tracer"
