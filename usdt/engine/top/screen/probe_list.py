"""The table of probes: it scrolls, and one probe is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from usdt.engine.top.text import row_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.top.table import Row

__all__ = ("ProbeList",)

_CHOSEN, _SILENT, _HIT = Style(reverse=True), Style(dim=True), Style()


class ProbeList(ScrollView, can_focus=True):
    """A table of probes.

    The chosen probe stays chosen when the order changes. While the first row is chosen, it stays
    the first row, whatever probe that is.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up"),
        Binding("down,j", "move(1)", "Down"),
        Binding("pageup", "move_page(-1)", "Page up"),
        Binding("pagedown", "move_page(1)", "Page down"),
        Binding("home", "first", "First"),
        Binding("end", "last", "Last"),
        Binding("enter", "open", "Open"),
    ]

    class Opened(Message):
        """A probe was opened.

        Attributes:
            probe: its name.
        """

        def __init__(self, probe: str) -> None:
            super().__init__()
            self.probe = probe

    def __init__(self) -> None:
        super().__init__()
        self._rows: Sequence[Row] = ()
        self._chosen = ""  # the first row, whatever it is
        self._index = 0

    @property
    def chosen(self) -> str | None:
        """The name of the chosen probe; None if there are no rows."""
        return self._rows[self._index].probe if self._rows else None

    def show(self, rows: Sequence[Row]) -> None:
        """Show rows; the chosen probe stays chosen if it is among them."""
        self._rows = rows
        known = (index for index, row in enumerate(rows) if row.probe == self._chosen)
        self._index = next(known, min(self._index, max(0, len(rows) - 1))) if self._chosen else 0
        self.virtual_size = Size(self.size.width, len(rows))
        self.scroll_to_region(Region(0, self._index, 1, 1), animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of what is visible."""
        index, width = self.scroll_offset.y + y, self.size.width
        if index >= len(self._rows):
            return Strip.blank(width, _HIT)
        row = self._rows[index]
        style = _CHOSEN if index == self._index else _HIT if row.total else _SILENT
        return Strip([Segment(row_text(row, width), style)]).adjust_cell_length(width, style)

    def action_move(self, rows: int) -> None:
        """Choose the probe so many rows below."""
        if self._rows:
            index = min(max(0, self._index + rows), len(self._rows) - 1)
            self._chosen = self._rows[index].probe if index else ""
            self.show(self._rows)

    def action_move_page(self, pages: int) -> None:
        """Choose the probe so many pages below."""
        self.action_move(pages * max(1, self.size.height - 1))

    def action_first(self) -> None:
        """Choose the first row, whatever probe it is."""
        self.action_move(-len(self._rows))

    def action_last(self) -> None:
        """Choose the last probe."""
        self.action_move(len(self._rows))

    def action_open(self) -> None:
        """Open the chosen probe."""
        if self.chosen is not None:
            self.post_message(self.Opened(self.chosen))
