"""Results of several machines, added up: counts, sums, minimum, maximum and buckets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ("Merged",)

_KEPT = ("probe", "request", "value", "start", "unit", "key", "names")
_MOST = 200_000  # results that are kept apart
_WIDTH = 52  # characters of the longest bar


class Merged:
    """The merged results of aggregations.

    Args:
        by_host: keep machines apart: the key begins with ``host``.
        top: show only so many results, the largest.

    Attributes:
        lost: hits that machines have lost, or whose results did not fit here.
        unreadable: hits that machines have skipped.
    """

    def __init__(self, *, by_host: bool = False, top: int | None = None) -> None:
        self._top = top
        self._by_host = by_host
        self._results: dict[Hashable, dict[str, Any]] = {}
        self.lost = 0
        self.unreadable = 0

    def add(self, host: str, found: dict[str, Any]) -> bool:
        """Add an object of a machine's stream; return whether it can be used."""
        try:
            return self._added(host, found)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError):
            return False

    def _added(self, host: str, found: dict[str, Any]) -> bool:
        if "lost" in found:
            lost, unreadable = int(found["lost"]), int(found.get("unreadable", 0))
            self.lost += max(0, lost)
            self.unreadable += max(0, unreadable)
            return True
        if "count" not in found or "probe" not in found:
            return True  # a kind of object that says nothing about results
        about = {name: found[name] for name in _KEPT if name in found}
        if self._by_host:
            about["key"] = {"host": host, **about.get("key", {})}
        same = json.dumps(about, sort_keys=True)
        numbers = _numbers(found)
        known = self._results.get(same)
        if known is not None:
            _sum(known, numbers)
        elif len(self._results) < _MOST:
            self._results[same] = {**about, **numbers}
        else:
            self.lost += numbers["count"]
        return True

    def results(self) -> list[dict[str, Any]]:
        """Return the results, the largest last, as in docs/json.md."""
        found = self._ordered()
        return [_shown(one) for one in (found[-self._top :] if self._top else found)]

    def left_out(self) -> dict[str, int]:
        """Return what ``top`` leaves out: keys, their count, and the largest; {} if nothing."""
        found = self._ordered()[: -self._top] if self._top else []
        counts = [one["count"] for one in found]
        if not counts:
            return {}
        return {"keys": len(counts), "count": sum(counts), "largest": max(counts)}

    def _ordered(self) -> list[dict[str, Any]]:
        return sorted(self._results.values(), key=lambda one: one["count"])

    def lines(self) -> list[str]:
        """Return the results as a table, or as histograms if they have buckets."""
        found = self.results()
        if any("buckets" in one for one in found):
            return [line for one in found for line in _histogram(one)]
        return _table(found)


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    numbers: dict[str, Any] = {"count": int(found["count"])}
    if "sum" in found:
        numbers |= {
            "min": None if found["min"] is None else int(found["min"]),
            "max": None if found["max"] is None else int(found["max"]),
            "sum": int(found["sum"]),
        }
    if "buckets" in found:
        numbers["buckets"] = {
            (one["low"], one["high"]): int(one["count"]) for one in found["buckets"]
        }
    return numbers


def _sum(known: dict[str, Any], more: dict[str, Any]) -> None:
    known["count"] += more["count"]
    if "sum" in known and "sum" in more:
        known["sum"] += more["sum"]
        for name, of in (("min", min), ("max", max)):
            both = known[name], more[name]
            known[name] = None if None in both else of(both)
    for edges, count in more.get("buckets", {}).items():
        buckets = known.setdefault("buckets", {})
        buckets[edges] = buckets.get(edges, 0) + count


def _shown(one: dict[str, Any]) -> dict[str, Any]:
    shown = dict(one)
    if "sum" in one and one["count"]:
        shown["avg"] = one["sum"] / one["count"]
    if "buckets" in one:
        order = sorted(one["buckets"].items(), key=lambda item: _edge(item[0][0]))
        shown["buckets"] = [
            {"low": low, "high": high, "count": count} for (low, high), count in order
        ]
    return shown


def _edge(low: float | None) -> float:
    return float("-inf") if low is None else low


def _table(found: list[dict[str, Any]]) -> list[str]:
    numbers = [
        name for name in ("count", "min", "avg", "max", "sum") if any(map(_has(name), found))
    ]
    keys = [*dict.fromkeys(name for one in found for name in one.get("key", {}))]
    rows = [[*(name.upper() for name in numbers), "PROBE", *map(printable, keys)]]
    for one in found:
        key = one.get("key", {})
        cells = [_text(one.get(name, "")) for name in numbers]
        rows.append([*cells, _text(one["probe"]), *(_text(key.get(name, "")) for name in keys)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    count = len(numbers)
    lines = []
    for row in rows if found else []:
        cells = [
            f"{text:>{max(8, width)}}" if index < count else f"{text:<{width}}"
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return lines


def _has(name: str) -> Any:
    return lambda one: name in one


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    if value is None:
        return "?"
    return printable(value if isinstance(value, str) else json.dumps(value))


def _histogram(one: dict[str, Any]) -> list[str]:
    key = "".join(
        f"  {printable(name)}={_text(value)}" for name, value in one.get("key", {}).items()
    )
    what = one.get("value", f"{one.get('unit', '')} from {one.get('start', '')}")
    lines = [f"{_text(one['probe'])}  {_text(what)}{key}\n"]
    most = max((bucket["count"] for bucket in one["buckets"]), default=0) or 1
    for bucket in one["buckets"]:
        low, high = bucket["low"], bucket["high"]
        name = f"[{'...' if low is None else low}, {'...' if high is None else high})"
        bar = "@" * (bucket["count"] * _WIDTH // most)
        lines.append(f"{name:<24}{bucket['count']:8} |{bar:<{_WIDTH}}|\n")
    return [*lines, "\n"]
