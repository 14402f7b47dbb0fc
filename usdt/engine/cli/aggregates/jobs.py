"""The runs of aggregating commands: they read aggregates from the kernel and print them."""

from __future__ import annotations

import math
import time
from itertools import chain
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import replace
from usdt.base.terminal.columns import cut
from usdt.engine.aggregate.columns import columns
from usdt.engine.aggregate.keys import Address, Stack
from usdt.engine.aggregate.output.heatmap import Heatmap
from usdt.engine.aggregate.output.json import (
    left_out_line,
    missed_line,
    pairs_line,
    result_line,
)
from usdt.engine.aggregate.output.text import folded_lines, histograms, table_lines
from usdt.engine.aggregate.results import LeftOut, Results, top_of
from usdt.engine.aggregate.rows import PlainRows, Row, hits_of_rows
from usdt.engine.aggregate.session import AggregateSession
from usdt.engine.aggregate.spec import is_pattern
from usdt.engine.aggregate.values import NONE, total
from usdt.engine.cli.aggregates.live_display import LiveDisplay
from usdt.engine.cli.aggregates.schedule import Schedule
from usdt.engine.cli.click_group import plural, say, warn
from usdt.engine.cli.running import closing_line, warn_by_probe
from usdt.engine.output.wall_clock import iso_time, time_of_day
from usdt.engine.run.attach import uprobe_method

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.base.terminal.look import Look
    from usdt.engine.aggregate.results import Result
    from usdt.engine.aggregate.rows import Rows
    from usdt.engine.aggregate.spec import Aggregation
    from usdt.engine.cli.options import CommandOptions
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.output.stacks import StackResolver
    from usdt.engine.run.options import AggregateOptions
    from usdt.engine.runtime.session import Lost

__all__ = ("AggregateJob", "HeatmapJob")

_REDRAW_SECONDS = 1.0  # seconds between two redraws of a terminal
_CHECK_SECONDS = 0.1  # seconds between two checks of -n, or of the processes that stacks belong to
_MAX_ROWS = 1920  # maximum rows of a picture; adjacent rows are merged if there are more


