"""``trace``: print every hit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.base.durations import FOREVER
from usdt.base.frozen import replace
from usdt.base.terminal.look import PLAIN, look_of
from usdt.engine.cli.click_group import say
from usdt.engine.cli.options import parse_options, parse_requests
from usdt.engine.cli.pictures.options import PICTURES
from usdt.engine.cli.running import closing_line, report_losses, run_command
from usdt.engine.language.tree import StackKind
from usdt.engine.output.decode import Decoder
from usdt.engine.output.formatters.text import FoldedFormatter, TextFormatter, titled
from usdt.engine.output.output_file import Lines, lines_in
from usdt.engine.output.parquet import share_columns
from usdt.engine.output.stacks import StackResolver
from usdt.engine.output.symbol_needs import wants_user_symbols
from usdt.engine.output.wall_clock import WallClock
from usdt.engine.run.attach import session_settings, tracefs_session, with_defined_events
from usdt.engine.run.options import TRACEFS
from usdt.engine.run.registry import target_provider
from usdt.engine.runtime.session import RingBufferSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.engine.cli.options import CommandOptions
    from usdt.engine.compiler.codegen.model import TaskFilter
    from usdt.engine.language.tree import ProbeKind
    from usdt.engine.output.formatters.formatter import Formatter
    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.run.protocols import Symbolizer
    from usdt.engine.runtime.session import BpfSession, Lost

__all__ = ("check_lines", "run_trace", "stack_formatter", "symbolizer")

_MAX_CHAIN = 16  # maximum number of functions of -s


def run_trace(kind: ProbeKind, values: dict[str, Any]) -> int:
    """Print every hit.

    Args:
        kind: the kind of a probe that names none.
        values: the values parsed by click.

    Returns:
        The exit code.

    Raises:
        click.UsageError: options exclude one another, or -s has too few or too many functions.
        TracingError: as from run_command().
    """
    if values["sequence"] and not 2 <= len(values["probes"]) <= _MAX_CHAIN:
        raise click.UsageError(
            f"-s takes 2 to {_MAX_CHAIN} functions, outermost first, not {len(values['probes'])}"
        )
    options = parse_options(parse_requests(values["probes"], kind), values)
    requests, trace = with_defined_events(options.requests, options.trace)
    trace = replace(trace, both_ends=not values["sequence"])
    options = replace(options, requests=requests, trace=trace)
    if trace.via == TRACEFS:
        _check_tracefs(values)
    user_symbols = StackKind.USER in options.trace.stacks or any(
        map(wants_user_symbols, options.requests)
    )
    check_lines(options, user_symbols=user_symbols)
    with StackResolver(symbolizer(options), lines=options.output.lines) as resolver:
        resolver.wanted = user_symbols
        resolver.begin(())
        job = PrintJob(options, resolver, in_sequence=values["sequence"])
        return run_command(options, job)


def _check_tracefs(values: dict[str, Any]) -> None:
    what = "--via tracefs"
    if values["via"] != TRACEFS:
        what = "an event that somebody defined is read through tracefs, which"
    stacks = any(values[name] for name in ("stack", "ustack", "kstack", "folded", *PICTURES))
    if stacks or values["follow"]:
        raise click.UsageError(f"{what} records no stacks and does not follow children (-f)")
    if values["sequence"]:
        raise click.UsageError(f"-s needs BPF: {what} does not show functions in sequence")


def check_lines(options: CommandOptions, *, user_symbols: bool) -> None:
    """Raise click.UsageError if an option for user stacks or symbols was given without any."""
    output = options.output
    given = {
        "--lines": output.lines,
        "--symbols": output.symbols.directories,
        "--debuginfod": output.symbols.servers,
        "--jit-map": output.jit_map,
    }
    for option in [name for name, is_given in given.items() if is_given and not user_symbols]:
        raise click.UsageError(
            f"{option} needs user stacks: add --ustack, --folded or an item ustack"
        )


def symbolizer(options: CommandOptions) -> Callable[[], Symbolizer]:
    """Return what makes a symbolizer for stacks and addresses of processes."""
    output = options.output
    return lambda: target_provider().symbolizer(output.symbols, jit_map=output.jit_map)


def stack_formatter(resolver: StackResolver) -> Formatter:
    """Return the formatter of hits for pictures of their stacks."""
    from usdt.engine.output.profiles.formatter import StackFormatter  # noqa: PLC0415 - few runs

    return StackFormatter(resolver)


class PrintJob:
    """A run of ``trace``: prints records, or writes them to a file, in one of three formats."""

    def __init__(
        self, options: CommandOptions, resolver: StackResolver, *, in_sequence: bool
    ) -> None:
        self._options = options
        self._resolver = resolver
        self._in_sequence = in_sequence
        self._pids: tuple[int, ...] = ()
        self._events = 0
        self._formatter = self._new_formatter()
        self._output: OutputFile

    def session(self, tasks: TaskFilter) -> BpfSession:
        """Make the session: with BPF, or with tracefs."""
        trace = self._options.trace
        self._pids = tasks.pids
        if trace.via == TRACEFS:
            return tracefs_session(self._formatter, tasks, trace)
        settings = session_settings(trace, self._options.requests, tasks)
        if self._in_sequence:
            from usdt.engine.runtime.call_chain import CallChainSession  # noqa: PLC0415

            return CallChainSession(Decoder(self._formatter), self._options.requests, **settings)
        return RingBufferSession(Decoder(self._formatter, encoded=True), **settings)

    def _new_formatter(self) -> Formatter:
        output = self._options.output
        if output.parquet:
            from usdt.engine.output.parquet.formatter import RowFormatter  # noqa: PLC0415 - few runs

            return RowFormatter(self._resolver)
        if output.pictures is not None:
            return stack_formatter(self._resolver)
        if output.folded:
            return FoldedFormatter(self._resolver)
        if output.as_json:
            from usdt.engine.output.formatters.json import JsonFormatter  # noqa: PLC0415 - not for text

            return JsonFormatter(self._resolver, clock=WallClock() if output.realtime else None)
        look = look_of(1) if output.path is None else PLAIN
        return TextFormatter(look=look, stacks=self._resolver, realtime=output.realtime)

    def begin(self, output: OutputFile) -> None:
        """Set the output and observe the traced processes."""
        self._output = output
        share_columns(output, self._formatter)
        self._resolver.begin(self._pids)

    def take(self, batch: list[str] | Lines) -> bool:
        """Write lines; return True once -n is reached."""
        limit = self._options.run.count or FOREVER
        if self._events + lines_in(batch) > limit:
            left = int(limit) - self._events
            batch = batch.first(left) if isinstance(batch, Lines) else batch[:left]
        self._events += lines_in(batch)
        if batch:
            self._output.write(titled(self._formatter, batch))
        return self._events >= limit

    def tick(self) -> bool:
        """Record the mappings of processes."""
        self._resolver.observe(self._pids)
        self._report_notices()
        return False

    def until_tick(self) -> float:
        """Return infinity: there is no periodic work."""
        return FOREVER

    def hits(self) -> int:
        """Return the number of events so far."""
        return self._events

    def finish(self, lost: list[Lost]) -> str:
        """Report losses; return the closing line."""
        for item in lost if self._options.output.as_json else ():
            self._output.write_loss(item.probe, item.lost)
        self._report_notices()
        report_losses(lost)
        return closing_line(self._events, lost)

    def _report_notices(self) -> None:
        for notice in self._resolver.take_notices():
            say(notice)
