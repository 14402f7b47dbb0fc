"""The longest spans, of all and of each thread, and some of the hits: bounded samples."""

from __future__ import annotations

from heapq import heappush, heappushpop
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import frozen
from usdt.engine.merge.event_text import words_of
from usdt.engine.output.formatters.formatter import escape
from usdt.engine.pages.texts import shortened

if TYPE_CHECKING:
    from usdt.engine.pages.texts import Texts

__all__ = ("Happened", "Timeline", "Who")

_LONGEST = 6000  # spans
_OF_THREAD = 24  # spans
_SLOWEST = 200  # spans that are listed
_THREADS = 300
_HITS = 4000
_DEEPEST = 8  # rows of a thread
_SHORT, _LONG = 160, 1000  # characters of arguments
_KEPT = 2000  # characters of the items of an event, as Python writes them

#: Host, process, thread, and the thread's name.
Who = tuple[str, int, int, str]


@frozen
class Happened:
    """A span, or a hit, that may be shown.

    Attributes:
        time: when it began, CLOCK_REALTIME, nanoseconds.
        who: its thread.
        name: the span, or the probe.
        args: its items, and those of the end of a span, as members of an event.
        open: whether it is a span that has not ended.
    """

    time: int
    who: Who
    name: str
    args: dict[str, Any]
    open: bool = False

    @classmethod
    def of(
        cls, time: int, who: Who, name: str, found: dict[str, Any], *, opened: bool = False
    ) -> Happened:
        """Return what an event says, without stacks, and without items that are too long."""
        kept = {member: _kept(found[member]) for member in _MEMBERS if member in found}
        return cls(time, who, name, kept, opened)

    def ended(self, found: dict[str, Any]) -> Happened:
        """Return the span that ends with an event."""
        args = {**self.args, "end_args": _kept(found.get("args"))}
        return Happened(self.time, self.who, self.name, args)

    @property
    def text(self) -> str:
        """The items, on one line."""
        return "  ".join(words_of(self.args))


_MEMBERS = ("args", "names", "end_args", "end_names")


def _kept(items: Any) -> Any:
    if type(items) is not dict:
        return {}
    for value in items.values():
        if type(value) is list and value and type(value[0]) is dict:  # a stack
            items = {name: one for name, one in items.items() if type(one) is not list}
            break
    return items if len(repr(items)) <= _KEPT else {"(items)": "too long to keep"}


#: Duration, a number of its own, and the span: the order of the heaps.
_Entry = tuple[int, int, Happened]


class _Heap:
    # The longest spans of those that were added.
    __slots__ = ("entries", "most")

    def __init__(self, most: int) -> None:
        self.entries: list[_Entry] = []
        self.most = most

    def takes(self, duration: int) -> bool:
        return len(self.entries) < self.most or duration > self.entries[0][0]

    def add(self, entry: _Entry) -> None:
        if len(self.entries) < self.most:
            heappush(self.entries, entry)
        else:
            heappushpop(self.entries, entry)


class _Thread:
    __slots__ = ("longest", "number", "who")

    def __init__(self, number: int, who: Who) -> None:
        self.number = number
        self.who = who
        self.longest = _Heap(_OF_THREAD)


