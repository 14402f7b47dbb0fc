"""Moments as text: ``14:30``, ``2026-11-24T14:30:00Z``, ``@1764000000``."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta

__all__ = ("moment",)

_SECOND = 1_000_000_000
_DAYS = 366  # that a moment may be ahead
_FORMS = "write 14:30, 14:30:05, 2026-11-24T14:30:00Z or @SECONDS since 1970"
_OF_DAY = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
_SINCE_1970 = re.compile(r"@([0-9]{1,12})(?:\.([0-9]{1,9}))?", re.ASCII)
# RFC 3339; without an offset it is local time.
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:\.([0-9]{1,9}))?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)


def moment(text: str) -> int:
    """Return the nanoseconds since 1970 of a moment to come.

    A time of day is the next one in local time. A date without an offset is local time.

    Raises:
        ValueError: the text is no moment, or one that has passed, or is more than a year ahead.
    """
    now = time.time_ns()
    found = _nanoseconds(text)
    if found <= now:
        past = (now - found) / _SECOND
        raise ValueError(f"{text} was {past:.3g} s ago; give a time to come")
    if found - now > _DAYS * 86400 * _SECOND:
        raise ValueError(f"{text} is more than {_DAYS} days ahead; give an earlier time")
    return found


def _nanoseconds(text: str) -> int:
    if found := _SINCE_1970.fullmatch(text):
        return int(found[1] + (found[2] or "").ljust(9, "0"))
    try:
        if found := _OF_DAY.fullmatch(text):
            return _next_of_day(*(int(part or 0) for part in found.groups()))
        if found := _DATE.fullmatch(text):
            offset = (found[4] or "").upper().replace("Z", "+00:00")
            whole = datetime.fromisoformat(f"{found[1]}T{found[2]}{offset}")
            return _since_1970(whole) + int((found[3] or "").ljust(9, "0"))
    except (ValueError, OverflowError) as err:
        raise ValueError(f"{text} is no time: {err}") from err
    raise ValueError(f"{text!r} is no time; {_FORMS}")


def _next_of_day(hour: int, minute: int, second: int) -> int:
    now = datetime.now().astimezone().replace(tzinfo=None)
    found = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if found <= now:
        found += timedelta(days=1)
    return _since_1970(found)


def _since_1970(whole: datetime) -> int:
    # Of whole seconds; a local time if it has no offset.
    return int(whole.timestamp()) * _SECOND
