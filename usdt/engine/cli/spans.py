"""``spans``: print calls and pairs of probes with their duration."""

from __future__ import annotations

import heapq
import math
import signal
import time
from typing import TYPE_CHECKING, Any, cast

import click

from usdt.base.durations import UNITS
from usdt.base.terminal.look import PLAIN, look_of
from usdt.engine.cli.click_group import plural, say
from usdt.engine.cli.options import parse_options, parse_requests
from usdt.engine.cli.pictures.options import pictures_of
from usdt.engine.cli.running import closing_line, report_losses, run_command
from usdt.engine.cli.trace import check_lines, stack_formatter, symbolizer
from usdt.engine.language.tree import StackKind
from usdt.engine.output.formatters.json import JsonFormatter
from usdt.engine.output.formatters.text import TextFormatter
from usdt.engine.output.parquet import share_columns
from usdt.engine.output.span_tree import DEPTH_MARK, SELF_MARK, MeasuredLine, SpanTree
from usdt.engine.output.stacks import StackResolver
from usdt.engine.output.symbol_needs import wants_user_symbols
from usdt.engine.output.wall_clock import WallClock
from usdt.engine.run.attach import session_settings
from usdt.engine.run.registry import kind_of
from usdt.engine.spans.session import SpanSession
from usdt.engine.spans.spec import span_spec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from usdt.engine.cli.options import CommandOptions
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters.formatter import FieldSource, Formatter
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.runtime.session import Lost
    from usdt.engine.spans.spec import SpanSpec

__all__ = ("SpanJob", "run_spans", "spec_of")


def run_spans(kind: ProbeKind, values: dict[str, Any]) -> int:
    """Print spans; return the exit code.

    Args:
        kind: the kind of a probe that names none.
        values: the values parsed by click.

    Raises:
        click.UsageError: options exclude one another, or a function without END has no return.
        TracingError: as from run_command().
    """
    reports = values["slowest"] or values["show_open"] or values["tree"]
    if values["interval"] is not None and not reports:
        raise click.UsageError("-i prints at intervals what --slowest, --open or --tree collect")
    if values["tree"] and values["slowest"]:
        raise click.UsageError("--tree and --slowest exclude one another")
    pictures_of(values, {"tree": "--tree", "show_open": "--open"})
    spec = spec_of(kind, values["start"], values["end"], values)
    keys = () if spec.end is None else (*spec.key.items, *spec.end_key.items)
    options = parse_options(spec.requests, values, keys=keys, calls=spec.end is None)
    wanted = StackKind.USER in options.trace.stacks or any(
        map(wants_user_symbols, options.requests)
    )
    check_lines(options, user_symbols=wanted)
    with StackResolver(symbolizer(options), lines=options.output.lines) as resolver:
        resolver.wanted = wanted
        resolver.begin(())
        return run_command(options, SpanJob(spec, options, values, resolver))


def spec_of(kind: ProbeKind, start: str, end: str | None, values: dict[str, Any]) -> SpanSpec:
    """Return the spans of a command line.

    Raises:
        click.UsageError: a function without END has no return.
        LanguageError: a probe or a key is not valid.
    """
    requests = parse_requests([start] if end is None else [start, end], kind)
    if end is None and not kind_of(requests[0]).has_return:
        raise click.UsageError(f"{start} has no return: write START END, two probes")
    return span_spec(
        requests[0],
        None if end is None else requests[1],
        key=values["key"],
        end_key=values["end_key"],
        slower=round((values["slower"] or 0) * UNITS["s"]),
        max_open=values["max_open"],
    )


class _Measured:
    # A formatter whose results are a MeasuredLine each.
    def __init__(self, inner: Formatter) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def record(self, values: Sequence[FieldSource]) -> str:
        self._inner.names["MeasuredLine"] = MeasuredLine
        return f"MeasuredLine({values[0].source}, time, key[:4], {self._inner.record(values)})"


