"""Progress of work that takes long: one line on a terminal, which overwrites and erases itself.

Code anywhere reports how far it is, often: a report that shows nothing costs less than 1 us.
Nothing is shown before a command has called :func:`show_on`, nor before the user has waited for
half a second. Whoever writes results or messages calls :func:`clear` before.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TextIO, TypeVar

from usdt.base.durations import FOREVER
from usdt.base.terminal.look import terminal_size
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("clear", "erase", "report", "show_on", "through")

_PATIENCE = 0.5  # seconds that a user waits before something is shown
_PAUSE = 0.1  # seconds between two lines
_ERASE = "\r\x1b[K"

T = TypeVar("T")


class _Line:
    # The only line of this process.
    stream: TextIO | None = None
    due = 0.0  # when the next report is shown, as time.monotonic(); 0 before the first report
    ended = FOREVER  # when the last work ended
    shown = False


def show_on(stream: TextIO | None) -> None:
    """Show progress on a stream; None, or a stream that is no terminal, shows none.

    A terminal that cannot erase (``TERM=dumb``) shows none, either.
    """
    clear()
    usable = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    _Line.stream = stream if usable else None


def report(what: str, done: int = 0, total: int = 0) -> None:
    """Say how far the work is.

    Args:
        what: the work: ``reading debug information of /usr/bin/x``.
        done: how much is done, in any unit; 0: not known.
        total: how much there is, in the same unit; 0: not known.
    """
    if _Line.stream is None:
        return
    now = time.monotonic()
    if not _Line.due or now - _Line.ended > _PATIENCE:
        _Line.due = now + _PATIENCE
    _Line.ended = FOREVER
    if now >= _Line.due:
        _Line.due = now + _PAUSE
        _draw(_Line.stream, what, done, total)


def through(items: Iterable[T], what: str, total: int = 0) -> Iterator[T]:
    """Yield items, and report before each how many were yielded; erase the line at the end.

    Args:
        items: what is worked on.
        what: the work, as for :func:`report`.
        total: the number of items; 0: not known.
    """
    try:
        for number, item in enumerate(items):
            report(what, number, total)
            yield item
    finally:
        erase()


def erase() -> None:
    """Erase the line: the work has ended.

    If other work follows at once, the user has waited for it since the first one began.
    """
    if _Line.stream is not None:
        _Line.ended = time.monotonic()
    if _Line.shown and _Line.stream is not None:
        _Line.shown = False
        _Line.stream.write(_ERASE)
        _Line.stream.flush()


def clear() -> None:
    """Erase the line: results or messages come now, and the user begins to wait anew."""
    erase()
    _Line.due = 0.0


def _draw(stream: TextIO, what: str, done: int, total: int) -> None:
    from usdt.base.terminal.columns import columns, cut  # noqa: PLC0415 - not for --help

    so_far = f": {done}" if done else ""
    if total:
        so_far = f": {100 * min(done, total) // total}%"
    room = terminal_size(stream)[0] - columns(so_far) - 1  # a full line would wrap on some
    stream.write(f"{_ERASE}{cut(printable(what), room)}{so_far}")
    stream.flush()
    _Line.shown = True
