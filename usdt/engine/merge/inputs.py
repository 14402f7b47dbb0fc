"""The files that are merged, of any kind: recordings, streams of events, streams of results."""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.engine.merge.events import in_order, is_event, recorded, traced
from usdt.engine.merge.merge import decoded
from usdt.engine.merge.numbers import BadResultError
from usdt.engine.merge.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from usdt.engine.merge.events import Event
    from usdt.engine.merge.merge import Merge
    from usdt.engine.merge.source import Source
    from usdt.engine.recording.processes import Snapshots

__all__ = ("Inputs",)

_EVENTS = ("trace", "spans", "record", "merge")  # commands; merge writes both events and results


class Inputs:
    """Files whose results are in a merge, and whose events follow.

    Args:
        merge: takes headers, results and losses.
        symbols: makes the symbolizer, if stacks were recorded.
        lines: whether user stacks of recordings have source lines.

    Attributes:
        sources: the streams, in the order of the files.
    """

    def __init__(
        self, merge: Merge, symbols: Callable[[], Snapshots], *, lines: bool = False
    ) -> None:
        self.sources: list[Source] = []
        self._merge = merge
        self._symbols = symbols
        self._lines = lines
        self._events: list[Iterator[Event]] = []

    def read(self, paths: Sequence[str], stack: contextlib.ExitStack) -> None:
        """Read all results; leave streams of events open, until the stack is closed.

        Raises:
            TargetError: a file cannot be read.
            TracingError: the merge is strict, and something is wrong with a stream.
        """
        allow_descriptors(len(paths))
        for path in paths:
            with contextlib.ExitStack() as one:
                stream = one.enter_context(Stream(path))
                source = self._merge.source(stream.name)
                self.sources.append(source)
                if self._begin(stream, source):
                    stack.push(one.pop_all())

    def events(self) -> Iterator[Event]:
        """Yield the events of all streams by their time."""
        return in_order(self._events)

    def _begin(self, stream: Stream, source: Source) -> bool:
        # Reads the header, and the results; returns whether the events of the stream follow.
        if stream.recording:
            found = recorded(stream, self._merge, source, self._symbols, lines=self._lines)
            self._follow(found)
            return True
        lines = stream.lines(source)
        for line in lines:
            if source.header is None and _announces_events(line):
                self._follow(traced(chain([line], lines), self._merge, source))
                return True
            self._merge.add(line, source)
        if not source.line:
            source.problem("empty")
        return False

    def _follow(self, events: Iterator[Event]) -> None:
        # Reads up to the first event, so that the header of each stream is known.
        first = next(events, None)
        if first is not None:
            self._events.append(chain([first], events))


def _announces_events(line: bytes) -> bool:
    try:
        found = decoded(line)
    except BadResultError:
        return False
    return is_event(found) or ("usdt" in found and found.get("command") in _EVENTS)
