"""Conversion of rows to results: symbols for stacks and addresses, order, limit."""

from __future__ import annotations

import functools
import json
from array import array
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, Any, overload

from usdt.arch.locations import Unreadable
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen, replace
from usdt.engine.aggregate.columns import columns
from usdt.engine.aggregate.keys import Address, CgroupId, PythonStack, Stack
from usdt.engine.aggregate.rows import PlainRows
from usdt.engine.compiler.value_names import NamedNumber
from usdt.engine.language.tree import StackKind
from usdt.engine.output.cgroup_names import json_text, plain_text
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.output.frames import Stack as Frames
from usdt.engine.output.frames import frame_json, frame_text, identity
from usdt.engine.output.stacks import (
    incomplete,
    no_frames,
    no_frames_folded,
    stack_folded,
    stack_json,
    stack_lines,
)
from usdt.engine.output.truncated import mark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping

    from usdt.engine.aggregate.columns import Column
    from usdt.engine.aggregate.planning import Source
    from usdt.engine.aggregate.rows import Row
    from usdt.engine.aggregate.session import AggregateSession
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.aggregate.values import Value
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.output.frames import Frame
    from usdt.engine.output.stacks import StackResolver

__all__ = (
    "LeftOut",
    "Part",
    "PlainResults",
    "Result",
    "Results",
    "frames_part",
    "order",
    "order_by",
    "top_of",
)

_KEY = "key"  # of --sort
_SYNONYMS = {"total": "sum", "sum": "total"}


@frozen
class Part:
    """One part of a result's key.

    Attributes:
        name: the item as written.
        text: human-readable text, on one line; empty for a stack.
        made_json: the part as JSON; of a stack with frames it is made when it is asked for.
        frames: for a stack, human-readable frames, innermost first.
        folded: for a stack, ``outer;…;inner``.
        named: the name of a number that has one.
        number: the part, if it is a number.
        identity: for a stack or an address, what merges it with those of other processes.
        stack: for a stack, its frames.
    """

    name: str
    text: str
    made_json: str
    frames: tuple[str, ...] = ()
    folded: str = ""
    named: str = ""
    number: float | None = None
    identity: Hashable = None
    stack: list[Frame] | None = None

    @property
    def json(self) -> str:
        """The part as JSON."""
        return self.made_json if self.stack is None else stack_json(self.stack, shared=True)

    @property
    def merged_by(self) -> Hashable:
        """What parts have in common that are one."""
        return self if self.identity is None else self.identity


@frozen
class Result:
    """One result as it is shown.

    Attributes:
        probe: name of the probe; with its items if several requests have results at it.
        name: name of the probe only.
        key: parts of the key.
        value: the aggregated value.
    """

    probe: str
    name: str
    key: tuple[Part, ...]
    value: Value


@frozen
class LeftOut:
    """Results that are not shown, because others are larger.

    Attributes:
        keys: the number of these results.
        count: their hits.
        largest: the most hits of one of them.
    """

    keys: int = 0
    count: int = 0
    largest: int = 0

    def plus(self, other: LeftOut) -> LeftOut:
        """Return what two answers have left out; a key may be in both."""
        return LeftOut(
            self.keys + other.keys, self.count + other.count, self.largest + other.largest
        )


def top_of(results: Sequence[Result], top: int | None) -> tuple[Sequence[Result], LeftOut]:
    """Return the last ``top`` results, and what the others are; all of them without ``top``."""
    others = results[: -top or None] if top else ()
    counts = [result.value.count for result in others]
    left_out = LeftOut(len(counts), sum(counts), max(counts, default=0))
    return results[len(counts) :], left_out


