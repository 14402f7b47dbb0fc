"""The incremental merge of result streams: memory grows with distinct keys, not with lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.engine.aggregate.pairs import UnpairedCounts
from usdt.engine.aggregate.results import LeftOut, Result
from usdt.engine.merge.keys import key_identity, part_of, preferred
from usdt.engine.merge.numbers import BadResultError, Sums, integer, raw_shape, shape_of, text
from usdt.engine.merge.source import Source
from usdt.engine.output.streams.header import HeaderError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from usdt.engine.merge.numbers import Shape
    from usdt.engine.output.streams.header import StreamHeader

__all__ = ("MAX_KEYS", "Group", "Merge", "Results", "decoded")

MAX_KEYS = 1_000_000
_MOST_TEXT = 256 << 20  # characters of all keys: a machine may send long ones
_MOST_PROBES = 10_000  # with losses
_MOST_SHAPES = 1000
_SHORTEST = 200  # characters of a text that a message shows


def _refuse(text: str) -> Any:
    raise BadResultError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def decoded(line: bytes | str) -> dict[str, Any]:
    """Return the object of a line.

    Raises:
        BadResultError: it is none.
    """
    try:
        text = line if isinstance(line, str) else line.decode()
        found = _DECODER.decode(text)
    except BadResultError:
        raise
    except UnicodeDecodeError as err:
        raise BadResultError("not JSON, but binary data") from err
    except (ValueError, RecursionError) as err:
        raise BadResultError("not JSON, or cut") from err
    if not isinstance(found, dict):
        raise BadResultError("no JSON object")
    return found


class _Entry:
    # One key: how it is shown, and its numbers. There may be a million of them.
    __slots__ = ("host", "key", "names", "probe", "request", "sums")

    def __init__(self, host: str, found: dict[str, Any]) -> None:
        self.host = host
        self.probe: str = sys.intern(found["probe"])
        self.request: str = sys.intern(found.get("request") or self.probe)
        self.key: tuple[Any, ...] = (*(found.get("key") or {}).values(),)
        self.names: dict[str, str] | None = None
        self.name(found)
        self.sums = Sums()

    def name(self, found: dict[str, Any]) -> None:
        for item, name in (found.get("names") or {}).items():
            self.names = self.names or {}
            self.names[item] = min(text(name), self.names.get(item, name))

    def result(self, shape: Shape, *, by_host: bool) -> Result:
        names = self.names or {}
        parts = (
            part_of(name, value, names.get(name, ""))
            for name, value in zip(shape.keys, self.key, strict=True)
        )
        host = (part_of("host", self.host),) if by_host else ()
        return Result(self.request, self.probe, (*host, *parts), self.sums.value(shape))


class Results(Sequence[Result]):
    """Results that are made each time they are asked for: all at once take ten times the memory.

    Args:
        entries: what they are made of.
        shape: what they have in common.
        by_host: whether their key begins with the host.
    """

    def __init__(self, entries: Sequence[_Entry], shape: Shape, *, by_host: bool) -> None:
        self._entries = entries
        self._shape = shape
        self._by_host = by_host

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, at: int) -> Result: ...
    @overload
    def __getitem__(self, at: slice) -> Results: ...
    def __getitem__(self, at: int | slice) -> Result | Results:
        if isinstance(at, slice):
            return Results(self._entries[at], self._shape, by_host=self._by_host)
        return self._entries[at].result(self._shape, by_host=self._by_host)

    def ordered(self, order: Callable[[Result], Any]) -> Results:
        """Return these results in another order."""
        ranks = [order(result) for result in self]
        places = sorted(range(len(ranks)), key=ranks.__getitem__)
        entries = [self._entries[place] for place in places]
        return Results(entries, self._shape, by_host=self._by_host)


@frozen
class Group:
    """Results that one table shows.

    Attributes:
        shape: what they have in common.
        end: the end of their interval, CLOCK_REALTIME, nanoseconds; None without intervals.
        results: the results, in no order.
        keys: the names of the parts of their keys.
        partial: whether a stream has only a part of the interval.
    """

    shape: Shape
    end: int | None
    results: Results
    keys: tuple[str, ...]
    partial: bool = False


class Merge:
    """Results and losses of several streams, added up.

    Use it so: ``source = merge.source("web1")``, then ``merge.add(line, source)`` for each line of
    its stream, in any order of streams; ``groups()`` at any time.

    Args:
        by_host: whether machines are kept apart: the key begins with ``host``.
        strict: whether a problem is an error.
        max_keys: the most keys that are kept; hits of others count as lost.
        whole: whether groups() leaves out intervals that a stream has only in part.
        wanted: whether the results and losses of a probe count; None takes all.
        warn: takes the line about a problem.

    Attributes:
        lost: (host, probe) → hits lost, hits skipped; the host is "" unless machines are apart.
        pairs: starts and ends without a counterpart.
        left_out: what streams have left out of their results.
        sources: the number of streams.
        hosts: the machines.
        results: the number of results that were merged.
        probes, commands, by: those of the headers.
        clock_error: the greatest error of a clock, nanoseconds.
        begins: the first and the last beginning of a stream, CLOCK_REALTIME, nanoseconds.
    """

    def __init__(
        self,
        *,
        by_host: bool = False,
        strict: bool = False,
        max_keys: int = MAX_KEYS,
        whole: bool = False,
        wanted: Callable[[str], bool] | None = None,
        warn: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.by_host = by_host
        self.lost: dict[tuple[str, str], list[int]] = {}
        self.pairs: UnpairedCounts | None = None
        self.left_out = LeftOut()
        self.sources = 0
        self.hosts: dict[str, None] = {}
        self.results = 0
        self.begins: tuple[int, int] | None = None
        self.probes: dict[str, None] = {}
        self.commands: dict[str, None] = {}
        self.by: dict[str, None] = {"host": None} if by_host else {}
        self.clock_error = 0
        self._strict = strict
        self._warn = warn
        self._max_keys = max_keys
        self._whole = whole
        self._wanted = wanted or (lambda _: True)
        self._text = 0
        self._keys = 0
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._shapes: list[Shape] = []
        self._partial: set[tuple[int, int | None]] = set()
        self._entries: dict[tuple[int, int | None], dict[Hashable, _Entry]] = {}
        self._which: dict[tuple[str, str | None, str], int] = {}
        self._runs: dict[Hashable, str] = {}
        self._described: dict[Hashable, str] = {}
        self._machines: dict[str, tuple[str, str]] = {}

    # ------------------------------------------------------------ input

    def source(self, name: str, host: str = "") -> Source:
        """Return a new stream.

        Args:
            name: what messages call it.
            host: the machine, until a header names it.
        """
        self.sources += 1
        return Source(name, self._problem, host)

    def _problem(self, text: str) -> None:
        if self._strict:
            raise TracingError(text)
        self._warn(text)

    def add(self, line: bytes | str, source: Source) -> None:
        """Add the next line of a stream.

        Raises:
            TracingError: the line cannot be used, and the merge is strict.
        """
        source.line += 1
        try:
            found = decoded(line)
        except BadResultError as err:
            source.problem(f"{err}: skipped")
            return
        self.add_object(found, source)

    def add_object(self, found: dict[str, Any], source: Source) -> None:
        """Add an object of a stream; the kinds that are not known are ignored.

        Raises:
            TracingError: the object cannot be used, and the merge is strict.
        """
        try:
            self._add(found, source)
        except (BadResultError, HeaderError) as err:
            source.problem(f"{err}: skipped")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as err:
            source.problem(f"a damaged object ({type(err).__name__}): skipped")

    def _add(self, found: dict[str, Any], source: Source) -> None:
        if "usdt" in found:
            self._header(found, source)
        elif source.skipped or ("probe" in found and not self._wanted(str(found["probe"]))):
            return
        elif "count" in found and "probe" in found:
            self._result(found, source)
        elif "lost" in found:
            self._lost(found, source)
        elif "unfinished" in found:
            self._unpaired(found)
        elif "left_out" in found:
            self._left_out(found["left_out"])
        elif "clock" in found and len(found) == 1:
            source.take_clock(found["clock"])
        elif "pid" in found and "time" in found:
            source.once("events among results: skipped")

    # ------------------------------------------------------------ headers

    def _header(self, found: dict[str, Any], source: Source) -> None:
        header = source.take_header(found)
        if header is None:
            return
        clock = header.clock
        if clock.monotonic:  # the times of a merged stream are those of CLOCK_REALTIME
            first, last = self.begins or (clock.realtime, clock.realtime)
            self.begins = min(first, clock.realtime), max(last, clock.realtime)
        self.clock_error = max(self.clock_error, clock.error)
        for host in found.get("hosts") or [source.host]:
            self.hosts[str(host)] = None
        self.probes.update(dict.fromkeys(header.probes))
        self.commands[header.command] = None
        self.by.update(dict.fromkeys(header.by or ()))
        self._check_machine(header, source)
        what = header.command, header.probes, header.by
        run = (header.boot_id, clock.monotonic, *what)
        if run in self._runs:
            source.problem(f"the same stream as {self._runs[run]}: its results are counted twice")
        elif clock.monotonic:
            self._runs[run] = source.name
        if what not in self._described:
            first_name = next(iter(self._described.values()), None)
            self._described[what] = source.name
            if first_name is not None:
                source.problem(f"another command, or other probes, than in {first_name}")

    def _check_machine(self, header: StreamHeader, source: Source) -> None:
        # Machines are kept apart by their names, which containers and clones may share.
        machine = header.machine_id or header.boot_id
        known, name = self._machines.setdefault(header.host, (machine, source.name))
        if self.by_host and machine and known and known != machine:
            source.problem(f"another machine than in {name} has the name {header.host}, too")

    # ------------------------------------------------------------ results

    def _result(self, found: dict[str, Any], source: Source) -> None:
        key = found.get("key") or {}
        host = source.host if self.by_host else ""
        if self.by_host and "host" in key:  # of a merged stream
            host = str(key["host"])
            key = {name: value for name, value in key.items() if name != "host"}
            found = found | {"key": key}
        number = self._shape(raw_shape(found, tuple(key)), source)
        shape = self._shapes[number]
        request = found.get("request")
        if not isinstance(found["probe"], str) or not isinstance(request, str | None):
            raise BadResultError("probe, request: texts expected")
        end = self._end(found, shape, source)
        which = found["probe"], request, host
        same = key_identity(key)
        entry = self._entries.get((number, end), {}).get((self._which.get(which, -1), *same))
        if entry is None:
            entry = _Entry(host, found)
            size = len(repr(key))
            if self._keys >= self._max_keys or self._text + size > _MOST_TEXT:
                self._note_lost(host, entry.probe, integer(found["count"]), 0)
                full = self._keys >= self._max_keys
                what = f"than {self._max_keys} keys" if full else f"text of keys than {_MOST_TEXT}"
                source.once(f"no space for more {what}: hits are lost")
                return
            self._text += size
            entry.sums.add(found, shape)
            entry.result(shape, by_host=False)  # it can be shown
            self._keys += 1
            entries = self._entries.setdefault((number, end), {})
            entries[self._which.setdefault(which, len(self._which)), *same] = entry
        else:
            entry.sums.add(found, shape)
            if key:
                entry.key = preferred(entry.key, (*key.values(),))
                entry.name(found)
        if found.get("partial"):
            self._partial.add((number, end))
        self.results += 1

    def _shape(self, raw: tuple[Any, ...], source: Source) -> int:
        number = self._numbers.get(raw)
        if number is None:
            shape = shape_of(raw)
            if len(self._shapes) >= _MOST_SHAPES:
                raise BadResultError("too many kinds of results")
            number = self._numbers[raw] = len(self._shapes)
            self._shapes.append(shape)
        if number and number not in source.shapes:
            source.shapes.add(number)
            difference = _difference(self._shapes[0], self._shapes[number])
            source.problem(f"{difference} than in the first stream: kept apart")
        return number

    def _end(self, found: dict[str, Any], shape: Shape, source: Source) -> int | None:
        # Returns the end of a result's interval. Machines read at slightly different times.
        if "time" not in found:
            return None
        if shape.interval is not None and "end" in found:
            return integer(found["end"])
        end = integer(found["time"]) + source.offset
        if source.clock is None:
            source.once("no header before the results: the times are taken as CLOCK_REALTIME")
        if shape.interval is None:
            return end
        length = round(shape.interval * 1e9)
        slot = (end + length // 2) // length * length
        if abs(end - slot) > length // 4:
            source.once("intervals do not begin with the epoch's: record them with --align")
        return slot

    # ------------------------------------------------------------ losses

    def _lost(self, found: dict[str, Any], source: Source) -> None:
        lost, unread = (max(0, integer(found.get(name, 0))) for name in ("lost", "unreadable"))
        host = str(found.get("host", source.host)) if self.by_host else ""
        self._note_lost(host, str(found["probe"]), lost, unread)

    def _note_lost(self, host: str, probe: str, lost: int, unread: int) -> None:
        same = (host, probe)
        if same not in self.lost and len(self.lost) >= _MOST_PROBES:
            same = ("", "*")
        counts = self.lost.setdefault(same, [0, 0])
        counts[0] += lost
        counts[1] += unread

    def _unpaired(self, found: dict[str, Any]) -> None:
        names = ("unfinished", "unmatched", "deep")
        known = self.pairs or UnpairedCounts(0, 0, 0)
        more = [integer(found.get(name, 0)) for name in names]
        counts = (getattr(known, name) + max(0, n) for name, n in zip(names, more, strict=True))
        self.pairs = UnpairedCounts(*counts)

    def _left_out(self, found: dict[str, Any]) -> None:
        more = [integer(found[name]) for name in ("keys", "count", "largest")]
        if min(more) < 0:
            raise BadResultError("left_out: a number is negative")
        self.left_out = self.left_out.plus(LeftOut(*more))

    # ------------------------------------------------------------ output

    @property
    def partial(self) -> int:
        """The number of intervals that a stream has only in part."""
        return len({end for _, end in self._partial})

    def groups(self) -> list[Group]:
        """Return the merged results: kinds in the order of their streams, intervals in time."""
        found = []
        for number, end in sorted(self._entries, key=lambda one: (one[0], one[1] or 0)):
            if self._whole and (number, end) in self._partial:
                continue
            shape = self._shapes[number]
            entries = self._entries[number, end].values()
            results = Results([*entries], shape, by_host=self.by_host)
            keys = ("host", *shape.keys) if self.by_host else shape.keys
            found.append(Group(shape, end, results, keys, (number, end) in self._partial))
        return found


def _difference(first: Shape, other: Shape) -> str:
    if first.keys != other.keys:
        return "other keys"
    if first.what != other.what:
        return f"another value, {other.what[:_SHORTEST]!r},"
    if first.interval != other.interval:
        return "another interval"
    if first.aggregation.buckets != other.aggregation.buckets:
        return "other buckets"
    return "another kind of results"
