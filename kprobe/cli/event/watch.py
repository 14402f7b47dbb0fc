"""``kprobe event watch``: define events, print their hits, and remove the events."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from typing import TYPE_CHECKING, Any

import click

from kprobe.cli.event.definitions import (
    definition_arguments,
    dialect_of,
    explained,
    parse_definitions,
    read_lines,
)
from kprobe.cli.event.rendering import COMM, EventRenderer
from kprobe.events.naming import renamed
from kprobe.events.values import Argument, Comm
from usdt.engine.cli.click_group import SIZE, plural, say, warn
from usdt.engine.cli.options import output_options, stop_options
from usdt.engine.output.kernel_symbols import KernelSymbols
from usdt.engine.output.output_file import OutputFile
from usdt.engine.run.loop import POLL_SECONDS, StopSignals
from usdt.tracefs.definitions import EVENT_FILES, DefinitionRefused
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kprobe.cli.event.definitions import NamedDefinition
    from usdt.tracefs.session import EventSession, TraceRecord

__all__ = ("watch",)

_BUFFER = 8 << 20
_MAX_NAME = 63  # characters of an event's name

# \b keeps click from filling the paragraph below it.
_HELP = """Define events, print every hit, and remove the events.

DEFINITION is in the kernel's syntax.

\b
kprobe event watch 'p do_sys_openat2 dfd=$arg1:s32 name=+0($arg2):ustring'
kprobe event watch 'r /usr/bin/bash:0x3e2c0 $retval:s32' --json
kprobe event watch 'p vfs_read count=$arg3' --filter 'count > 4096'

The events belong to a group of this run, and do not appear in the shared buffer.
"""


@click.command("watch", help=_HELP)
@definition_arguments
@click.option(
    "--filter",
    "event_filter",
    metavar="FILTER",
    default="",
    help="Show only hits that match, in the kernel's filter syntax.",
)
@click.option("--buffer", type=SIZE, default=_BUFFER, help="Buffer size per CPU, default 8M.")
@stop_options()
@output_options
def watch(
    words: tuple[str, ...], files: tuple[str, ...], event_filter: str, **options: Any
) -> None:
    """Watch events."""
    try:
        _Watch(options).run(read_lines(words, files), event_filter)
    except DefinitionRefused as err:
        raise explained(err) from err


class _Watch:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.count = 0
        self.render: dict[str, Callable[[TraceRecord], str]] = {}  # by the event's name in tracefs

    def run(self, lines: list[str], event_filter: str) -> None:
        """Define the events, print hits until stopped, and print a summary."""
        from usdt.tracefs.owner import own_name  # noqa: PLC0415 - with the tracer
        from usdt.tracefs.session import EventRequest, EventSession  # noqa: PLC0415

        root = tracefs()
        dialect = dialect_of(root)
        events = []
        given: dict[str, NamedDefinition] = {}  # name in tracefs → what the user gave
        for number, item in enumerate(parse_definitions(lines, dialect)):
            takes_comm = item.definition.kind != "e" and (
                len(item.definition.arguments) < dialect.maximum_arguments
            )
            comm = [Argument(Comm(), COMM)] if takes_comm else []
            label = f"e{number}_{item.definition.event}"[:_MAX_NAME]
            definition = renamed(item.definition, own_name(), label, *comm)
            name = f"{definition.group}/{definition.event}"
            given[name] = item
            events.append(EventRequest(item.file, str(definition), name, event_filter))
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(OutputFile(self.options["output"]))
            session = stack.enter_context(EventSession(root, events, buffer=self.options["buffer"]))
            stop = stack.enter_context(StopSignals())
            for name, event_format in session.formats.items():
                renderer = EventRenderer(
                    given[name].name,
                    event_format,
                    in_kernel=given[name].file != EVENT_FILES["user"],
                    symbols=lambda: self._kernel,
                    look=output.look,
                )
                as_json = self.options["as_json"]
                self.render[name] = renderer.json if as_json else renderer.text
            say(f"watching {plural(len(events), 'event')}; end with ^C")
            self._loop(session, output, stop)
            lost = session.lost()
            if session.damaged:
                warn(f"could not decode all of {plural(session.damaged, 'page')} of the buffer")
        say(f"{plural(self.count, 'event')}, {lost} lost")

    def _loop(self, session: EventSession, output: OutputFile, stop: StopSignals) -> None:
        duration = self.options["duration"]
        deadline = math.inf if duration is None else time.monotonic() + duration
        while not stop.requested:
            left = min(POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                break
            session.wait(left)
            if self._write(session.read(), output):
                return
            output.check_reader()
        session.stop()
        while hits := session.read(everything=True):
            if self._write(hits, output):
                return

    def _write(self, hits: list[TraceRecord], output: OutputFile) -> bool:
        # Return True if the limit of -n is reached.
        limit = self.options["count"]
        if limit is not None:
            hits = hits[: limit - self.count]
        self.count += len(hits)
        if hits:
            output.write([self.render[hit.name](hit) for hit in hits])
        return limit is not None and self.count >= limit

    @functools.cached_property
    def _kernel(self) -> KernelSymbols:
        symbols = KernelSymbols.running()
        for notice in symbols.notices:
            say(notice)
        return symbols
