"""Events of several streams, in the order of CLOCK_REALTIME.

A stream keeps its own order. Of each stream one event is in memory.
"""

from __future__ import annotations

import heapq
import json
import shlex
from typing import TYPE_CHECKING, Any

from usdt.engine.merge.merge import decoded
from usdt.engine.merge.numbers import BadResultError, integer
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.wall_clock import WallClock
from usdt.engine.recording.blocks import RecordingError
from usdt.engine.recording.processes import RecordedStacks
from usdt.engine.recording.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from usdt.engine.merge.merge import Merge
    from usdt.engine.merge.source import Source
    from usdt.engine.merge.streams import Stream
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.recording.processes import Snapshots

__all__ = (
    "Event",
    "event_json",
    "event_of",
    "in_order",
    "is_event",
    "recorded",
    "replayed",
    "traced",
)

#: When it happened (CLOCK_REALTIME, nanoseconds), its machine, and its object.
Event = tuple[int, str, dict[str, Any]]


def is_event(found: dict[str, Any]) -> bool:
    """Return whether an object is an event or a span."""
    return "time" in found and "pid" in found


def in_order(streams: Iterable[Iterator[Event]]) -> Iterator[Event]:
    """Yield the events of all streams by their time."""
    return heapq.merge(*streams, key=lambda event: event[0])


def traced(lines: Iterable[bytes], merge: Merge, source: Source) -> Iterator[Event]:
    """Yield the events of a JSON stream; the merge takes its other objects."""
    for line in lines:
        source.line += 1
        try:
            found = decoded(line)
            event = event_of(found, source) if is_event(found) and not source.skipped else None
        except BadResultError as err:
            source.problem(f"{err}: skipped")
            continue
        if event is not None:
            yield event
        elif not is_event(found):
            merge.add_object(found, source)


def event_of(found: dict[str, Any], source: Source) -> Event:
    """Return the event of an object of a stream.

    Raises:
        BadResultError: it is none.
    """
    if source.clock is None:
        source.once("no header before the events: their times are taken as CLOCK_REALTIME")
    if not isinstance(found.get("probe"), str):
        raise BadResultError("probe: a text expected")
    host = found.get("host", source.host)
    return integer(found["time"]) + source.offset, str(host), found


def recorded(
    stream: Stream,
    merge: Merge,
    source: Source,
    symbols: Callable[[], Snapshots],
    *,
    lines: bool = False,
) -> Iterator[Event]:
    """Yield the events of a recording; see :func:`replayed`."""
    for batch in replayed(stream, merge, source, symbols, JsonFormatter, lines=lines):
        for line in batch:
            source.line += 1
            yield event_of(json.loads(line), source)


def replayed(
    stream: Stream,
    merge: Merge,
    source: Source,
    symbols: Callable[[], Snapshots],
    form: Callable[[RecordedStacks], Formatter],
    *,
    wanted: Callable[[str], bool] | None = None,
    lines: bool = False,
) -> Iterator[list[Any]]:
    """Yield the records of a recording up to its end, or to what is damaged, which is noted.

    Args:
        stream: the recording.
        merge: takes its header and its losses.
        source: where problems are noted.
        symbols: makes the symbolizer, if stacks were recorded.
        form: makes the formatter of records.
        wanted: whether the records of a probe are yielded; None yields all.
        lines: whether user stacks have source lines.
    """
    try:
        with Reader(stream.file, stream.name) as reader:
            if reader.header is None:
                source.problem("the recording ends within its header")
                return
            merge.add_object(reader.header.of_stream().to_json(), source)
            source.kernel, source.command = reader.header.kernel, shlex.join(reader.header.command)
            with RecordedStacks(
                symbols, reader.header.byteorder, reader.header.machine, lines=lines
            ) as stacks:
                yield from reader.replay(form(stacks), wanted, stacks)
            _close(reader, merge, source)
    except RecordingError as err:
        source.problem(err)


def _close(reader: Reader, merge: Merge, source: Source) -> None:
    if reader.closing is None:
        source.problem(f"the recording ends at byte {reader.cut} without a closing block")
        return
    for probe, lost, unread in reader.closing.lost:
        merge.add_object({"lost": lost, "unreadable": unread, "probe": probe}, source)


# ---------------------------------------------------------------- output


def event_json(event: Event, *, realtime: bool) -> str:
    """Return the line of an event in a merged stream, whose times are those of CLOCK_REALTIME."""
    time, host, found = event
    about: dict[str, Any] = {"host": host, **found, "time": time}
    if realtime:
        about["timestamp"] = WallClock(0).iso(time)
    return json.dumps(about) + "\n"
