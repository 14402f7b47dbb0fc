"""``kprobe event watch``: define events, print their hits, and remove the events."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kprobe.cli.event.definitions import (
    definition_arguments,
    dialect_of,
    parse_definitions,
    read_lines,
)
from kprobe.events.naming import renamed
from kprobe.events.values import Argument, Comm
from usdt.base.text import printable
from usdt.engine.cli.click_group import SIZE, plural, say
from usdt.engine.cli.options import output_options, stop_options
from usdt.engine.output.frames import frame_json, frame_text
from usdt.engine.output.kernel_symbols import KernelSymbols
from usdt.engine.output.output_file import OutputFile
from usdt.engine.run.loop import POLL_SECONDS, StopSignals
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from usdt.tracefs.session import EventSession, TraceRecord

__all__ = ("watch",)

_BUFFER = 8 << 20
_MAX_NAME = 63  # characters of an event's name
_COMM = "usdt_comm"  # an added argument, because the thread may have ended when its hit is shown

_HEX = re.compile(r"(\w+)=\{?0x%")
_SYMBOL = re.compile(r"(\w+)=%pS")
_PROBE_ADDRESSES = frozenset({"__probe_ip", "__probe_func", "__probe_ret_ip"})

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
    _Watch(options).run(read_lines(words, files), event_filter)


class _Watch:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.count = 0
        self.given_names: dict[str, str] = {}  # name in tracefs → name that the user gave
        self.hexadecimal: dict[str, frozenset[str]] = {}  # name → fields with %x in print fmt
        self.symbols: dict[str, frozenset[str]] = {}  # name → fields with %pS in print fmt
        self._processes: dict[int, int] = {}

    def run(self, lines: list[str], event_filter: str) -> None:
        """Define the events, print hits until stopped, and print a summary."""
        from usdt.tracefs.owner import own_name  # noqa: PLC0415 - with the tracer
        from usdt.tracefs.session import EventRequest, EventSession  # noqa: PLC0415

        root = tracefs()
        dialect = dialect_of(root)
        events = []
        for number, item in enumerate(parse_definitions(lines, dialect)):
            takes_comm = item.definition.kind != "e" and (
                len(item.definition.arguments) < dialect.maximum_arguments
            )
            comm = [Argument(Comm(), _COMM)] if takes_comm else []
            label = f"e{number}_{item.definition.event}"[:_MAX_NAME]
            definition = renamed(item.definition, own_name(), label, *comm)
            name = f"{definition.group}/{definition.event}"
            self.given_names[name] = item.name
            events.append(EventRequest(item.file, str(definition), name, event_filter))
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(OutputFile(self.options["output"]))
            session = stack.enter_context(EventSession(root, events, buffer=self.options["buffer"]))
            stop = stack.enter_context(StopSignals())
            for name, event_format in session.formats.items():
                print_fmt = event_format.print_fmt
                self.hexadecimal[name] = frozenset(_HEX.findall(print_fmt)) | _PROBE_ADDRESSES
                self.symbols[name] = frozenset(_SYMBOL.findall(print_fmt))
            say(f"watching {plural(len(events), 'event')}; end with ^C")
            self._loop(session, output, stop)
            lost = session.lost()
            if session.damaged:
                say(f"could not decode all of {plural(session.damaged, 'page')} of the buffer")
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
            render = self._json if self.options["as_json"] else self._text
            output.write([render(hit) for hit in hits])
        return limit is not None and self.count >= limit

    def _json(self, hit: TraceRecord) -> str:
        comm = hit.values.pop(_COMM, None)
        shown: dict[str, Any] = {
            "time": hit.time,
            "pid": self._process(hit.tid),
            "tid": hit.tid,
            "cpu": hit.cpu,
            "comm": comm,
            "probe": self.given_names[hit.name],
            "args": {key: _json_value(value) for key, value in hit.values.items()},
        }
        for key in self.symbols[hit.name]:
            if isinstance(address := hit.values[key], int):
                shown["args"][key] = json.loads(frame_json(self._kernel.frame(address)))
        return json.dumps(shown) + "\n"

    def _text(self, hit: TraceRecord) -> str:
        comm = hit.values.pop(_COMM, None) or "?"
        seconds, nanoseconds = divmod(hit.time, 1_000_000_000)
        head = f"{seconds:>6}.{nanoseconds // 1000:06} {hit.cpu:>3} {hit.tid:>8}  {comm:<16}"
        hexadecimal, symbols = self.hexadecimal[hit.name], self.symbols[hit.name]
        values = " ".join(
            f"{key}={frame_text(self._kernel.frame(value))}"
            if key in symbols and isinstance(value, int)
            else f"{key}={_value_text(value, hexadecimal=key in hexadecimal)}"
            for key, value in hit.values.items()
        )
        return printable(f"{head} {self.given_names[hit.name]} {values}".rstrip()) + "\n"

    @functools.cached_property
    def _kernel(self) -> KernelSymbols:
        return KernelSymbols.running()

    def _process(self, tid: int) -> int:
        # The process ID of a thread; the thread ID itself if the thread has ended.
        if tid not in self._processes:
            self._processes[tid] = _tgid(tid)
        return self._processes[tid]


def _tgid(tid: int) -> int:
    try:
        for line in Path(f"/proc/{tid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    except OSError:
        pass
    return tid


def _json_value(value: object) -> object:
    if value is None:
        return {"error": "memory not readable"}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def _value_text(value: object, *, hexadecimal: bool) -> str:
    if value is None:
        return "?(memory not readable)"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "{" + ", ".join(_value_text(item, hexadecimal=hexadecimal) for item in value) + "}"
    if isinstance(value, int) and hexadecimal:
        return hex(value)
    return value.hex() if isinstance(value, bytes) else str(value)