class Results:
    """A converter of a session's rows to results.

    Args:
        session: the session that the rows are from.
        requests: the probes as given.
        resolver: resolves stacks and addresses.
    """

    def __init__(
        self, session: AggregateSession, requests: Sequence[ProbeText], resolver: StackResolver
    ) -> None:
        self._session = session
        self._requests = requests
        self._resolver = resolver

    def of(self, rows: Iterable[Row], sort: str | None = None) -> Sequence[Result]:
        """Return the results of some rows, the largest last.

        The same stack of several processes is one result, wherever their files are mapped. Results
        of plain rows are made each time that one of them is asked for.

        Args:
            rows: the rows.
            sort: the column to sort by; by default the count.
        """
        label_of = self.labels()
        names = [item.text for item in self._session.aggregation.keys.items]
        if isinstance(rows, PlainRows):
            label = label_of(rows.layout.source)
            make = functools.partial(self._plain_result, label, names)
            rank = None if sort is None else order(self._session.aggregation, sort)
            return PlainResults(rows, make, rank)
        merged: dict[Hashable, Result] = {}
        for row in rows:
            label = label_of(row.source)
            key = tuple(map(self._part, names, row.key))
            same = label, tuple(part.merged_by for part in key)
            known = merged.get(same)
            if known is None:
                merged[same] = Result(label, row.source.probe, key, row.value)
            else:
                merged[same] = replace(known, value=known.value.plus(row.value))
        return sorted(merged.values(), key=order(self._session.aggregation, sort))

    def _plain_result(self, label: str, names: Sequence[str], row: Row) -> Result:
        return Result(label, row.source.probe, tuple(map(self._part, names, row.key)), row.value)

    def labels(self) -> Callable[[Source], str]:
        """Return a function that returns the name of a source's results."""
        sharing: dict[str, set[int]] = {}
        for source in self._session.sources():
            sharing.setdefault(source.probe, set()).add(source.request)
        return functools.cache(lambda source: self._label(source, sharing))

    def _label(self, source: Source, sharing: Mapping[str, Collection[int]]) -> str:
        # ``sharing`` has the requests of each probe.
        items = self._requests[source.request].items
        if len(sharing[source.probe]) == 1 or not items:
            return source.probe
        return f"{source.probe}({', '.join(item.text for item in items)})"

    def _part(self, name: str, value: Any) -> Part:
        if type(value) is int:  # the most frequent key
            return Part(name, str(value), str(value), number=value)
        if isinstance(value, Stack):
            return self._stack(name, value)
        if isinstance(value, PythonStack):
            return self._python_stack(name, value)
        if isinstance(value, Address):
            frame = self._resolver.frame(value.kind, value.pid, value.address)
            text, as_json = frame_text(frame, shared=True), frame_json(frame, shared=True)
            return Part(name, text, as_json, identity=identity(frame))
        if isinstance(value, CgroupId):
            cgroups, kind = self._resolver.cgroups(), value.kind
            text, as_json = (show(cgroups, kind, value.number) for show in (plain_text, json_text))
            return Part(name, text, as_json)
        if isinstance(value, str):
            shown = escape(value) + mark_of(value)
            return Part(name, shown, quote(value))
        if isinstance(value, tuple):
            return Part(name, f"[{', '.join(map(str, value))}]", json.dumps(value))
        named = value.name if isinstance(value, NamedNumber) else ""
        return Part(
            name, f"{value}{mark_of(value)}", json.dumps(value), named=named, number=_number(value)
        )

    def _stack(self, name: str, stack: Stack) -> Part:
        kind = stack.column.kind
        found = self._session.stack(stack)
        if not found.addresses:
            why = no_frames(kind, 0)
            error = f'{{"error": {quote(why)}}}'
            return Part(name, "", error, (f"({why})",), no_frames_folded(kind))
        frames = self._resolver.frames(kind, stack.pid, found.addresses, found.exact)
        shown = Frames(frames[: stack.column.frames], found.reason)
        return frames_part(name, shown, kind)

    def _python_stack(self, name: str, stack: PythonStack) -> Part:
        data, length = self._session.python_stack(stack)
        frames = self._resolver.value(stack.column, stack.pid, data, length)
        if isinstance(frames, Unreadable):
            error = f'{{"error": {quote(frames.reason)}}}'
            shown = (f"({frames.reason})",)
            return Part(name, "", error, shown, no_frames_folded(StackKind.PYTHON))
        return frames_part(name, frames, StackKind.PYTHON)


