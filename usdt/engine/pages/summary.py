"""Events, summed up in one pass: memory is bounded by what a page shows, not by their number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from usdt.engine.output.formatters.formatter import escape
from usdt.engine.pages.latencies import OTHERS, Latencies
from usdt.engine.pages.stacks import Stacks
from usdt.engine.pages.texts import shortened
from usdt.engine.pages.timebins import TimeBins
from usdt.engine.pages.timeline import Happened, Timeline
from usdt.engine.recording.pairing import OpenStarts, role_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.engine.merge.events import Event
    from usdt.engine.pages.timeline import Who

__all__ = ("Summary",)

_BINS = 600
_PROBES = 1000  # that are counted apart, and of which the role is known
_SERIES = 20  # probes whose rates are shown
_OPEN = 20_000  # starts that wait for their end
_TIMES = range(1 << 63)
_IDS = range(-1, 1 << 32)


class Summary:
    """What a page tells of events.

    Args:
        by_host: whether the stacks of machines are kept apart.

    Attributes:
        events: the number of events.
        bad: events without a valid time, process or thread, which are left out.
        unfinished, unbegun: starts without an end, and ends without a start.
        latencies, timeline: spans, and hits outside spans.
        stacks: the stacks of events.
        first, last: the first and the last time, CLOCK_REALTIME, nanoseconds; -1 without events.
    """

    def __init__(self, *, by_host: bool = False) -> None:
        self.events = self.bad = self.unfinished = self.unbegun = 0
        self.first = self.last = -1
        self.latencies = Latencies()
        self.timeline = Timeline()
        self.stacks = Stacks(by_host=by_host)
        self._rates = TimeBins(_BINS)
        self._counts: list[int] = []
        self._probes: dict[str, int] = {}
        self._roles: dict[str, tuple[str, str]] = {}
        self._open: OpenStarts[Happened] = OpenStarts(_OPEN)
        self._ended: set[str] = set()

    def add(self, events: Iterable[Event]) -> None:
        """Add events, in the order of their times."""
        for time, host, found in events:
            who = _who(host, found)
            if who is None or time not in _TIMES:
                self.bad += 1
                continue
            probe = shortened(found["probe"])
            self.events += 1
            self._see(time, probe)
            self.stacks.add(host, found)
            if "duration" in found or "age" in found:
                self._whole(time, who, probe, found)
            else:
                self._event(time, who, probe, found)

    def finish(self) -> None:
        """Count the starts that have no end."""
        for start in self._open.rest():
            self._give_up(start)

    def _see(self, time: int, probe: str) -> None:
        self.first = time if self.first < 0 else min(self.first, time)
        self.last = max(self.last, time)
        lane = self._probes.get(probe)
        if lane is None:
            if len(self._probes) >= _PROBES:
                probe = OTHERS
            lane = self._probes.setdefault(probe, len(self._probes))
            if lane == len(self._counts):
                self._counts.append(0)
        self._counts[lane] += 1
        self._rates.add(time, lane)

    def _event(self, time: int, who: Who, probe: str, found: dict[str, Any]) -> None:
        role, name = self._roles.get(probe) or self._role(probe)
        if role == "B":
            oldest = self._open.begin((who[:3], name), Happened.of(time, who, probe, found))
            if oldest is not None:
                self._give_up(oldest)
            return
        start = None
        if role == "E":
            self._ended.add(name)
            start = self._open.end((who[:3], name))
        lasted = _lasted(found)
        if start is not None:
            duration = max(0, time - start.time)
            self.latencies.add(name, time, duration)
            if self.timeline.takes(who, duration):
                span = Happened(start.time, who, name, start.args)
                self.timeline.add_span(duration, span.ended(found))
        elif lasted is not None:
            self._span(time - lasted, lasted, who, probe, found)
        else:
            self.unbegun += role == "E"
            if self.timeline.takes_hit():
                self.timeline.add_hit(Happened.of(time, who, probe, found))

    def _role(self, probe: str) -> tuple[str, str]:
        if len(self._roles) >= _PROBES:
            self._roles.clear()
        return self._roles.setdefault(probe, role_of(probe))

    def _whole(self, time: int, who: Who, probe: str, found: dict[str, Any]) -> None:
        # A span that is one event, or the start of one that has not ended.
        duration = found.get("duration", found.get("age"))
        if type(duration) is not int or duration not in _TIMES:
            self.bad += 1
            return
        if "duration" in found:
            self._span(time, duration, who, _name(probe, found.get("end_probe")), found)
        elif self.timeline.takes(who, duration):
            span = Happened.of(time, who, probe, found, opened=True)
            self.timeline.add_span(duration, span)

    def _span(self, start: int, duration: int, who: Who, name: str, found: dict[str, Any]) -> None:
        self.latencies.add(name, start + duration, duration)
        if self.timeline.takes(who, duration):
            self.timeline.add_span(duration, Happened.of(start, who, name, found))

    def _give_up(self, start: Happened) -> None:
        self.unfinished += self._role(start.name)[1] in self._ended
        if self.timeline.takes_hit():
            self.timeline.add_hit(start)

    def probes(self, lost: dict[str, int]) -> list[dict[str, Any]]:
        """Return each probe with its hits and losses, the most frequent first.

        Args:
            lost: probe → hits lost.
        """
        lost = {shortened(name): hits for name, hits in lost.items()}
        counts = {name: self._counts[lane] for name, lane in self._probes.items()}
        counts |= {name: 0 for name in lost if name not in counts}
        seconds = (self.last - self.first) / 1e9
        return [
            {
                "name": escape(name),
                "hits": hits,
                "rate": hits / seconds if seconds else None,
                "lost": lost.get(name, 0),
            }
            for name, hits in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]

    def rates(self) -> dict[str, Any]:
        """Return the hits of each bin, for the most frequent probes, and for the others together.

        A bin has ``width`` milliseconds; ``start`` is that of the first, since 1970.
        """
        bins = self._rates.bins
        by_count = sorted(self._probes.items(), key=lambda item: (-self._counts[item[1]], item[0]))
        lanes = {lane: row for row, (_, lane) in enumerate(by_count[:_SERIES])}
        names = [escape(name) for name, _ in by_count[:_SERIES]]
        if len(by_count) > _SERIES:
            names.append(OTHERS)
        rows = [[0] * bins for _ in names]
        for at, lane, count in self._rates.rows():
            rows[lanes.get(lane, len(rows) - 1)][at] += count
        return {
            "start": self._rates.first * self._rates.width / 1e6,
            "width": self._rates.width / 1e6,
            "names": names,
            "rows": rows,
        }


def _who(host: str, found: dict[str, Any]) -> Who | None:
    pid = found["pid"]
    tid = found.get("tid", pid)
    # Members may be of any type.
    if type(pid) is not int or type(tid) is not int or pid not in _IDS or tid not in _IDS:
        return None
    return shortened(host), pid, tid, shortened(str(found.get("comm", "")))


def _lasted(found: dict[str, Any]) -> int | None:
    # The duration of a call that its return shows: function(return, duration).
    args = found.get("args")
    lasted = args.get("duration") if found.get("event") == "return" and type(args) is dict else None
    return lasted if type(lasted) is int and lasted in _TIMES else None


def _name(start: str, end: Any) -> str:
    # The name of a span: of both probes if they share it.
    if start == end or not isinstance(end, str):
        return start
    (begins, base), (ends, other) = role_of(start), role_of(end)
    if (begins, ends, base) == ("B", "E", other):
        return base
    return shortened(f"{start} → {end}")
