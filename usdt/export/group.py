"""Metrics that one session computes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from usdt.engine.aggregate.session import AggregateSession
from usdt.engine.run.options import TraceOptions
from usdt.engine.run.registry import kind_of
from usdt.export.attached import Attachment, Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.aggregate.rows import Row
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.export.config import Metric
    from usdt.export.programs import Programs

__all__ = ("Group", "grouped")


def grouped(metrics: Sequence[Metric]) -> list[tuple[Metric, ...]]:
    """Return the metrics that one session can compute together, in their order."""
    found: dict[object, list[Metric]] = {}
    for metric in metrics:
        alone = metric if metric.aggregation.pair is not None else None
        key = (metric.targets, metric.aggregation, metric.max_string, alone)
        found.setdefault(key, []).append(metric)
    return [tuple(one) for one in found.values()]


class _Part:
    # Metrics in some processes.
    def __init__(self, metrics: Sequence[Metric], pids: Sequence[int]) -> None:
        first = metrics[0]
        requests = [probe for metric in metrics for probe in metric.probes]
        self._requests = requests
        self._metric_of = [metric for metric in metrics for _ in metric.probes]
        self._session: AggregateSession
        options = TraceOptions(
            max_string=first.max_string, keys=first.aggregation.keys.items, aggregated=True
        )

        def session(tasks: TaskFilter) -> AggregateSession:
            self._session = AggregateSession(
                first.aggregation,
                requests,
                accept=tasks,
                max_string=first.max_string,
                pids=tuple(pids),
            )
            return self._session

        # At one place the end runs first: a duration is measured to its own next hit.
        order = requests[::-1] if first.aggregation.pair else requests
        self.attachment = Attachment(first.targets, pids, order, session, options)

    def look(self) -> None:
        """Notice new libraries, and processes that have ended."""
        self.attachment.targets.poll(0.0)

    def rows(self) -> dict[Metric, list[Row]]:
        """Return what was counted so far."""
        found: dict[Metric, list[Row]] = {}
        for row in self._session.read(distributions=False):
            found.setdefault(self._metric_of[row.source.request], []).append(row)
        return found

    def sites(self) -> Counter[tuple[Metric, str]]:
        """Return the number of attached sites of each probe of files."""
        found: Counter[tuple[Metric, str]] = Counter()
        for request, metric in zip(self._requests, self._metric_of, strict=True):
            if not kind_of(request).in_kernel:
                found[metric, request.text] += self.attachment.targets.sites_of(request)
        return found

    def attached(self) -> set[Metric]:
        """Return the metrics with an attached probe."""
        return {self._metric_of[source.request] for source in self._session.sources()}


class Group:
    """Metrics of one session, attached in the processes that their targets select.

    Args:
        metrics: the metrics.
        programs: the processes by their programs' names.

    Attributes:
        metrics: the metrics.
        standing: where they are attached.
    """

    def __init__(self, metrics: tuple[Metric, ...], programs: Programs) -> None:
        self.metrics = metrics
        self._programs = programs
        names = ", ".join(metric.name for metric in metrics)
        self.standing = Standing(
            names, metrics[0].targets, programs, lambda pids: _Part(metrics, pids), self._retire
        )
        self._kept: dict[Metric, list[Row]] = {}

    def halves(self) -> list[Group]:
        """Return two groups of half the metrics each: one of them cannot be attached."""
        middle = len(self.metrics) // 2
        parts = self.metrics[:middle], self.metrics[middle:]
        return [Group(metrics, self._programs) for metrics in parts]

    def _retire(self, part: _Part) -> None:
        for _ in part.attachment.targets.drain():
            pass
        for metric, rows in part.rows().items():
            self._kept.setdefault(metric, []).extend(rows)

    def take_retired(self) -> dict[Metric, list[Row]]:
        """Return the last rows of parts that have ended since the last call."""
        kept, self._kept = self._kept, {}
        return kept

    def rows(self) -> dict[Metric, list[Row]]:
        """Return the rows of what is attached."""
        found: dict[Metric, list[Row]] = {}
        for part in self.standing.parts:
            for metric, rows in part.rows().items():
                found.setdefault(metric, []).extend(rows)
        return found

    def attached(self) -> set[Metric]:
        """Return the metrics with an attached probe."""
        return {metric for part in self.standing.parts for metric in part.attached()}

    def sites(self) -> Counter[tuple[Metric, str]]:
        """Return the number of attached sites, by metric and probe of files."""
        found: Counter[tuple[Metric, str]] = Counter()
        for part in self.standing.parts:
            found.update(part.sites())
        return found
