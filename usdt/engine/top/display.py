"""The table of ``top``: with keys, again and again on a terminal, or one below the other.

On a terminal it is on the alternate screen: what was there before is there again at the end.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

from usdt.base.terminal import progress
from usdt.base.terminal.columns import cut
from usdt.engine.cli.click_group import say
from usdt.engine.output.output_file import OutputFile
from usdt.engine.run.loop import POLL_SECONDS, StopSignals
from usdt.engine.top.live import LiveProbes
from usdt.engine.top.table import Sort
from usdt.engine.top.text import heading, row_text, status_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.engine.api.sessions import Session

__all__ = ("run_top",)

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_WIDTH = 80  # columns of lines that no terminal shows


def run_top(sessions: type[Session], probes: Sequence[str], values: dict[str, Any]) -> int:
    """Show tables until ^C, the last one, or the end of all traced processes; return the exit code.

    Raises:
        TracingError: a probe cannot be attached.
    """
    code = 0
    keys = _with_keys(plain=values["plain"] or values["batch"])
    targets = {
        "pid": values["pids"] or None,
        "all_processes": values["all_processes"],
        "follow": values["follow"],
    }
    with LiveProbes(sessions, probes, targets) as live, OutputFile(None) as output:
        progress.show_on(None)  # the table has the screen
        live.table.sort = Sort(values["sort"])
        live.table.filter = values["wanted"]
        if keys:
            from usdt.engine.top.screen.app import run_app  # noqa: PLC0415 - needs Textual

            code = run_app(live, probes, values, output)
        else:
            _run_plain(live, values, output)
        for note in live.notes:
            say(note)
    return code


def _with_keys(*, plain: bool) -> bool:
    # Textual reads keys from standard input, and draws on standard error.
    if plain or not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return False
    try:
        import_module("textual")  # an extra
    except ImportError:
        say("without keys: they need Textual: pip install 'usdt-toolkit[tui]'")
        return False
    return True


def _run_plain(live: LiveProbes, values: dict[str, Any], output: OutputFile) -> None:
    woken = threading.Event()
    live.read()
    with StopSignals(woken.set) as stop, _screen(output, batch=values["batch"]) as full:
        shown = 0
        while shown != values["count"] and not stop.requested:
            ended = _pause(live, woken, values["interval"])
            if stop.requested:
                break
            if values["latency"]:
                live.measure(live.pairs())
            live.read()
            output.write(
                [f"{line}\n" for line in _lines(live, output)]
                if not full
                else _drawing(live, output)
            )
            shown += 1
            if ended:
                break


def _pause(live: LiveProbes, woken: threading.Event, seconds: float) -> bool:
    # Waits for the next reading; returns whether all traced processes have ended.
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not live.ended:
        if woken.wait(min(left, POLL_SECONDS)):
            break
    return live.ended


@contextlib.contextmanager
def _screen(output: OutputFile, *, batch: bool) -> Iterator[bool]:
    # The alternate screen of a terminal; yields whether there is one.
    if batch or not output.terminal:
        yield False
        return
    output.write([_ENTER])
    try:
        yield True
    finally:
        output.write([_LEAVE])


def _drawing(live: LiveProbes, output: OutputFile) -> list[str]:
    _, height = output.terminal_size()
    lines = _lines(live, output)
    if len(lines) > height:
        lines = lines[:height]
    return ["\x1b[H", "\r\n".join(f"{line}\x1b[K" for line in lines), "\x1b[J"]


def _lines(live: LiveProbes, output: OutputFile) -> list[str]:
    width = output.terminal_size()[0] - 1 if output.terminal else _WIDTH
    return [
        cut(status_line(live.table, live.nanoseconds), width),
        heading(width, live.table.sort),
        *(row_text(row, width).rstrip() for row in live.table.rows() if row.total),
    ]
