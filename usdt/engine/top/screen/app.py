"""The application: keys, readings, what is shown.

Readings and everything that attaches run in a thread, so that keys are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from usdt.base.errors import TracingError
from usdt.base.terminal.columns import cut
from usdt.engine.run.loop import POLL_SECONDS, StopSignals
from usdt.engine.top.commands import TopOptions
from usdt.engine.top.detail import Detail
from usdt.engine.top.screen.detail_page import DetailPage
from usdt.engine.top.screen.dialogs import HELP, Dialog
from usdt.engine.top.screen.probe_list import ProbeList
from usdt.engine.top.table import Sort
from usdt.engine.top.text import heading, status_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from usdt.engine.output.output_file import OutputFile
    from usdt.engine.top.live import LiveProbes
    from usdt.engine.top.table import Reading

__all__ = ("TopApp", "run_app")

_NOTHING = "Nothing is attached yet."
_KEYS = "↑↓ choose  ⏎ open  / filter  s sort  p pause  l times  e command  ? help  q quit"


def run_app(
    live: LiveProbes, probes: Sequence[str], values: dict[str, Any], output: OutputFile
) -> int:
    """Show the interface until its user, a signal or the last table ends it; return the exit code.

    Raises:
        TracingError: reading or attaching failed.
    """
    for name in ("COLUMNS", "LINES"):  # Textual would believe them, also when the size changes
        os.environ.pop(name, None)
    app = TopApp(
        live,
        TopOptions(
            "usdt" if live.kind == "usdt" else "kprobe",
            tuple(probes),
            values["pids"],
            values["all_processes"],
            values["follow"],
            values["interval"],
            values["count"],
            values["latency"],
        ),
    )
    with app.details, StopSignals(app.end_soon) as stop:
        if not stop.requested:
            app.run(mouse=False)  # the mouse selects text, as in every terminal
    output.write([f"{line}\n" for line in dict.fromkeys(app.commands)])
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0


class TopApp(App[None]):
    """The interface.

    Args:
        live: what is attached.
        options: what ``top`` was asked for.

    Attributes:
        commands: the command lines that the user asked for.
        failure: why it ended by itself; None if nothing failed.
        details: detaches what views of one probe have attached.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    .line { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
    #heading { text-style: bold; }
    #keys { text-style: dim; }
    ProbeList { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    DetailPage VerticalScroll { scrollbar-size-vertical: 1; }
    #body { text-wrap: nowrap; text-overflow: ellipsis; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    Dialog { align: center middle; }
    #dialog { max-width: 80; height: auto; max-height: 100%; padding: 0 1; }
    #dialog { border: solid $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort"),
        Binding("p", "pause", "Pause"),
        Binding("l", "latency", "Latency"),
        Binding("e", "command", "Command"),
        Binding("slash", "filter", "Filter", priority=True),  # before the next key is delivered
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
        Binding("escape", "leave", "Back"),
        Binding("ctrl+c", "quit", "Quit", priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend"),
    ]

    def __init__(self, live: LiveProbes, options: TopOptions) -> None:
        super().__init__()
        self.theme = "ansi-dark"  # the colours of the terminal, whatever they are
        self.commands: list[str] = []
        self.failure: TracingError | None = None
        self.details = contextlib.ExitStack()
        self._live, self._options = live, options
        self._loop_of_app: asyncio.AbstractEventLoop | None = None
        self._stopped = False  # before the loop ran
        self._paused = self._ended = False
        self._latency = options.latency
        self._status = Static(classes="line")
        self._heading = Static(id="heading", classes="line")
        self._probes = ProbeList()
        self._filter = Input(
            live.table.filter, placeholder="text in names", compact=True, id="filter"
        )

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield from (self._status, self._heading, self._probes, self._filter)
        yield Static(Text(_KEYS), id="keys", classes="line")

    def on_mount(self) -> None:
        """Begin to read."""
        self._loop_of_app = asyncio.get_running_loop()
        if self._stopped:
            self.exit()
        self.set_focus(self._probes)
        self.run_worker(self._follow())

    def end_soon(self) -> None:
        """End; may be called by a handler of signals."""
        self._stopped = True
        if self._loop_of_app is not None:
            self._loop_of_app.call_soon_threadsafe(self.exit)

    # ------------------------------------------------------------ readings

    async def _follow(self) -> None:
        try:
            await self._read()
            shown = 0
            while shown != self._options.count:
                await self._wait()
                if not self._paused:
                    await self._read()
                    shown += 1
                if self._ended and self._options.count is None:
                    return  # what was read last stays until the user has seen it
            self.exit()
        except TracingError as err:
            self.failure = err
            self.exit()

    async def _wait(self) -> None:
        # Until the next reading. Libraries that are loaded meanwhile are attached to.
        until = time.monotonic() + self._options.interval
        while (left := until - time.monotonic()) > 0 and not self._ended:
            await asyncio.sleep(min(left, POLL_SECONDS))
            self._ended = await asyncio.to_thread(lambda: self._live.ended)

    async def _read(self) -> None:
        live = self._live
        pairs = live.pairs() if self._latency else {}

        def read() -> Reading:
            if pairs:
                live.measure(pairs)
            elif live.measures:
                live.measure_no_more()
            return live.reading()

        live.table.add(await asyncio.to_thread(read))
        self._show()

    def _show(self) -> None:
        table, probes = self._live.table, self._probes
        state = "paused  " if self._paused else "ended  " if self._ended else ""
        status = cut(
            f"{state}{status_line(table, self._live.nanoseconds)}", max(1, self.size.width)
        )
        self._status.update(Text(status))
        self._heading.update(Text(heading(max(1, probes.size.width), table.sort)))
        probes.show(table.rows())

    def on_resize(self) -> None:
        """Draw again: columns follow the width."""
        self.call_after_refresh(self._show)

    # ------------------------------------------------------------ keys

    def action_sort(self) -> None:
        """Sort by the next column."""
        orders = list(Sort)
        table = self._live.table
        table.sort = orders[(orders.index(table.sort) + 1) % len(orders)]
        self._show()

    def action_pause(self) -> None:
        """Stop the readings, or go on."""
        self._paused = not self._paused
        self._show()

    def action_latency(self) -> None:
        """Measure times from the next reading on, or no more."""
        self._latency = not self._latency

    @on(ProbeList.Opened)
    def opened(self, event: ProbeList.Opened) -> None:
        """Show one probe in detail."""
        detail = Detail(self._live, event.probe)
        self.details.callback(detail.close)
        self.push_screen(DetailPage(detail, self._live.table, self._options.interval))

    def action_command(self) -> None:
        """Show the command line that shows the same; it is printed at the end as well."""
        if isinstance(self.screen, DetailPage):
            lines = self.screen.detail.commands(self._options)
        else:
            lines = [self._options.table_line(self._live.table, latency=self._latency)]
        self.commands += lines
        self.push_screen(Dialog("\n\n".join(lines) or _NOTHING, "the command line for this"))

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Dialog(HELP, "help"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key is a command now; a slash may also be text."""
        if action == "filter":
            return isinstance(self.focused, ProbeList)
        return super().check_action(action, parameters)

    def action_filter(self) -> None:
        """Let the user enter what names contain."""
        self._filter.display = True
        self.set_focus(self._filter)

    def action_leave(self) -> None:
        """Show all names again, or quit."""
        if self._filter.display or self._live.table.filter:
            self._filter.value = ""
            self._leave_filter()
        else:
            self.exit()

    @on(Input.Changed)
    def filtered(self, event: Input.Changed) -> None:
        """Show the names that contain the text."""
        self._live.table.filter = event.value
        self._show()

    @on(Input.Submitted)
    def _leave_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.display = bool(line.value)
        self.set_focus(self._probes)