class Timeline:
    """Spans and hits by thread.

    Attributes:
        spans, hits: how many were added.
    """

    def __init__(self) -> None:
        self.spans = self.hits = 0
        self._threads: dict[tuple[str, int, int], _Thread] = {}
        self._longest = _Heap(_LONGEST)
        self._hits: list[Happened] = []
        self._every = 1

    def takes(self, who: Who, duration: int) -> bool:
        """Count a span; return whether it should be added, because it is one of the longest."""
        self.spans += 1
        thread = self._thread(who)
        return self._longest.takes(duration) or (
            thread is not None and thread.longest.takes(duration)
        )

    def add_span(self, duration: int, span: Happened) -> None:
        """Add a span with its duration, or its age."""
        entry = duration, self.spans, span
        thread = self._thread(span.who)
        if self._longest.takes(duration):
            self._longest.add(entry)
        if thread is not None and thread.longest.takes(duration):
            thread.longest.add(entry)

    def takes_hit(self) -> bool:
        """Count a hit outside spans; return whether it should be added: every n-th is."""
        self.hits += 1
        return (self.hits - 1) % self._every == 0

    def add_hit(self, hit: Happened) -> None:
        """Add a hit that belongs to no span."""
        self._thread(hit.who)
        self._hits.append(hit)
        if len(self._hits) >= _HITS:
            del self._hits[1::2]
            self._every *= 2

    def _thread(self, who: Who) -> _Thread | None:
        thread = self._threads.get(who[:3])
        if thread is None and len(self._threads) < _THREADS:
            thread = self._threads[who[:3]] = _Thread(len(self._threads), who)
        return thread

    def slowest(self, origin: int, texts: Texts) -> list[dict[str, Any]]:
        """Return the longest spans of all, the longest first.

        Args:
            origin: what times are relative to, CLOCK_REALTIME, nanoseconds.
            texts: bounds the texts.
        """
        entries = sorted(self._longest.entries, reverse=True)[:_SLOWEST]
        return [
            {
                "time": _milli(span.time - origin),
                "duration": duration,
                "name": escape(span.name),
                "open": span.open,
                "text": texts.fitting(span.text, _LONG),
                **_about(span.who),
            }
            for duration, _, span in entries
        ]

    def to_json(self, origin: int, texts: Texts) -> dict[str, Any]:
        """Return the data of the page: threads; spans and hits with the number of the thread.

        Args:
            origin: what times are relative to, CLOCK_REALTIME, nanoseconds.
            texts: bounds the texts.
        """
        words = _Words(texts)
        spans = [
            [number, depth, _milli(span.time - origin), duration, *words.of(span)]
            for number, found in self._kept().items()
            for depth, duration, span in _nested(found)
        ]
        hits = [
            [self._threads[hit.who[:3]].number, _milli(hit.time - origin), *words.of(hit)]
            for hit in self._hits
            if hit.who[:3] in self._threads
        ]
        # Threads of a process are neighbours.
        order = sorted(self._threads.values(), key=lambda one: one.who[:3])
        return {
            "threads": [_about(thread.who) for thread in self._threads.values()],
            "order": [thread.number for thread in order],
            "words": [*words.numbers],
            "spans": spans,
            "hits": hits,
            "all": {"spans": self.spans, "hits": self.hits},
        }

    def _kept(self) -> dict[int, list[tuple[int, Happened]]]:
        # Returns the spans that are shown, by the number of their thread.
        kept = {entry[1]: entry for entry in self._longest.entries}
        for one in self._threads.values():
            kept |= {entry[1]: entry for entry in one.longest.entries}
        rows: dict[int, list[tuple[int, Happened]]] = {}
        for duration, _, span in kept.values():
            thread = self._threads.get(span.who[:3])
            if thread is not None:
                rows.setdefault(thread.number, []).append((duration, span))
        return rows


class _Words:
    # Names and items, each once: they repeat.
    def __init__(self, texts: Texts) -> None:
        self.numbers: dict[str, int] = {}
        self._texts = texts

    def of(self, one: Happened) -> tuple[int, int]:
        return self._number(one.name), self._number(one.text)

    def _number(self, text: str) -> int:
        shown = shortened(text, _SHORT)
        if shown not in self.numbers:
            shown = self._texts.fitting(shown, _SHORT)
        return self.numbers.setdefault(shown, len(self.numbers))


def _nested(spans: list[tuple[int, Happened]]) -> list[tuple[int, int, Happened]]:
    # Returns depth, duration, span: a span within others is below them.
    found = []
    ends: list[int] = []
    for duration, span in sorted(spans, key=lambda one: (one[1].time, -one[0])):
        while ends and ends[-1] <= span.time:
            ends.pop()
        found.append((min(len(ends), _DEEPEST - 1), duration, span))
        ends.append(span.time + duration)
    return found


def _about(who: Who) -> dict[str, Any]:
    host, pid, tid, comm = who
    return {"host": escape(host), "pid": pid, "tid": tid, "comm": escape(comm)}


def _milli(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 4)