class PlainResults(Sequence[Result]):
    """The results of plain rows, in order; each is made when it is asked for.

    Args:
        rows: the rows.
        make: makes the result of a row.
        rank: what results are sorted by; None: their hits, then their keys.
        ranked: the indices of the rows in order, if they are known.
    """

    def __init__(
        self,
        rows: PlainRows,
        make: Callable[[Row], Result],
        rank: Callable[[Result], Any] | None = None,
        ranked: Sequence[int] | None = None,
    ) -> None:
        self.rows = rows
        self._make = make
        self.ranked = self._order(rank) if ranked is None else ranked

    def _order(self, rank: Callable[[Result], Any] | None) -> Sequence[int]:
        rows = self.rows
        if rank is not None:
            ranks = [rank(self._make(row)) for row in rows]
            return array("I", sorted(range(len(rows)), key=ranks.__getitem__))
        # By hits, and by text where they are equal, as by :func:`order`.
        integers = rows.integers()
        texts = [*map(str, integers)] if integers is not None else [*map(self._text, rows)]
        found = sorted(range(len(rows)), key=texts.__getitem__)
        found.sort(key=rows.hits.__getitem__)
        return array("I", found)

    def _text(self, row: Row) -> str:
        return _key_text(self._make(row))

    def __len__(self) -> int:
        return len(self.ranked)

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> PlainResults: ...

    def __getitem__(self, index: int | slice) -> Result | PlainResults:
        if isinstance(index, slice):
            return PlainResults(self.rows, self._make, ranked=self.ranked[index])
        return self._make(self.rows.row(self.ranked[index]))

    def __iter__(self) -> Iterator[Result]:
        return map(self._make, map(self.rows.row, self.ranked))


def frames_part(name: str, frames: list[Frame], kind: StackKind) -> Part:
    """Return a stack as a part of a key."""
    return Part(
        name,
        "",
        "",
        stack_lines(frames, shared=True),
        stack_folded(kind, frames),
        identity=(*map(identity, frames), incomplete(frames)),
        stack=frames,
    )


def _number(value: Any) -> float | None:
    # A NaN equals no other, and could not be sorted.
    return value if isinstance(value, int | float) and value == value else None  # noqa: PLR0124


def order(aggregation: Aggregation, name: str | None) -> Callable[[Result], Any]:
    """Return the function by which results are sorted, the largest last.

    Args:
        aggregation: the aggregation.
        name: a column, ``key``, or one expression of ``--by``; None for ``count``.

    Raises:
        TracingError: there is no such column.
    """
    return order_by(columns(aggregation), [item.text for item in aggregation.keys.items], name)


def order_by(
    shown: Sequence[Column], keys: Sequence[str], name: str | None
) -> Callable[[Result], Any]:
    """Return the same for results with these columns and keys."""
    if name is None:
        return lambda result: _rank(result, result.value.count)
    wanted = name.replace(" ", "")  # as in the text of an item
    for index, key in enumerate(keys):
        if key == wanted:
            return lambda result: _rank(result, _part_rank(result.key[index]))
    if name == _KEY and keys:
        return lambda result: (*map(_part_rank, result.key), result.probe)
    for column in shown:
        if wanted.lower() in {column.name, _SYNONYMS.get(column.name)}:
            return lambda result: _rank(result, _known_last(column.number(result.value)))
    known = ", ".join([*(column.name for column in shown), *([_KEY, *keys] if keys else [])])
    raise TracingError(f"--sort {name}: no such column; expected one of {known}")


def _rank(result: Result, first: Any) -> tuple[Any, ...]:
    # The rest keeps the order of equal results the same in every reading. The texts of frames are
    # kept anyhow; stacks as JSON would be in memory all at once.
    key = [("[", part.frames) if part.frames else (part.json, ()) for part in result.key]
    return first, result.value.count, result.probe, key


def _key_text(result: Result) -> str:
    return ",".join(part.json for part in result.key)


def _known_last(number: float | None) -> tuple[bool, float]:
    return number is not None, number or 0


def _part_rank(part: Part) -> tuple[bool, float, str]:
    # Numbers come before text, and are compared as numbers.
    if isinstance(part.number, int | float):
        return False, part.number, ""
    return True, 0, part.text or part.json