class AggregateJob:
    """A run of count, hist, stats or latency: reads aggregates from the kernel and prints them."""

    def __init__(
        self,
        options: CommandOptions,
        aggregate: AggregateOptions,
        aggregation: Aggregation,
        resolver: StackResolver,
    ) -> None:
        self.options = options
        self.aggregate = aggregate
        self.requests = options.requests
        self.aggregation = aggregation
        self.resolver = resolver
        self.resolver.wanted = aggregation.names
        self.total = 0  # of the intervals, or of the end
        self.outputs = 0
        self.unplaced = 0  # hits in no bucket of their percentiles
        self.live = False
        self.drawn = -math.inf
        self.aggregates: AggregateSession
        self.output: OutputFile
        self.schedule: Schedule

    def session(self, tasks: TaskFilter) -> AggregateSession:
        """Return a new session that aggregates; see :class:`ResultOutput`."""
        self.aggregates = AggregateSession(
            self.aggregation,
            self.requests,
            accept=tasks,
            via=uprobe_method(self.options.trace),
            max_string=self.options.trace.max_string,
            python=self.resolver.python_processes,
            unwind=self.options.trace.unwind,
            code=self.resolver.code,
            pids=self.options.targets.pids,
        )
        return self.aggregates

    def begin(self, output: OutputFile) -> None:
        """Begin to write to ``output``."""
        self.output = output
        self.display = LiveDisplay(output)
        settings = self.options.output
        plain = settings.as_json or settings.folded or settings.path or settings.pictures
        self.live = self.aggregate.interval is None and output.terminal and not plain
        at = None if self.aggregate.interval is None else self.options.run.at
        self.schedule = Schedule(self._pause(), aligned=self.aggregate.align, at=at)
        if self.aggregation.cgroups:
            self.resolver.cgroups()
        if self.aggregation.names:
            self.resolver.begin(self.options.targets.pids)

    def _pause(self) -> float:
        # Returns the seconds between two ticks.
        if self.aggregate.interval is not None:
            return self.aggregate.interval
        if self.options.run.count or self.aggregation.names or self.aggregation.cgroups:
            return _CHECK_SECONDS
        return _REDRAW_SECONDS if self.live else math.inf

    def until_tick(self) -> float:
        """Return the seconds until the next reading."""
        return self.schedule.left()

    def take(self, batch: list[Any]) -> bool:  # noqa: ARG002 - there are none
        """Return False: aggregates are read in tick()."""
        return False

    def tick(self) -> bool:
        """Read and show aggregates if it is time; return whether the run has enough hits."""
        if not self.schedule.take():
            return False
        count = self.options.run.count
        if self.aggregate.interval is not None:
            self._interval()
            return count is not None and self.outputs >= count
        draws = self.live and time.monotonic() >= self.drawn + _REDRAW_SECONDS
        rows = self.aggregates.read(distributions=draws)
        self._observe(rows)
        if draws:
            self.drawn = time.monotonic()
            self._draw(rows)
        return count is not None and hits_of_rows(rows) >= count

    def hits(self) -> int:
        """Return the number of hits so far."""
        if self.aggregate.interval is not None or self.total:
            return self.total
        return self.aggregates.hits()

    def finish(self, lost: list[Lost]) -> str:
        """Write the last results and the losses; return the closing line."""
        self.schedule.stop()
        if self.aggregate.interval is not None:
            self._interval(last=True)
        else:
            rows, beyond = self._last_rows()
            self._count(rows)
            self.total += beyond.count
            if self.live:
                self.display.clear()
            self._write(rows, beyond)
        self._report_losses(lost)
        return closing_line(self.total, lost)

    def _last_rows(self) -> tuple[Rows, LeftOut]:
        # The rows at the end, and what was left out of a million before anybody looks at it.
        top = self.aggregate.top
        largest = self.aggregates.read_largest(top) if top and not self.aggregate.sort else None
        if largest is None:
            rows, zeros = self.aggregates.read(), self._zeros()
            return [*rows, *zeros] if zeros else rows, LeftOut()
        rows, found = largest
        return rows, LeftOut(found.others, found.hits, found.most)

    def _count(self, rows: Rows) -> None:
        self.total += hits_of_rows(rows)
        if isinstance(rows, PlainRows):
            return  # without percentiles
        spreads = (row.value.distribution for row in rows)
        self.unplaced += sum(spread.unplaced for spread in spreads if spread is not None)

    # ------------------------------------------------------------ output

    def _interval(self, *, last: bool = False) -> None:
        rows = self.aggregates.read_interval()
        self._count(rows)
        self._observe(rows)
        if last and not rows:
            return
        self.outputs += 1
        if not self.options.output.as_json:
            self.output.write([f"{self._clock(time.time())}{self._partial}\n"])
        self._write(rows)
        if not self.options.output.as_json:
            self.output.write(["\n"])

    @property
    def _partial(self) -> str:
        # What marks an interval of --align that the beginning or the end of the run has cut.
        return "  (partial)" if self.aggregate.align and self.schedule.partial else ""

    def _write(self, rows: Rows, beyond: LeftOut | None = None) -> None:
        if self.options.output.pictures is not None:
            self._draw_stacks(rows)
        else:
            self.output.write_all(self._lines(rows, self.output.look, beyond or LeftOut()))

    def _draw_stacks(self, rows: Rows) -> None:
        from usdt.engine.cli.pictures.output import PictureOutput  # noqa: PLC0415 - few runs

        if isinstance(self.output, PictureOutput):
            self.output.add_results(self._shown(rows)[0], self.aggregation, self._what())

    def _shown(self, rows: Rows) -> tuple[Sequence[Result], LeftOut]:
        results = Results(self.aggregates, self.requests, self.resolver)
        settings = self.options.output
        stacks = settings.folded or settings.pictures is not None
        sort = self.aggregate.sort or ("sum" if stacks and self.aggregation.weighted else None)
        found = top_of(results.of(rows, sort), self.aggregate.top)
        for notice in self.resolver.take_notices():
            say(notice)
        return found

    def _lines(self, rows: Rows, look: Look, beyond: LeftOut) -> Iterable[str]:
        # Lines are made as they are written: those of a million keys are 100 MiB.
        shown, left_out = self._shown(rows)
        left_out = left_out.plus(beyond)
        if self.options.output.folded:
            return folded_lines(shown, weighted=self.aggregation.weighted)
        if self.options.output.as_json:
            about = self._about()
            when: dict[str, Any] = {
                k: v for k, v in about.items() if k in ("time", "interval", "end", "partial")
            }
            return chain(
                (result_line(one, self.aggregation, about, fine=self._fine) for one in shown),
                [left_out_line(left_out, when)] if left_out.keys else [],
            )
        if self._tabular:
            return table_lines(shown, columns(self.aggregation), look)
        what = self._what()
        return histograms(shown, self.aggregation, what=what, fine=self._fine, look=look)

    @property
    def _fine(self) -> bool:
        # Whether histograms have the buckets of the percentiles.
        asked = self.aggregate.resolution is not None and self.aggregate.linear is None
        return asked and self.aggregation.buckets is not None

    @property
    def _tabular(self) -> bool:
        # Whether results are lines of a table: a histogram for each of many groups is too long.
        aggregation = self.aggregation
        if aggregation.buckets is None:
            return True
        return aggregation.pair is not None and bool(aggregation.keys) and not self.aggregate.hist

    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {}
        if self.aggregate.interval is not None:
            about["time"] = time.monotonic_ns()
            about["interval"] = self.aggregate.interval
            if self.aggregate.align:
                about["end"] = self.schedule.end
                if self._partial:
                    about["partial"] = True
        if self.options.output.realtime:
            about["timestamp"] = iso_time(time.time())
        if self.aggregation.pair is not None:
            about["start"] = self.requests[0].text
            about["unit"] = self.aggregate.unit
        elif self.aggregation.needs_value and len(self.requests) == 1:
            about["value"] = self._what()
        return about

    def _what(self) -> str:
        # Describes the numbers: the expression, or the unit and start of a time.
        if self.aggregation.pair is not None:
            return f"{self.aggregate.unit} from {self.requests[0].text}"
        values = [self.aggregation.check(request) for request in self.requests]
        return ", ".join(dict.fromkeys(item.text for item in values if item is not None))

    def _zeros(self) -> list[Row]:
        # Probes without a pattern that were never hit are shown with a count of 0.
        if self.aggregation.keys or self.aggregation.buckets or self.aggregation.stats:
            return []
        seen = {row.source for row in self.aggregates.read(distributions=False)}
        return [
            Row(source, (), NONE)
            for source in self.aggregates.sources()
            if source not in seen and not is_pattern(self.requests[source.request])
        ]

    def _draw(self, rows: Rows) -> None:
        width, height = self.display.size()
        shown = self._lines(rows, replace(self.output.look, width=width), LeftOut())
        lines = [cut(line.rstrip("\n"), width) + "\n" for line in shown]
        if self._tabular and len(lines) > height:  # the largest come last
            lines = [lines[0], *lines[len(lines) - height + 1 :]]
        self.display.draw(lines[:height])

    def _clock(self, seconds: float) -> str:
        if self.options.output.realtime:
            return iso_time(seconds)
        return time_of_day(seconds, self.aggregate.interval)

    def _observe(self, rows: Rows) -> None:
        if self.aggregation.names or self.aggregation.cgroups:
            parts = (part for row in rows for part in row.key)
            pids = {part.pid for part in parts if isinstance(part, (Stack, Address)) and part.pid}
            self.resolver.observe([*{*pids, *self.options.targets.pids}])

    # ------------------------------------------------------------ losses

    def _report_losses(self, lost: list[Lost]) -> None:
        as_json = self.options.output.as_json
        full = "keys or stacks" if self.aggregation.stacks else "keys"
        for item in lost if as_json else ():
            self.output.write([missed_line(item)])
        warn_by_probe(
            [(item.probe, item.unread) for item in lost],
            lambda count: (
                f"skipped {plural(count, 'hit')}: a predicate, a key or the value is unreadable"
            ),
        )
        warn_by_probe(
            [(item.probe, item.lost) for item in lost],
            lambda count: (
                f"{plural(count, 'hit')} lost: no space for more {full}; "
                "a larger --max-keys may help"
            ),
        )
        if self.unplaced:
            warn(
                f"percentiles lack {plural(self.unplaced, 'hit')}: no space for more buckets; "
                "a larger --max-keys or a smaller --resolution may help"
            )
        if self.aggregation.pair is None:
            return
        pairs = self.aggregates.pairs()
        if as_json:
            self.output.write([pairs_line(pairs)])
        if pairs.unfinished:
            warn(f"{plural(pairs.unfinished, 'start')} without an end")
        if pairs.unmatched:
            warn(f"{plural(pairs.unmatched, 'end')} without a start")
        if pairs.deep:
            warn(f"{plural(pairs.deep, 'start')} nested deeper than 16: not measured")


