"""The kernel's trace events: names from tracefs; formats are read on demand.

Patterns leave out events that somebody defined (``kprobe_events``, ``uprobe_events``,
``dynamic_events``): they belong to others.
"""

from __future__ import annotations

import errno
import fnmatch
import functools
import os
import re
from typing import TYPE_CHECKING

from usdt.base.errors import ProbeNotFound, TracingError
from usdt.base.frozen import frozen
from usdt.base.text import closest
from usdt.tracefs.definitions import defined_names
from usdt.tracefs.format import parse_format
from usdt.tracefs.mount import read_format, tracefs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from usdt.tracefs.format import EventFormat

__all__ = (
    "Event",
    "defined_events",
    "events",
    "events_of",
    "format_of",
    "matching",
    "no_match",
    "record_size",
    "tracepoints_named",
)

_GLOB = re.compile(r"[*?[]")
_NO_EVENTS = frozenset(("ftrace",))  # ftrace's own records, to which nothing can be attached


@frozen
class Event:
    """A trace event: ``sched:sched_switch``.

    Attributes:
        category: its group.
        name: its name.
        file: for an event that somebody defined, the file of its definition; else "".
    """

    category: str
    name: str
    file: str = ""

    @property
    def full_name(self) -> str:
        """The name after ``tracepoint:``."""
        return f"{self.category}:{self.name}"


@functools.cache
def events() -> tuple[Event, ...]:
    """Return all tracepoints, sorted by name, without events that somebody defined.

    Raises:
        TracingError: tracefs cannot be read.
        NotSupported: the kernel has no tracefs.
    """
    root = tracefs()
    defined = set(defined_names(root))  # and once more below: events come and go
    found = []
    try:
        for category in _folders(root / "events"):
            if category.name not in _NO_EVENTS:
                found += [Event(category.name, event) for event in events_of(category)]
    except OSError as err:
        raise TracingError(
            f"{err.filename}: {err.strerror}: tracepoints are listed there; run as root"
        ) from err
    defined |= set(defined_names(root))
    return tuple(one for one in found if f"{one.category}/{one.name}" not in defined)


def defined_events(category: str, name: str) -> list[Event]:
    """Return the events that somebody defined, of a name that is no pattern; [] for a pattern.

    Args:
        category: the group, which may be a pattern.
        name: the name.
    """
    if _GLOB.search(name):
        return []
    try:
        root = tracefs()
    except TracingError:  # then nothing of it can be used
        return []
    return [
        Event(group, event, file)
        for (group, event), file in _defined(root)
        if event == name and fnmatch.fnmatchcase(group, category)
    ]


def _defined(root: Path) -> list[tuple[tuple[str, str], str]]:
    # ((group, event), file), sorted by name.
    found = []
    for full, file in sorted(defined_names(root).items()):
        group, _, event = full.partition("/")
        found.append(((group, event), file))
    return found


def _folders(path: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return sorted((one for one in entries if one.is_dir()), key=lambda one: one.name)


def events_of(category: os.DirEntry[str]) -> list[str]:
    """Return the names of the events of a folder; none of one that is removed meanwhile."""
    try:
        return [event.name for event in _folders(category)]
    except OSError as err:
        if err.errno not in (errno.ENOENT, errno.EINVAL):  # the kernel says one of the two
            raise
        return []


def matching(category: str, name: str) -> list[Event]:
    """Return the events that match two patterns; those that somebody defined by their name only.

    Raises:
        ProbeNotFound: no event matches; the message names the most similar one.
    """
    found = tracepoints_named(category, name) or defined_events(category, name)
    if found:
        return found
    wanted = name if category == "*" else f"{category}:{name}"
    if _defined_by_pattern(category, name):
        reason = "a pattern leaves out events that somebody defined"
        raise ProbeNotFound(f"no tracepoint {wanted}: {reason}; name one (kprobe event list)")
    known = [event.name if category == "*" else event.full_name for event in events()]
    raise no_match("tracepoint", "tracepoint", wanted, known)


def tracepoints_named(category: str, name: str) -> list[Event]:
    """Return the tracepoints that match two patterns."""
    return [
        event
        for event in events()
        if fnmatch.fnmatchcase(event.name, name) and fnmatch.fnmatchcase(event.category, category)
    ]


def _defined_by_pattern(category: str, name: str) -> bool:
    return any(
        fnmatch.fnmatchcase(group, category) and fnmatch.fnmatchcase(event, name)
        for (group, event), _ in _defined(tracefs())
    )


def no_match(what: str, kind: str, wanted: str, known: Iterable[str]) -> ProbeNotFound:
    """Return the error that no probe of a kind matches; it names the most similar one."""
    near = closest(wanted, known)
    hint = f"; nearest is {near}" if near else ""
    return ProbeNotFound(f"no {what} {wanted}{hint} (list them with: kprobe list '{kind}:*')")


def format_of(event: Event) -> EventFormat:
    """Return the format of an event's records.

    Raises:
        TracingError: its format cannot be read, or the event no longer exists.
    """
    # A defined event may be defined again, with another format.
    return _read_format(event) if event.file else _cached_format(event)


@functools.cache
def _cached_format(event: Event) -> EventFormat:
    return _read_format(event)


def _read_format(event: Event) -> EventFormat:
    return parse_format(read_format(event.category, event.name))


def record_size(form: EventFormat) -> int:
    """Return the size of a record in bytes: the end of its last field. Programs cannot read on."""
    return max((field.offset + field.size for field in form.fields), default=0)
