"""^C while a command starts.

Python raises KeyboardInterrupt wherever it is. In a callback of its import system or a finalizer it
prints and drops it, and a command that is about to trace would go on. So each one is noted, and
what Python would print is left out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import signal as signals
    from types import FrameType
else:
    import _signal as signals  # signal makes enums of all its numbers, which takes 0.5 ms

__all__ = ("interrupted", "note_interrupts", "signals")

_noted: list[int] = []


def note_interrupts() -> None:
    """Note each SIGINT that raises KeyboardInterrupt from now on."""
    if signals.getsignal(signals.SIGINT) is signals.default_int_handler:
        signals.signal(signals.SIGINT, _note)
        sys.unraisablehook = _report_others


def interrupted() -> bool:
    """Return whether there was one."""
    return bool(_noted)


def _note(number: int, _frame: FrameType | None) -> NoReturn:
    _noted.append(number)
    raise KeyboardInterrupt


def _report_others(dropped: sys.UnraisableHookArgs) -> None:
    # KeyboardInterrupt has been noted: the command ends by it.
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)
