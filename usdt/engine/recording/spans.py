"""Recordings as traces of spans: the trace-event format of Chrome, which Perfetto reads.

The format ("Trace Event Format", the Chromium project) is an object whose ``traceEvents`` is a list
of objects with ``ph`` (X: a span with a duration, i: an instant, M: a name), ``ts`` and ``dur`` in
microseconds, ``pid`` and ``tid``.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any

from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.recording.pairing import OpenStarts, roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from usdt.engine.output.formatters.formatter import FieldSource

__all__ = ("ChromeFormatter", "Spans")

_MOST_OPEN = 1 << 18  # maximum open spans; beyond that, the oldest are shown as instants


class ChromeFormatter(JsonFormatter):
    """A formatter of records as tuples for :class:`Spans`.

    A tuple is (time in nanoseconds, (pid, tid, command, probe), arguments as a JSON object); that
    of a recorded span has its duration, too, and its arguments are those of both ends.
    """

    def context(self, pid: int, tid: int, cpu: int, comm: str, probe: str) -> Any:  # noqa: ARG002
        """Return the pid, tid, command and probe; also the command as JSON, and the pid."""
        return (pid, tid, comm, probe), quote(comm), pid

    def as_return(self, context: Any) -> Any:
        """Return the context unchanged: a return has the name of its probe."""
        return context

    def record(self, values: Sequence[FieldSource]) -> str:
        """Return the expression of the tuple."""
        if self._span is None:
            return f"(time, contexts[key][0], f'''{self.arguments(values)}''')"
        starts, ends = map(self.arguments, self._span.halves(values))
        args = f'{{{{"start": {starts}, "end": {ends}}}}}'
        return f"(time, contexts[key][0], f'''{args}''', {values[0].source})"


class _Start:
    __slots__ = ("args", "time", "who")

    def __init__(self, time: int, who: tuple[int, int, str, str], args: str) -> None:
        self.time = time
        self.who = who
        self.args = args


class Spans:
    """A converter from results of a ChromeFormatter to events of the trace-event format.

    Args:
        given: pairs of probes that begin and end a span, in addition to those found by name:
            ``x__start`` and ``x__done`` begin and end ``x``. So do begin, entry, enter, and end,
            return, exit, stop, finish.

    Attributes:
        unfinished, unbegun: number of begins and of ends without a counterpart.
    """

    def __init__(self, given: Iterable[tuple[str, str]] = ()) -> None:
        self.unfinished = self.unbegun = 0
        self._given = list(given)
        self._roles: dict[str, tuple[str, str]] = {}
        self._open: OpenStarts[_Start] = OpenStarts(_MOST_OPEN)
        self._named: set[tuple[int, int, str]] = set()

    def probes(self, names: Iterable[str]) -> None:
        """Set the names of all probes of the recording so far."""
        self._roles = roles(set(names), self._given)

    def events(self, batch: Iterable[tuple[Any, ...]]) -> Iterator[str]:
        """Yield JSON objects, one line each, without separators."""
        for time, who, args, *lasted in batch:
            pid, tid, comm, probe = who
            if who[:3] not in self._named:
                yield from self._names(pid, tid, comm)
            if lasted:
                yield _slice(time, lasted[0], who, probe, args)
                continue
            role, name = self._roles.get(probe, ("i", probe))
            if role == "i":
                yield _instant(time, who, args)
            elif role == "B":
                oldest = self._open.begin((tid, name), _Start(time, who, args))
                if oldest is not None:
                    yield self._given_up(oldest)
            else:
                yield self._end((tid, name), time, who, args)

    def rest(self) -> Iterator[str]:
        """Yield the spans that have no end, as instants."""
        yield from map(self._given_up, self._open.rest())

    def _names(self, pid: int, tid: int, comm: str) -> Iterator[str]:
        # A thread may change its name. The name of a process is that of its first thread.
        if len(self._named) > _MOST_OPEN:
            self._named.clear()
        self._named.add((pid, tid, comm))
        name = quote(comm)
        start = f'{{"ph": "M", "pid": {pid}, "tid": {tid}, "name": '
        if pid == tid or (pid, 0, "") not in self._named:
            self._named.add((pid, 0, ""))
            yield f'{start}"process_name", "args": {{"name": {name}}}}}'
        yield f'{start}"thread_name", "args": {{"name": {name}}}}}'

    def _end(
        self, key: tuple[int, str], time: int, who: tuple[int, int, str, str], args: str
    ) -> str:
        start = self._open.end(key)
        if start is None:
            self.unbegun += 1
            return _instant(time, who, args)
        both = f'{{"start": {start.args}, "end": {args}}}'
        return _slice(start.time, max(0, time - start.time), start.who, key[1], both)

    def _given_up(self, start: _Start) -> str:
        self.unfinished += 1
        return _instant(start.time, start.who, start.args)


def _slice(time: int, lasted: int, who: tuple[int, int, str, str], name: str, args: str) -> str:
    pid, tid, _, probe = who
    category = quote(probe.rpartition(":")[0])
    return (
        f'{{"ph": "X", "name": {quote(name)}, "cat": {category}, "ts": {_micro(time)}, '
        f'"dur": {_micro(lasted)}, "pid": {pid}, "tid": {tid}, "args": {args}}}'
    )


def _instant(time: int, who: tuple[int, int, str, str], args: str) -> str:
    pid, tid, _, probe = who
    return (
        f'{{"ph": "i", "s": "t", "name": {quote(probe)}, "ts": {_micro(time)}, '
        f'"pid": {pid}, "tid": {tid}, "args": {args}}}'
    )


def _micro(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"
