"""Merged results as text and as a mergeable stream, by the formatters of the live commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.base.terminal.look import PLAIN
from usdt.base.version import VERSION
from usdt.engine.aggregate.columns import columns
from usdt.engine.aggregate.output.heatmap import Heatmap
from usdt.engine.aggregate.output.json import left_out_line, missed_line, pairs_line, result_line
from usdt.engine.aggregate.output.text import duration, folded_lines, histogram_lines, table_lines
from usdt.engine.aggregate.results import LeftOut, order_by, top_of
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.output.streams.header import Clock, StreamHeader
from usdt.engine.output.wall_clock import WallClock, time_of_day
from usdt.engine.runtime.session import Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.base.terminal.look import Look
    from usdt.engine.aggregate.results import Result
    from usdt.engine.merge.merge import Group, Merge

__all__ = (
    "Choice",
    "closing_line",
    "header_line",
    "json_lines",
    "lines_of",
    "loss_lines",
    "text_lines",
)

_SECOND = 1_000_000_000
_WHEN = ("time", "interval", "partial")  # members of an interval
_MOST_HOSTS = 10_000  # that the header names


@frozen
class Choice:
    """How results are shown.

    Attributes:
        top: maximum number of results in each table.
        sort: the column to sort by.
        hist: whether times with keys are shown as histograms.
        folded: whether stacks are shown as folded lines.
        look: the colours of text, and its width.
        realtime: whether to show dates.
    """

    top: int | None = None
    sort: str | None = None
    hist: bool = False
    folded: bool = False
    look: Look = PLAIN
    realtime: bool = False


def lines_of(merge: Merge, choice: Choice, *, as_json: bool) -> Iterator[str]:
    """Yield the lines of the results as they are made, as text or as JSON.

    Raises:
        TracingError: there is no column to sort by; no line was yielded.
    """
    groups = merge.groups()
    for group in groups:
        _order(group, choice)
    return (_json_lines if as_json else _text_lines)(merge, groups, choice)


def text_lines(merge: Merge, choice: Choice) -> list[str]:
    """Return the merged results as text.

    Raises:
        TracingError: there is no column to sort by.
    """
    return [*lines_of(merge, choice, as_json=False)]


def json_lines(merge: Merge, choice: Choice) -> list[str]:
    """Return the merged results and losses as the lines of a stream, behind its header.

    Raises:
        TracingError: there is no column to sort by.
    """
    return [*lines_of(merge, choice, as_json=True)]


def _order(group: Group, choice: Choice) -> Callable[[Result], Any]:
    weighted = choice.folded and group.shape.aggregation.weighted
    sort = choice.sort or ("sum" if weighted else None)
    return order_by(columns(group.shape.aggregation), group.keys, sort)


def _chosen(group: Group, choice: Choice) -> tuple[Sequence[Result], LeftOut]:
    return top_of(group.results.ordered(_order(group, choice)), choice.top)


# ---------------------------------------------------------------- text


def _text_lines(_merge: Merge, groups: Sequence[Group], choice: Choice) -> Iterator[str]:
    for group in groups:
        if not group.shape.heatmap:
            yield from _table_lines(group, choice)
    yield from _heatmaps([group for group in groups if group.shape.heatmap], choice)


def _table_lines(group: Group, choice: Choice) -> Iterator[str]:
    shown, _ = _chosen(group, choice)
    shape = group.shape
    aggregation = shape.aggregation
    if choice.folded:
        yield from folded_lines(shown, weighted=aggregation.weighted)
        return
    if group.end is not None:
        yield _clock(group.end, shape.interval, choice) + _mark(group) + "\n"
    single = aggregation.pair is not None and bool(group.keys) and not choice.hist
    if aggregation.buckets is None or single:
        yield from table_lines(shown, columns(aggregation), choice.look)
    else:
        what = escape(shape.what)
        for result in shown:
            yield from histogram_lines(
                result, aggregation, what=what, fine=shape.fine, look=choice.look
            )
    if group.end is not None:
        yield "\n"


def _mark(group: Group) -> str:
    return "  (partial)" if group.partial else ""


def _clock(end: int, interval: float | None, choice: Choice) -> str:
    if choice.realtime:
        return WallClock(0).iso(end)
    return time_of_day(end / _SECOND, interval)


def _heatmaps(groups: Sequence[Group], choice: Choice) -> list[str]:
    # A map for each kind, probe and host, below a line that names it if there are several.
    rows: dict[tuple[Any, ...], list[tuple[Group, Result]]] = {}
    for group in groups:
        for result in group.results:
            host = tuple(part.text for part in result.key)
            rows.setdefault((group.shape, result.probe, host), []).append((group, result))
    lines: list[str] = []
    for (shape, probe, host), found in rows.items():
        if len(rows) > 1:
            lines.append("  ".join((escape(probe), *host)) + "\n")
        unit = shape.unit or escape(shape.value)

        def clock(seconds: float, interval: float | None = shape.interval) -> str:
            return _clock(round(seconds * _SECOND), interval, choice)

        heatmap = Heatmap(shape.aggregation.buckets, unit, look=choice.look, clock=clock)
        for group, result in found:
            end = (group.end or 0) / _SECOND
            lines += heatmap.row(end, result.value.buckets, mark=_mark(group))
        lines += heatmap.legend()
    return lines


# ---------------------------------------------------------------- JSON


def header_line(merge: Merge) -> str:
    """Return the header of a merged stream: its times are those of CLOCK_REALTIME."""
    hosts = [*merge.hosts]
    by = [*merge.by]
    header = StreamHeader(
        host=hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts",
        boot_id="",
        machine_id=None,
        kernel="",
        machine="",
        cpus=0,
        version=VERSION,
        command=next(iter(merge.commands), "") if len(merge.commands) == 1 else "merge",
        probes=tuple(merge.probes),
        by=tuple(by) or None,
        clock=Clock(0, 0, merge.clock_error),
    )
    more = {"hosts": hosts[:_MOST_HOSTS], "streams": merge.sources}
    return json.dumps(header.to_json() | more) + "\n"


def _json_lines(merge: Merge, groups: Sequence[Group], choice: Choice) -> Iterator[str]:
    for group in groups:
        shown, left_out = _chosen(group, choice)
        about = _about(group, choice)
        for result in shown:
            yield result_line(result, group.shape.aggregation, about, fine=group.shape.fine)
        if left_out.keys:
            when: dict[str, Any] = {k: v for k, v in about.items() if k in _WHEN}
            yield left_out_line(left_out, when)
    if merge.left_out.keys:
        yield left_out_line(merge.left_out, {})
    yield from _lost_json(merge)


def _about(group: Group, choice: Choice) -> dict[str, Any]:
    shape = group.shape
    about: dict[str, Any] = {}
    if group.end is not None:
        about["time"] = group.end
        if shape.interval is not None:
            about["interval"] = shape.interval
        if group.partial:
            about["partial"] = True
        if choice.realtime:
            about["timestamp"] = WallClock(0).iso(group.end)
    if shape.aggregation.pair is not None:
        about |= {"start": shape.start, "unit": shape.unit}
    elif shape.value:
        about["value"] = shape.value
    return about


def _lost_json(merge: Merge) -> list[str]:
    lines = []
    for (host, probe), (lost, unread) in merge.lost.items():
        line = missed_line(Lost(probe, lost, unread))
        lines.append(f'{{"host": {json.dumps(host)}, {line[1:]}' if host else line)
    return lines + ([] if merge.pairs is None else [pairs_line(merge.pairs)])


# ---------------------------------------------------------------- what is missing


def loss_lines(merge: Merge) -> list[str]:
    """Return what the streams lack, for people: losses, starts without end, what was left out."""
    lines = []
    for (host, probe), (lost, unread) in merge.lost.items():
        where = f"{host}: {probe}" if host else probe
        if lost:
            lines.append(f"{where}: {_plural(lost, 'hit')} lost")
        if unread:
            lines.append(f"{where}: skipped {_plural(unread, 'hit')}: a value is unreadable")
    pairs = merge.pairs
    if pairs is not None:
        numbers = (
            (pairs.unfinished, "start", "without an end"),
            (pairs.unmatched, "end", "without a start"),
            (pairs.deep, "start", "nested deeper than 16: not measured"),
        )
        lines += [f"{_plural(n, noun)} {what}" for n, noun, what in numbers if n]
    left_out = merge.left_out
    if left_out.keys:
        lines.append(
            f"the streams left out {_plural(left_out.keys, 'result')} with "
            f"{_plural(left_out.count, 'hit')} (--top): a count may be up to {left_out.largest} "
            "too low"
        )
    return lines


def closing_line(merge: Merge, events: int) -> str:
    """Return how much was merged, and how far the streams are apart."""
    what = []
    if events or not merge.results:
        what.append(_plural(events, "event"))
    if merge.results:
        what.append(_plural(merge.results, "result"))
    line = f"{', '.join(what)} of {_plural(merge.sources, 'stream')}"
    if merge.hosts:
        line += f" from {_plural(len(merge.hosts), 'host')}"
    if merge.begins is not None and merge.sources > 1:
        line += f", begun within {duration(merge.begins[1] - merge.begins[0])}"
    lost = sum(counts[0] for counts in merge.lost.values())
    return f"{line}, {lost} lost"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
