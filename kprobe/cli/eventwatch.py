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

from kprobe.cli.eventsource import dialect_of, given, lines_of
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
_LONGEST = 63  # characters of an event's name
_COMM = "usdt_comm"  # an added argument, because the thread may have ended when its hit is shown

_HEX = re.compile(r"(\w+)=\{?0x%")
_SYMBOL = re.compile(r"(\w+)=%pS")
_PLACES = frozenset({"__probe_ip", "__probe_func", "__probe_ret_ip"})

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
@click.argument("definitions", metavar="[DEFINITION]...", nargs=-1)
@click.option(
    "-i",
    "--input",
    "files",
    multiple=True,
    metavar="FILE",
    help="Read definitions from FILE, one per line; - is stdin.",
)
@click.option("--filter", "text", default="", help="Filter of all events, in the kernel's syntax.")
@click.option("--buffer", type=SIZE, default=_BUFFER, help="Buffer size per CPU, default 8M.")
@stop_options
@output_options
def watch(definitions: tuple[str, ...], files: tuple[str, ...], text: str, **options: Any) -> int:
    """Watch events."""
    return _Watch(options).run(lines_of(definitions, files), text)


class _Watch:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.count = 0
        self.shown: dict[str, str] = {}  # name in tracefs → name that the user gave
        self.hexadecimal: dict[str, frozenset[str]] = {}  # name → fields with %x in print fmt
        self.symbols: dict[str, frozenset[str]] = {}  # name → fields with %pS in print fmt
        self._processes: dict[int, int] = {}

    def run(self, lines: list[str], text: str) -> int:
        """Define the events, print hits until stopped and a summary; return the exit code."""
        from usdt.tracefs.owner import own_name  # noqa: PLC0415 - with the tracer
        from usdt.tracefs.session import EventRequest, EventSession  # noqa: PLC0415

        root = tracefs()
        dialect = dialect_of(root)
        events = []
        for number, item in enumerate(given(lines, dialect)):
            room = item.definition.kind != "e" and (
                len(item.definition.arguments) < dialect.maximum_arguments
            )
            comm = [Argument(Comm(), _COMM)] if room else []
            label = f"e{number}_{item.definition.event}"[:_LONGEST]
            own = renamed(item.definition, own_name(), label, *comm)
            name = f"{own.group}/{own.event}"
            self.shown[name] = item.name
            events.append(EventRequest(item.file, str(own), name, text))
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(OutputFile(self.options["output"]))
            session = stack.enter_context(EventSession(root, events, buffer=self.options["buffer"]))
            stop = stack.enter_context(StopSignals())
            for name, form in session.formats.items():
                self.hexadecimal[name] = frozenset(_HEX.findall(form.print_fmt)) | _PLACES
                self.symbols[name] = frozenset(_SYMBOL.findall(form.print_fmt))
            say(f"watching {plural(len(events), 'event')}; end with ^C")
            self._loop(session, sink, stop)
            lost = session.lost()
            if session.damaged:
                say(f"{plural(session.damaged, 'page')} of the kernel could not be decoded fully")
        say(f"{plural(self.count, 'event')}, {lost} lost")
        return 0

    def _loop(self, session: EventSession, sink: OutputFile, stop: StopSignals) -> None:
        duration = self.options["duration"]
        deadline = math.inf if duration is None else time.monotonic() + duration
        while not stop.requested:
            left = min(POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                break
            session.wait(left)
            if self._write(session.read(), sink):
                return
            sink.check_reader()
        session.stop()
        while hits := session.read(everything=True):
            if self._write(hits, sink):
                return

    def _write(self, hits: list[TraceRecord], sink: OutputFile) -> bool:
        # Return True if the limit of -n is reached.
        most = self.options["count"]
        if most is not None:
            hits = hits[: most - self.count]
        self.count += len(hits)
        if hits:
            form = self._json if self.options["as_json"] else self._text
            sink.write([form(hit) for hit in hits])
        return most is not None and self.count >= most

    def _json(self, hit: TraceRecord) -> str:
        comm = hit.values.pop(_COMM, None)
        shown: dict[str, Any] = {
            "time": hit.time,
            "pid": self._process(hit.tid),
            "tid": hit.tid,
            "cpu": hit.cpu,
            "comm": comm,
            "probe": self.shown[hit.name],
            "args": {key: _plain(value) for key, value in hit.values.items()},
        }
        for key in self.symbols[hit.name]:
            if isinstance(address := hit.values[key], int):
                shown["args"][key] = json.loads(frame_json(self._kernel.frame(address)))
        return json.dumps(shown) + "\n"

    def _text(self, hit: TraceRecord) -> str:
        comm = hit.values.pop(_COMM, None) or "?"
        seconds, nanoseconds = divmod(hit.time, 1_000_000_000)
        head = f"{seconds:>6}.{nanoseconds // 1000:06} {hit.cpu:>3} {hit.tid:>8}  {comm:<16}"
        spelled, named = self.hexadecimal[hit.name], self.symbols[hit.name]
        values = " ".join(
            f"{key}={frame_text(self._kernel.frame(value))}"
            if key in named and isinstance(value, int)
            else f"{key}={_shown(value, hexadecimal=key in spelled)}"
            for key, value in hit.values.items()
        )
        return printable(f"{head} {self.shown[hit.name]} {values}".rstrip()) + "\n"

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


def _plain(value: object) -> object:
    if value is None:
        return {"error": "memory not readable"}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def _shown(value: object, *, hexadecimal: bool) -> str:
    if value is None:
        return "?(memory not readable)"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "{" + ", ".join(_shown(item, hexadecimal=hexadecimal) for item in value) + "}"
    if isinstance(value, int) and hexadecimal:
        return hex(value)
    return value.hex() if isinstance(value, bytes) else str(value)