class SpanJob:
    """A run of ``spans``: prints each span, the slowest, those that are open, or trees."""

    def __init__(
        self,
        spec: SpanSpec,
        options: CommandOptions,
        values: dict[str, Any],
        resolver: StackResolver,
    ) -> None:
        self._spec = spec
        self._options = options
        self._interval: float = values["interval"] or math.inf
        self._slowest: int | None = values["slowest"]
        self._open: bool = values["show_open"]
        self._tree = SpanTree(as_json=options.output.as_json) if values["tree"] else None
        self._resolver = resolver
        self._form = self._formatter()
        self._heap: list[tuple[int, int, str]] = []
        self._number = 0
        self._next = math.inf
        self._asked = False  # by SIGUSR1
        self._session: SpanSession
        self._output: OutputFile

    def session(self, tasks: TaskFilter) -> SpanSession:
        """Make the session."""
        trace = self._options.trace
        self._session = SpanSession(
            spec=self._spec,
            form=cast("Formatter", _Measured(self._form)),
            **session_settings(trace, self._options.requests, tasks),
        )
        return self._session

    def _formatter(self) -> Formatter:
        output = self._options.output
        if output.parquet and self._tree is None:
            from usdt.engine.output.parquet.formatter import RowFormatter  # noqa: PLC0415 - few runs

            return RowFormatter(self._resolver)
        if output.pictures is not None:
            return stack_formatter(self._resolver)
        if output.as_json:
            return JsonFormatter(self._resolver, clock=WallClock() if output.realtime else None)
        look = look_of(1) if output.path is None else PLAIN
        return TextFormatter(
            look=look,
            stacks=self._resolver,
            realtime=output.realtime,
            marks=("", "") if self._tree is None else (SELF_MARK, DEPTH_MARK),
        )

    def begin(self, output: OutputFile) -> None:
        """Set the output, and the signal that asks for open spans."""
        self._output = output
        share_columns(output, self._form)
        self._resolver.begin(self._options.targets.pids)
        self._next = time.monotonic() + self._interval
        if self._options.run.at is not None:
            self._next += max(0.0, self._options.run.at / UNITS["s"] - time.time())
        if self._open:
            signal.signal(signal.SIGUSR1, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True

    def take(self, batch: list[MeasuredLine]) -> bool:
        """Write or keep spans; return True once -n is reached."""
        limit = self._options.run.count or math.inf
        if self._number + len(batch) > limit:
            batch = batch[: int(limit) - self._number]
        if self._tree is not None:
            self._tree.add(batch)
            if self._tree.full:
                self._output.write(self._tree.take())
        elif self._slowest is not None:
            for index, span in enumerate(batch, self._number):
                self._keep((span.duration, -index, span.line), self._slowest)
        elif batch:
            self._output.write([span.line for span in batch])
        self._number += len(batch)
        return self._number >= limit

    def _keep(self, span: tuple[int, int, str], most: int) -> None:
        if len(self._heap) < most:
            heapq.heappush(self._heap, span)
        else:
            heapq.heappushpop(self._heap, span)

    def tick(self) -> bool:
        """Print what was collected in an interval, or open spans that a signal asked for."""
        self._resolver.observe(self._options.targets.pids)
        self._report_notices()
        if self._asked:
            self._asked = False
            self._write_open()
        if time.monotonic() >= self._next:
            self._next = max(self._next + self._interval, time.monotonic())
            self._flush()
            self._write_open()
        return False

    def until_tick(self) -> float:
        """Return the seconds until tick() has work to do."""
        return self._next - time.monotonic()

    def hits(self) -> int:
        """Return the number of spans so far."""
        return self._number

    def finish(self, lost: list[Lost]) -> str:
        """Write the remaining results; return the closing line."""
        self._flush()
        self._write_open()
        for item in lost if self._options.output.as_json else ():
            self._output.write_loss(item.probe, item.lost)
        self._report_notices()
        report_losses(lost)
        return closing_line(self._number, lost)

    def _flush(self) -> None:
        if self._tree is not None:
            self._output.write(self._tree.take())
        self._output.write([line for _, _, line in sorted(self._heap, reverse=True)])
        self._heap.clear()

    def _write_open(self) -> None:
        if not self._open:
            return
        found = self._session.open_spans()
        if not self._options.output.as_json:
            say(f"{plural(len(found), 'span')} open")
        lines = [span.line for span in found]
        if self._tree is not None:
            marks = str.maketrans({SELF_MARK: None, DEPTH_MARK: None})
            lines = [line.translate(marks) for line in lines]
        self._output.write(lines)

    def _report_notices(self) -> None:
        for notice in self._resolver.take_notices():
            say(notice)
