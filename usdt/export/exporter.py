"""The exporter: attaches, reads when it is asked, reloads, and ends."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.export.config import load_config
from usdt.export.formats.families import Family, Sample, family_of
from usdt.export.formats.otlp import Pusher, metrics_request
from usdt.export.group import Group, grouped
from usdt.export.health import health
from usdt.export.programs import Programs
from usdt.export.server import MetricsServer
from usdt.export.spans import SpanGroup
from usdt.export.systemd import notify
from usdt.export.values import MetricValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from usdt.engine.aggregate.rows import Row
    from usdt.export.config import Config, Metric, SpanSource
    from usdt.export.endpoints import Endpoint, Otlp
    from usdt.export.formats.otlp import Messages

__all__ = ("Exporter", "run_exporter")

_LOOK_SECONDS = 2.0  # seconds between two looks for new processes and files
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Exporter:
    """The attached metrics and their values.

    Args:
        say: tells the user something.

    Attributes:
        pusher: sends the values to a collector; None: there is none.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.pusher: Pusher | None = None
        self._say = say
        self._began = time.time_ns()
        self._lock = threading.Lock()
        self._programs = Programs()
        self._groups: list[Group] = []
        self._spans: dict[SpanSource, SpanGroup] = {}
        self._values: dict[Metric, MetricValues] = {}
        self._lost: Counter[tuple[str, str]] = Counter()  # of groups that are gone

    def use(self, config: Config) -> None:
        """Attach what a configuration asks for; metrics that stay the same keep their values."""
        with self._lock:
            old = {group.metrics: group for group in self._groups}
            wanted = _keep_known(config.metrics, self._values)
            self._values = {one: self._values.get(one) or MetricValues(one) for one in wanted}
            self._groups = [
                old.pop(one) if one in old else Group(one, self._programs)
                for one in _sets(wanted, old)
            ]
            for group in old.values():
                self._close(group)
            spans, self._spans = self._spans, {}
            for source in config.spans:
                known = spans.pop(source, None)
                self._spans[source] = known or SpanGroup(source, self._programs)
            for gone in spans.values():
                gone.standing.close()
                self._lost.update(gone.standing.lost())
        self.look()
        self._push_to(config.otlp)

    def _push_to(self, otlp: Otlp | None) -> None:
        if self.pusher is not None and self.pusher.otlp == otlp:
            return
        if self.pusher is not None:
            self.pusher.close()
        self.pusher = None if otlp is None else Pusher(otlp, self._messages, self._say)

    def _messages(self) -> Messages:
        families = self.collect()
        with self._lock:
            traces = [("traces", data) for one in self._spans.values() for data in one.messages()]
        request = metrics_request(families, began=self._began, now=time.time_ns())
        return [("metrics", request), *traces]

    def look(self) -> None:
        """Attach in new processes and files, and tell the user about it."""
        with self._lock:
            self._programs.look()
            for group in list(self._groups):
                group.standing.look()
                if _divides(group):
                    self._divide(group)
                self._tell(group)
            for spans in self._spans.values():
                spans.standing.look()
                self._say_all(spans.standing.messages)

    def _divide(self, group: Group) -> None:
        # Some of its metrics cannot be attached: the others are attached together without them.
        at = self._groups.index(group)
        good, bad = self._parts_of(group)
        if len(good) > 1:
            for part in good:
                self._close(part)
            together = Group(tuple(one for part in good for one in part.metrics), self._programs)
            together.standing.look()
            if together.standing.error:  # the parts are attached again
                self._close(together)
            else:
                good = [together]
        self._groups[at : at + 1] = [*good, *bad]
        for part in bad:
            self._tell(part)

    def _parts_of(self, group: Group) -> tuple[list[Group], list[Group]]:
        # Groups that are attached, and single metrics that cannot be.
        group.standing.messages.clear()
        self._close(group)
        good, bad = [], []
        ahead = group.halves()[::-1]
        while ahead:
            part = ahead.pop()
            part.standing.look()
            if not part.standing.error:
                good.append(part)
            elif _divides(part):
                self._close(part)
                ahead += part.halves()[::-1]
            else:
                bad.append(part)
        return good, bad

    def _tell(self, group: Group) -> None:
        self._say_all(group.standing.messages)
        self._retire(group.take_retired())

    def _say_all(self, messages: list[str]) -> None:
        for message in messages:
            self._say(message)
        messages.clear()

    def _retire(self, rows: dict[Metric, list[Row]]) -> None:
        for metric, last in rows.items():
            if metric in self._values:
                self._values[metric].retire(last)

    def _close(self, group: Group) -> None:
        group.standing.close()
        self._retire(group.take_retired())
        self._lost.update(group.standing.lost())

    def collect(self) -> list[Family]:
        """Return all metrics, and those of the exporter itself."""
        with self._lock:
            rows: dict[Metric, list[Row]] = {}
            lost = Counter(self._lost)
            for group in self._groups:
                rows |= group.rows()
                lost.update(group.standing.lost())
            for spans in self._spans.values():
                lost.update(spans.standing.lost())
                lost[spans.source.name, "no space until the next message"] += spans.dropped
            found = [
                family_of(metric, values.read(rows.get(metric, ())))
                for metric, values in self._values.items()
            ]
            own = health(self._values.values(), self._groups, lost)
            return [*found, *own, *self._dropped()]

    def _dropped(self) -> Iterator[Family]:
        if self.pusher is not None:
            samples = (
                Sample((("signal", signal),), number)
                for signal, number in sorted(self.pusher.dropped.items())
            )
            about = "Messages to the collector that were given up."
            yield Family("usdt_otlp_dropped", about, "counter", "", tuple(samples))

    def close(self) -> None:
        """Send the last values, and detach."""
        with self._lock:
            for spans in self._spans.values():
                spans.standing.close()
        self._push_to(None)
        with self._lock:
            for group in self._groups:
                self._close(group)
            self._groups.clear()
            self._programs.close()


