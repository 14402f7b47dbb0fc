"""``usdt trace``: print every hit of some probes."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from bpf.capabilities import missing_capabilities, privilege_hint
from bpf.errors import TracingError, VerifierError
from bpf.link import Via
from tracing.commandline import SIZE, escaped
from tracing.forms import JsonForm, TextForm
from tracing.language import parse_probe
from tracing.session import DEFAULT_BUFFER
from tracing.sink import FileSink
from usdt.tracer import GRACE, Targets, Tracer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracing.session import Lost
    from usdt.spawn import Spawned

__all__ = ("trace",)

_PATIENCE = 2.0  # seconds that a command has to end after SIGTERM
_POLL = 0.25  # seconds between two looks at signals, deadlines and the command


# \b keeps click from filling the paragraph below it.
_HELP = """Print every hit of PROBE: provider:name, or PATH:provider:name, with items.

\b
usdt trace -p 1234 'python:gc__start(arg0)'
usdt trace -p 1234 'postgresql:query__start(str(arg0))'
usdt trace -c './server --port 80' 'myapp:request(str(arg1), arg2 > 100)'
usdt trace /usr/bin/python3.11:python:gc__start
"""


@click.command("trace", help=_HELP)
@click.argument("probes", metavar="PROBE...", nargs=-1, required=True)
@click.option("-p", "--pid", "pids", type=click.IntRange(1), multiple=True, help="A process.")
@click.option("-c", "--command", help="Start a command and trace it.")
@click.option("-a", "--all", "everything", is_flag=True, help="Every process.")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many events.")
@click.option(
    "-d", "--duration", type=click.FloatRange(0, min_open=True), help="Stop after so many seconds."
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines.")
@click.option("-o", "--output", help="Write to a file.")
@click.option(
    "--max-string",
    type=click.IntRange(1, 65534),
    default=128,
    show_default=True,
    help="Bytes that str() keeps.",
)
@click.option("--buffer", type=SIZE, default=DEFAULT_BUFFER, help="Ring buffer, default 8M.")
@click.option("--exit-code", is_flag=True, help="End with the exit code of the command of -c.")
@click.option(
    "--via",
    type=click.Choice(["uprobe_multi", "perf-link", "perf-event"]),
    help="Attach this way instead of the kernel's newest.",
)
@click.option("-v", "--verbose", is_flag=True, help="What is attached, by which kernel path.")
def trace(**options: Any) -> int:
    """Print every hit of some probes."""
    try:
        return _Run(options).main()
    except VerifierError as err:
        if options["verbose"]:
            for line in err.log.splitlines():
                _say(line)
        raise


class _Run:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.events = 0
        self.stop = False

    def main(self) -> int:
        options = self.options
        if sum((bool(options["pids"]), options["command"] is not None, options["everything"])) > 1:
            raise click.UsageError("-p, -c and -a exclude one another")
        if options["duration"] is not None and math.isnan(options["duration"]):
            raise click.UsageError("-d: nan is no number of seconds")
        requests = [parse_probe(text) for text in options["probes"]]
        if missing_capabilities():
            raise TracingError(f"tracing is not permitted: {privilege_hint()}")
        colour = options["output"] is None and os.isatty(1) and "NO_COLOR" not in os.environ
        form = JsonForm() if options["as_json"] else TextForm(colour=colour)
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(FileSink(options["output"]))
            spawned = self._spawn(stack)
            patience = None if options["duration"] else GRACE
            tracer = stack.enter_context(
                Tracer(
                    requests,
                    Targets(tuple(options["pids"]), spawned, options["everything"]),
                    form,
                    buffer=options["buffer"],
                    max_string=options["max_string"],
                    patience=patience,
                    via=Via(options["via"]) if options["via"] else None,
                )
            )
            stack.enter_context(_signals(self, tracer))
            self._tell(tracer)
            if spawned is not None:
                spawned.release()
            self._loop(tracer, sink)
            lost = self._finish(tracer, sink)
        _say(f"{self.events} events, {sum(item.lost for item in lost)} lost")
        if spawned is not None:
            code = _end(spawned)
            return code if options["exit_code"] else 0
        return 0

    def _spawn(self, stack: contextlib.ExitStack) -> Spawned | None:
        if self.options["command"] is None:
            return None
        from usdt.spawn import Spawned, split_command  # noqa: PLC0415 - only for -c

        return stack.enter_context(Spawned(split_command(self.options["command"])))

    def _tell(self, tracer: Tracer) -> None:
        if self.options["verbose"]:
            for line in tracer.ways:
                _say(line)
        number = tracer.attached
        _say(f"tracing {number} site{'s' * (number != 1)}; end with ^C")

    def _loop(self, tracer: Tracer, sink: FileSink) -> None:
        duration = self.options["duration"]
        deadline = None if duration is None else time.monotonic() + duration
        while not self.stop and not tracer.ended:
            left = _POLL if deadline is None else min(_POLL, deadline - time.monotonic())
            if left <= 0:
                return
            lines = tracer.poll(left)
            for notice in tracer.notices:
                _say(notice)
            tracer.notices.clear()
            if self._write(lines, sink):
                return
            if not lines:
                sink.check_reader()

    def _write(self, lines: list[str], sink: FileSink) -> bool:
        # Whether the number of events that -n asked for is reached.
        count = self.options["count"]
        if count is not None and self.events + len(lines) >= count:
            lines = lines[: count - self.events]
        self.events += len(lines)
        if lines:
            sink.write(lines)
        return count is not None and self.events >= count

    def _finish(self, tracer: Tracer, sink: FileSink) -> list[Lost]:
        count = self.options["count"]
        if count is None or self.events < count:
            for lines in tracer.drain():
                if self._write(lines, sink):
                    break
        lost = tracer.lost()
        for item in lost:
            sink.lost(item, as_json=self.options["as_json"])
            if item.unread:
                _say(f"{item.probe}: {item.unread} hits with an unreadable predicate left out")
            if item.lost:
                _say(f"{item.probe}: {item.lost} lost; a larger --buffer may help")
        return lost


@contextlib.contextmanager
def _signals(run: _Run, tracer: Tracer) -> Iterator[None]:
    def handler(_number: int, _frame: object) -> None:
        if run.stop:  # the second time: at once
            raise KeyboardInterrupt
        run.stop = True
        tracer.wake()

    before = [(n, signal.signal(n, handler)) for n in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


def _end(spawned: Spawned) -> int:
    # What was started for the trace ends with it, as with perf and bpftrace; the exit code.
    if spawned.poll() is None:
        spawned.kill(signal.SIGTERM)
    code = spawned.wait(_PATIENCE)
    return 128 + signal.SIGTERM if code is None else code


def _say(text: str) -> None:
    click.echo(escaped(text), err=True)
