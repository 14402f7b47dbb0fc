"""Metrics that one session computes, and the processes in which they are attached."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.engine.aggregate.session import AggregateSession
from usdt.engine.run.attach import attach_probes
from usdt.engine.run.options import TargetOptions, TraceOptions
from usdt.procfs.process import processes_named
from usdt.targets.search.target_files import is_file_pattern, resolve_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.aggregate.session import Row
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeText
    from usdt.engine.run.attach import AttachedProbes
    from usdt.export.config import Metric, Targets

__all__ = ("Group", "grouped")

_RETRY, _LONGEST_RETRY = 5.0, 300.0  # seconds between two attempts to attach


def grouped(metrics: Sequence[Metric]) -> list[tuple[Metric, ...]]:
    """Return the metrics that one session can compute together, in their order."""
    found: dict[object, list[Metric]] = {}
    for metric in metrics:
        alone = metric if metric.aggregation.pair is not None else None
        key = (metric.targets, metric.aggregation, metric.max_string, alone)
        found.setdefault(key, []).append(metric)
    return [tuple(one) for one in found.values()]


class _Part:
    # Attached probes in some processes, until these end.
    def __init__(self, metrics: Sequence[Metric], pids: Sequence[int]) -> None:
        first = metrics[0]
        self.pids = frozenset(pids)
        requests = [probe for metric in metrics for probe in metric.probes]
        self._metric_of = [metric for metric in metrics for _ in metric.probes]
        self._session: AggregateSession
        options = TargetOptions(
            pids=tuple(pids),
            all_processes=first.targets.every,
            library_timeout=None,
            cgroups=first.targets.cgroups,
        )
        trace = TraceOptions(
            max_string=first.max_string, keys=first.aggregation.keys.items, aggregated=True
        )

        def session(tasks: TaskFilter) -> AggregateSession:
            self._session = AggregateSession(
                first.aggregation,
                requests,
                accept=tasks,
                max_string=first.max_string,
                pids=options.pids,
            )
            return self._session

        with contextlib.ExitStack() as stack:
            # At one place the end runs first: a duration is measured to its own next hit.
            order = requests[::-1] if first.aggregation.pair else requests
            self._attached: AttachedProbes = attach_probes(stack, options, order, session, trace)
            self._resources = stack.pop_all()
        self._files = {probe: _identity(probe) for probe in requests if _named_file(probe)}

    def look(self) -> Iterator[str]:
        """Attach in new files; yield messages."""
        for probe, known in self._files.items():
            now = _identity(probe)
            if now not in (known, None):  # it was updated: what runs the old file stays attached
                self._files[probe] = now
                self._attached.targets.add([probe])
                yield f"{probe.path}: updated; now tracing {self._attached.targets.attached} sites"
        self._attached.targets.poll(0.0)
        yield from self._attached.targets.notices
        self._attached.targets.notices.clear()

    @property
    def ended(self) -> bool:
        """Whether all processes have ended; never without given ones."""
        return bool(self.pids) and self._attached.targets.ended

    def rows(self) -> dict[Metric, list[Row]]:
        """Return what was counted so far."""
        found: dict[Metric, list[Row]] = {}
        for row in self._session.read(distributions=False):
            found.setdefault(self._metric_of[row.source.request], []).append(row)
        return found

    def attached(self) -> set[Metric]:
        """Return the metrics with an attached probe."""
        return {self._metric_of[source.request] for source in self._session.sources()}

    def lost(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Yield (probe, reason) and hits."""
        for lost in self._attached.targets.lost():
            yield (lost.probe, "space"), lost.lost
            yield (lost.probe, "unreadable"), lost.unread

    def detach(self) -> None:
        for _ in self._attached.targets.drain():
            pass

    def close(self) -> None:
        self._resources.close()


def _named_file(probe: ProbeText) -> bool:
    return probe.path is not None and not is_file_pattern(probe.path)


def _identity(probe: ProbeText) -> tuple[int, int] | None:
    # Device and inode of a probe's file; None while it is being replaced.
    try:
        found = os.stat(resolve_target(probe.path or "").open_path)  # noqa: PTH116 - no Path needed
    except (OSError, TracingError):
        return None
    return found.st_dev, found.st_ino


class Group:
    """Metrics of one session, attached in the processes that their targets select.

    Attributes:
        metrics: the metrics.
        error: why they are not attached; "" if they are.
        messages: what the user must know; the reader removes them.
    """

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self.metrics = metrics
        self.error = ""
        self.messages: list[str] = []
        self._parts: list[_Part] = []
        self._next, self._pause = 0.0, _RETRY
        self._kept: dict[Metric, list[Row]] = {}
        self._lost: Counter[tuple[str, str]] = Counter()

    def look(self) -> None:
        """Attach in new processes and files; let go of those that have ended."""
        for part in list(self._parts):
            try:
                self.messages += part.look()
            except TracingError as err:
                self.messages.append(f"{self._names()}: {err}")
            if part.ended:
                self._retire(part)
        if time.monotonic() >= self._next:
            self._attach_new()

    def split(self) -> list[Group]:
        """Return groups of one metric each: one of them cannot be attached."""
        return [Group((metric,)) for metric in self.metrics]

    def _attach_new(self) -> None:
        try:
            fresh = self._new_processes(self.metrics[0].targets)
            if fresh is None:
                return
            self._parts.append(_Part(self.metrics, fresh))
        except TracingError as err:
            if str(err) != self.error:
                self.error = str(err)
                self.messages.append(f"{self._names()}: not attached, tried again later: {err}")
            if not self.metrics[0].targets.program:  # which may start at any time
                self._next = time.monotonic() + self._pause
                self._pause = min(_LONGEST_RETRY, 2 * self._pause)
        else:
            self.error, self._pause = "", _RETRY

    def _new_processes(self, targets: Targets) -> list[int] | None:
        # The processes to attach in now, none for every process; None if nothing is new.
        if not targets.program:
            return None if self._parts else list(targets.pids)
        known = {pid for part in self._parts for pid in part.pids}
        try:
            fresh = [pid for pid in processes_named(targets.program) if pid not in known]
        except TracingError:
            if known:
                return None
            raise
        return fresh or None

    def _retire(self, part: _Part) -> None:
        # Values stay when a process has ended.
        try:
            part.detach()
            for metric, rows in part.rows().items():
                self._kept.setdefault(metric, []).extend(rows)
            self._lost.update(dict(part.lost()))
        finally:
            part.close()
            self._parts.remove(part)

    def take_retired(self) -> dict[Metric, list[Row]]:
        """Return the last rows of parts that have ended since the last call."""
        kept, self._kept = self._kept, {}
        return kept

    def rows(self) -> dict[Metric, list[Row]]:
        """Return the rows of what is attached."""
        found: dict[Metric, list[Row]] = {}
        for part in self._parts:
            for metric, rows in part.rows().items():
                found.setdefault(metric, []).extend(rows)
        return found

    def attached(self) -> set[Metric]:
        """Return the metrics with an attached probe."""
        return {metric for part in self._parts for metric in part.attached()}

    def lost(self) -> Counter[tuple[str, str]]:
        """Return the hits that were not counted, by probe and reason."""
        found = Counter(self._lost)
        for part in self._parts:
            found.update(dict(part.lost()))
        return found

    def close(self) -> None:
        """Detach; :meth:`take_retired` then has the last rows. Idempotent."""
        for part in list(self._parts):
            self._retire(part)

    def _names(self) -> str:
        return ", ".join(metric.name for metric in self.metrics)