def _divides(group: Group) -> bool:
    # Whether it may be that only some of its metrics cannot be attached.
    standing = group.standing
    return bool(standing.error) and not standing.absent and len(group.metrics) > 1


def _keep_known(metrics: Iterable[Metric], known: Iterable[Metric]) -> list[Metric]:
    # The same objects for metrics that have not changed: sessions know probes by identity.
    same = {metric: metric for metric in known}
    return [same.get(metric, metric) for metric in metrics]


def _sets(wanted: Sequence[Metric], old: Iterable[tuple[Metric, ...]]) -> list[tuple[Metric, ...]]:
    # The sets of metrics of sessions; those that are attached stay as they are.
    kept = [one for one in old if all(metric in wanted for metric in one)]
    already = {metric for one in kept for metric in one}
    return [*kept, *grouped([metric for metric in wanted if metric not in already])]


class _Signals:
    # What signals ask for; a context manager.
    def __init__(self) -> None:
        self.end = self.reload = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._previous = [(number, signal.signal(number, self._handle)) for number in _SIGNALS]

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.end = True
        os.eventfd_write(self._wake, 1)

    def wait(self, seconds: float, server: MetricsServer | None) -> None:
        # Waits for a signal, and takes the connections that come.
        sockets = [] if server is None else [server.fileno()]
        ready = select.select([self._wake, *sockets], [], [], seconds)[0]
        if self._wake in ready:
            os.eventfd_read(self._wake)
        elif ready and server is not None:
            server.handle_request()

    def close(self) -> None:
        for number, handler in self._previous:
            signal.signal(number, handler)
        os.close(self._wake)


def run_exporter(
    path: str, config: Config, listen: Endpoint | None, say: Callable[[str], object]
) -> None:
    """Export until SIGINT or SIGTERM; SIGHUP reads the configuration again.

    Args:
        path: the configuration file.
        config: what it said at the start.
        listen: where to listen; None: nowhere.
        say: tells the user something.

    Raises:
        TracingError: it cannot listen there.
    """
    signals = _Signals()
    exporter = Exporter(say)
    server = MetricsServer(listen, exporter.collect) if listen is not None else None
    try:
        exporter.use(config)
        if server is not None:
            host, port = server.server_address[:2]
            say(f"metrics at http://{host!s}:{port}/metrics; end with ^C")
        notify("READY=1")
        _loop(path, exporter, signals, server, say)
        notify("STOPPING=1")
    finally:
        if server is not None:
            server.close()
        exporter.close()
        signals.close()


def _loop(
    path: str,
    exporter: Exporter,
    signals: _Signals,
    server: MetricsServer | None,
    say: Callable[[str], object],
) -> None:
    due = time.monotonic() + _LOOK_SECONDS
    while not signals.end:
        signals.wait(max(0.0, due - time.monotonic()), server)
        if signals.reload:
            signals.reload = False
            _reload(path, exporter, say)
        elif time.monotonic() >= due and not signals.end:
            exporter.look()
            due = time.monotonic() + _LOOK_SECONDS
            if server is not None:
                server.close_late()


def _reload(path: str, exporter: Exporter, say: Callable[[str], object]) -> None:
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
    try:
        exporter.use(load_config(path))
        say(f"{path}: read again")
    except TracingError as err:
        say(f"{err}; the metrics stay as they are")
    notify("READY=1")