class HeatmapJob(AggregateJob):
    """A run of heatmap: one histogram per interval, as a row of shades or of a picture."""

    def begin(self, output: OutputFile) -> None:
        """Begin to write rows, or to keep those of a picture."""
        super().begin(output)
        self.live = False
        self.picture = str(self.options.output.path).lower().endswith(".svg")
        self.rows: list[tuple[float, tuple[int, ...]]] = []
        self.map: Heatmap | None = None
        buckets = self.aggregation.buckets
        if buckets is not None:
            self.map = Heatmap(buckets, self._unit(), look=output.look, clock=self._clock)

    def _unit(self) -> str:
        return self.aggregate.unit if self.aggregation.pair is not None else self._what()

    def _interval(self, *, last: bool = False) -> None:
        value = total([row.value for row in self.aggregates.read_interval()])
        self.total += value.count
        if last and not value.count:
            return
        self.outputs += 1
        counts = value.buckets
        if not counts and self.aggregation.buckets is not None:
            counts = (0,) * self.aggregation.buckets.number
        if self.picture:
            self._keep(counts)
        elif self.options.output.as_json:
            self.output.write([self._json(counts)])
        elif self.map is not None:
            self.output.write(self.map.row(time.time(), counts, mark=self._partial))

    def _keep(self, counts: tuple[int, ...]) -> None:
        self.rows.append((time.time(), counts))
        if len(self.rows) > _MAX_ROWS:
            halves = zip(self.rows[::2], self.rows[1::2], strict=False)
            self.rows = [
                (when, tuple(a + b for a, b in zip(one, other, strict=True)))
                for (_, one), (when, other) in halves
            ] + self.rows[len(self.rows) // 2 * 2 :]

    def _json(self, counts: tuple[int, ...]) -> str:
        import json  # noqa: PLC0415 - only here

        from usdt.engine.aggregate.output.json import bucket_members  # noqa: PLC0415 - only here

        buckets = self.aggregation.buckets
        row = self._about() | {"probe": self.requests[-1].text, "count": sum(counts)}
        shown = {"buckets": []} if buckets is None else bucket_members(counts, buckets)
        return json.dumps(row | shown) + "\n"

    def finish(self, lost: list[Lost]) -> str:
        """Write the last row, and the picture or the legend; return the closing line."""
        closing = super().finish(lost)
        if self.picture and self.aggregation.buckets is not None:
            from usdt.engine.aggregate.output.svg import Drawing, svg  # noqa: PLC0415 - only for -o FILE.svg

            title = " → ".join(request.text for request in self.requests)
            times = self.aggregation.pair is not None
            drawing = Drawing(
                title,
                "time" if times else self._what(),
                self.aggregation.buckets,
                tuple(self.rows),
                unit=self.aggregation.unit if times else None,
                clock=self._clock,
            )
            self.output.write([svg(drawing)])
        elif self.map is not None and not self.options.output.as_json:
            self.output.write(self.map.legend())
        return closing
