"""One probe in detail: its views, of which one at a time is attached."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from usdt.base.errors import TracingError
from usdt.base.text import printable
from usdt.engine.top.costs import cost_text
from usdt.engine.top.detail import Shown

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from usdt.engine.top.detail import Detail, View
    from usdt.engine.top.table import Table

__all__ = ("DetailPage",)

_KEYS = "←→ view  ↑↓ scroll  p pause  e command  ? help  q back"


class DetailPage(Screen[None]):
    """The views of one probe.

    What attaches and reads runs in a thread. The view is detached when the page is left.

    Args:
        detail: the views.
        table: where the rates are.
        interval: seconds between two readings.

    Attributes:
        paused: whether what is shown stays.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,tab", "turn(1)", "Next view"),
        Binding("left,shift+tab", "turn(-1)", "View before"),
        Binding("p", "pause", "Pause"),
        Binding("q,escape", "leave", "Back"),
    ]

    def __init__(self, detail: Detail, table: Table, interval: float) -> None:
        super().__init__()
        self.detail, self.paused = detail, False
        self._table, self._interval = table, interval
        self._wanted: View | None = detail.views[0]
        self._title, self._views, self._cost = (Static(classes="line") for _ in range(3))
        self._body = Static(id="body")
        self._turned = asyncio.Event()

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield from (self._title, self._views, self._cost)
        with VerticalScroll():
            yield self._body
        yield Static(Text(_KEYS), id="keys", classes="line")

    def on_mount(self) -> None:
        """Attach the first view."""
        self.query_one(VerticalScroll).focus()
        # A worker of the application: it detaches after this page is gone.
        self.app.run_worker(self._follow())

    async def _follow(self) -> None:
        while (view := self._wanted) is not None:
            self._turned.clear()
            self._show_view(view)
            try:
                await asyncio.to_thread(self.detail.open, view)
                while self._wanted is view:
                    if not self.paused:
                        self._show(await asyncio.to_thread(self.detail.read))
                    await self._wait()
            except TracingError as err:
                self._show(Shown((str(err),), {}))
                await self._turned.wait()
        await asyncio.to_thread(self.detail.close)

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._interval):
                await self._turned.wait()
        except TimeoutError:
            pass

    # ------------------------------------------------------------ what is shown

    def _show_view(self, view: View) -> None:
        names = Text()
        for one in self.detail.views:
            names.append(f" {one.value} ", "reverse" if one is view else "")
        self._views.update(names)
        self._show(Shown(("attaching, then reading …",), {}))

    def _show(self, shown: Shown) -> None:
        probe, rates = self.detail.probe, self._table.rates()
        state = "paused  " if self.paused else ""
        title = Text(f"{state}{printable(probe)}  {rates.get(probe, 0):.0f} hits/s")
        self._title.update(title)
        attached = {name: rates.get(name, 0.0) for name in shown.nanoseconds}
        lost = f", {shown.lost} lost" if shown.lost else ""
        cost = f"this view adds {cost_text(attached, shown.nanoseconds)}{lost}" if attached else ""
        self._cost.update(Text(cost))
        body = Text("\n".join(map(printable, shown.lines)))
        self._body.update(body)

    # ------------------------------------------------------------ keys

    def _want(self, view: View | None) -> None:
        self._wanted = view
        self._turned.set()

    def action_turn(self, views: int) -> None:
        """Open another view."""
        known = self.detail.views
        if self._wanted is not None:
            self._want(known[(known.index(self._wanted) + views) % len(known)])

    def action_pause(self) -> None:
        """Keep what is shown, or go on."""
        self.paused = not self.paused
        self._turned.set()

    def action_leave(self) -> None:
        """Detach, and go back to the table."""
        self._want(None)
        self.dismiss()
