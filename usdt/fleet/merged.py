"""Results of several machines, added up: counts, sums, minimum, maximum and buckets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ("Merged",)

_KEPT = ("probe", "request", "value", "start", "unit", "key", "names")
_PAIRS = ("unfinished", "unmatched", "deep")
# Limits for what a machine may claim: results that are kept apart, characters of what tells them
# apart, buckets of one result, and numbers.
_MOST = 200_000
_MOST_TEXT = 64 << 20
_MOST_BUCKETS = 20_000
_LARGEST = 1 << 128
_WIDTH = 52  # characters of the longest bar


class Merged:
    """The merged results of aggregations.

    Args:
        by_host: keep machines apart: the key begins with ``host``.
        top: show only so many results, the largest.

    Attributes:
        lost: hits that machines have lost, or whose results did not fit here.
        unreadable: hits that machines have skipped.
        pairs: starts without end, ends without start, and starts nested too deeply; empty if no
            machine has said so.
    """

    def __init__(self, *, by_host: bool = False, top: int | None = None) -> None:
        self._top = top
        self._by_host = by_host
        self._results: dict[Hashable, dict[str, Any]] = {}
        self._text = 0  # characters
        self.pairs: dict[str, int] = {}
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
            lost, unreadable = _number(found["lost"]), _number(found.get("unreadable", 0))
            self.lost += lost
            self.unreadable += unreadable
        elif "unfinished" in found:
            for name, number in [(name, _number(found.get(name, 0))) for name in _PAIRS]:
                self.pairs[name] = self.pairs.get(name, 0) + number
        elif "count" in found and "probe" in found:
            self._add_result(host, found)
        return True  # other kinds of objects say nothing about results

    def _add_result(self, host: str, found: dict[str, Any]) -> None:
        about = {name: found[name] for name in _KEPT if name in found}
        if not isinstance(about.get("key", {}), dict):
            raise TypeError
        if self._by_host:
            about["key"] = {"host": host, **about.get("key", {})}
            about["key"]["host"] = host  # whatever the machine calls itself
        same = json.dumps(about, sort_keys=True)
        numbers = _numbers(found)
        known = self._results.get(same)
        if known is not None:
            _sum(known, numbers)
        elif len(self._results) < _MOST and self._text + len(same) < _MOST_TEXT:
            self._text += len(same)
            self._results[same] = {**about, **numbers}
        else:
            self.lost += numbers["count"]

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


def _number(value: Any, *, least: int = 0) -> int:
    # Returns an integer that a machine has sent.
    if not isinstance(value, int) or not least <= value < _LARGEST:
        raise ValueError
    return value


def _numbers(found: dict[str, Any]) -> dict[str, Any]:
    numbers: dict[str, Any] = {"count": _number(found["count"])}
    if "sum" in found:
        for name in ("min", "max", "sum"):
            value = found[name]
            unknown = value is None and name != "sum"
            numbers[name] = None if unknown else _number(value, least=-_LARGEST)
    if "buckets" in found:
        buckets = found["buckets"]
        numbers["buckets"] = {
            (_edge_of(one["low"]), _edge_of(one["high"])): _number(one["count"]) for one in buckets
        }
    if len(numbers.get("buckets", ())) > _MOST_BUCKETS:
        raise ValueError
    return numbers


def _edge_of(value: Any) -> float | None:
    # Returns an edge of a bucket; None: it is open.
    if value is None or (isinstance(value, int | float) and -_LARGEST < value < _LARGEST):
        return value
    raise ValueError


def _sum(known: dict[str, Any], more: dict[str, Any]) -> None:
    buckets = known.get("buckets", {})
    new = more.get("buckets", {})
    # The same question has the same columns everywhere.
    if known.keys() - _KEPT != more.keys() or len(buckets.keys() | new.keys()) > _MOST_BUCKETS:
        raise ValueError
    known["count"] += more["count"]
    if "sum" in known:
        known["sum"] += more["sum"]
        for name, of in (("min", min), ("max", max)):
            both = known[name], more[name]
            known[name] = None if None in both else of(both)
    for edges, count in new.items():
        buckets[edges] = buckets.get(edges, 0) + count


def _shown(one: dict[str, Any]) -> dict[str, Any]:
    shown = dict(one)
    if "sum" in one and one["count"]:
        shown["avg"] = one["sum"] / one["count"]
    if "buckets" in one:
        order = sorted(one["buckets"].items(), key=lambda item: _lowest(item[0][0]))
        shown["buckets"] = [
            {"low": low, "high": high, "count": count} for (low, high), count in order
        ]
    return shown


def _lowest(low: float | None) -> float:
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
