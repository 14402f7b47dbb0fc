"""The kernel's trace events: names from tracefs; formats are read on demand."""

from __future__ import annotations

import fnmatch
import functools
import os
from typing import TYPE_CHECKING

from usdt.base.errors import ProbeNotFound, TracingError
from usdt.base.frozen import frozen
from usdt.base.text import closest
from usdt.tracefs.format import parse_format
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.tracefs.format import EventFormat

__all__ = ("Event", "events", "format_of", "matching", "no_match", "record_size")

_NO_EVENTS = frozenset(("ftrace",))  # ftrace's own records, to which nothing can be attached


@frozen
class Event:
    """A trace event: ``sched:sched_switch``."""

    category: str
    name: str

    @property
    def full_name(self) -> str:
        """The name after ``tracepoint:``."""
        return f"{self.category}:{self.name}"


@functools.cache
def events() -> tuple[Event, ...]:
    """Return all trace events, sorted by name; they include dynamic events of other tools.

    Raises:
        TracingError: tracefs cannot be read.
        NotSupported: the kernel has no tracefs.
    """
    root = tracefs() / "events"
    found = []
    try:
        for category in _folders(root):
            if category.name not in _NO_EVENTS:
                found += [Event(category.name, event.name) for event in _folders(category)]
    except OSError as err:
        raise TracingError(
            f"{err.filename}: {err.strerror}: tracepoints are listed there; run as root"
        ) from err
    return tuple(found)


def _folders(path: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return sorted((one for one in entries if one.is_dir()), key=lambda one: one.name)


def matching(category: str, name: str) -> list[Event]:
    """Return the events that match two patterns.

    Raises:
        ProbeNotFound: no event matches; the message names the most similar one.
    """
    found = [
        event
        for event in events()
        if fnmatch.fnmatchcase(event.name, name) and fnmatch.fnmatchcase(event.category, category)
    ]
    if not found:
        wanted = name if category == "*" else f"{category}:{name}"
        known = [event.name if category == "*" else event.full_name for event in events()]
        raise no_match("tracepoint", "tracepoint", wanted, known)
    return found


def no_match(what: str, kind: str, wanted: str, known: Iterable[str]) -> ProbeNotFound:
    """Return the error that no probe of a kind matches; it names the most similar one."""
    near = closest(wanted, known)
    hint = f"; nearest is {near}" if near else ""
    return ProbeNotFound(f"no {what} {wanted}{hint} (list them with: kprobe list '{kind}:*')")


@functools.cache
def format_of(event: Event) -> EventFormat:
    """Return the format of an event's records.

    Raises:
        TracingError: its format cannot be read, or the event no longer exists.
    """
    path = tracefs() / "events" / event.category / event.name / "format"
    try:
        text = path.read_text(errors="replace")
    except OSError as err:
        raise TracingError(f"tracepoint {event.full_name}: {path}: {err.strerror}") from err
    return parse_format(text)


def record_size(form: EventFormat) -> int:
    """Return the size of a record in bytes: the end of its last field. Programs cannot read on."""
    return max((field.offset + field.size for field in form.fields), default=0)
