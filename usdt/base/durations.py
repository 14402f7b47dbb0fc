"""Durations as text: ``2.5ms`` ↔ nanoseconds."""

from __future__ import annotations

import re

__all__ = ("FOREVER", "UNITS", "duration_text", "nanoseconds")

FOREVER = float("inf")  # as math.inf, whose module is a library of its own, 0.3 ms of a start

#: Unit → nanoseconds.
UNITS = {"ns": 1, "us": 1000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000}

_DURATION = r"([0-9]{1,20})(?:\.([0-9]{1,20}))?(ns|us|ms|s|m)"  # compiled when it is first used
_LARGE = (("s", 10**9), ("ms", 10**6), ("us", 1000))


def nanoseconds(text: str) -> int | None:
    """Return the nanoseconds of ``500ns``, ``10us``, ``2.5ms``, ``1s`` or ``2m``, rounded down.

    None: the text is not a number with a unit.
    """
    found = re.fullmatch(_DURATION, text)
    if found is None:
        return None
    fraction: str = found[2] or ""
    return int(found[1] + fraction) * UNITS[found[3]] // int("1" + "0" * len(fraction))


def duration_text(duration: int) -> str:
    """Return nanoseconds with three digits or more in the unit that reads well: ``12.3ms``.

    Minutes and more are seconds: ``754s``.
    """
    for unit, size in _LARGE:
        if duration >= size:
            whole = duration // size
            if whole >= 100:
                return f"{whole}{unit}"
            if whole >= 10:
                return f"{whole}.{duration * 10 // size % 10}{unit}"
            return f"{whole}.{duration * 100 // size % 100:02}{unit}"
    return f"{duration}ns"
