"""Pages above the others: help, and command lines. Any key closes them, ^C everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

__all__ = ("HELP", "Dialog")

HELP = """\
↑ ↓  PgUp PgDn  choose a probe; Home follows the first row
Enter           one probe: values and histograms of its arguments, stacks, times;
                ← → turn to the next view, which is attached while it is shown
/               show only names that contain a text; Esc shows all
s               sort by the next column: rate, total, p99, name; it is marked
p               pause; the probes stay attached
l               measure the times of pairs and calls, or no more: it costs
e               the command line for the same; it is printed at the end, too
q  Esc          back, or quit;  ^C quits

RATE/s is the hits per second of the last interval, behind it the rates
before as bars. P50 and P99 are percentiles of times: from X__start to
X__done, X__entry to X__return, X__begin to X__end, and from the entry of
a function or system call to its return.

The cost is an estimate: hits times measured nanoseconds."""

_SCROLLS = ("up", "down", "pageup", "pagedown", "home", "end")


class Dialog(ModalScreen[None]):
    """A text above what is shown, until a key is pressed.

    Args:
        text: the text, shown as it is.
        title: above it.
    """

    def __init__(self, text: str, title: str) -> None:
        super().__init__()
        self._text, self._title = text, title

    def compose(self) -> ComposeResult:
        """Make the page."""
        with VerticalScroll(id="dialog") as box:
            box.border_title = self._title
            box.border_subtitle = "any key goes back"
            yield Static(Text(self._text))

    def on_key(self, event: events.Key) -> None:
        """Go back, unless the key scrolls."""
        if event.key == "ctrl+c":
            self.app.exit()
        elif event.key not in _SCROLLS:
            event.stop()
            if self.is_current:  # not again: the next key may come before this page is gone
                self.dismiss()
