"""Probe events: defined, listed, counted, removed; the kernel's errors explained.

Each line is a write(2) of its own: after an error, the lines before it in the same write would
stay. Files are opened for appending, because truncating one deletes the events of all programs.

``uprobe_profile`` and ``kprobe_profile`` list events by name, without their groups. An event with
several attach points has a line for each, in the order of their definition.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.tracefs.owner import is_orphan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = (
    "EVENT_FILES",
    "DefinedEvent",
    "DefinitionRefused",
    "define_event",
    "defined_names",
    "kprobe_misses",
    "list_events",
    "orphaned_events",
    "remove_event",
    "remove_group",
    "uprobe_hits",
)

#: Kind of definition → the file it is written to.
EVENT_FILES = {
    "p": "kprobe_events",
    "r": "kprobe_events",
    "e": "dynamic_events",
    "f": "dynamic_events",
    "t": "dynamic_events",
    "user": "uprobe_events",
}
_FEATURES = {
    "kprobe_events": "kprobe events (CONFIG_KPROBE_EVENTS)",
    "uprobe_events": "uprobe events (CONFIG_UPROBE_EVENTS)",
    "dynamic_events": "dynamic events (CONFIG_DYNAMIC_EVENTS)",
}
_LOGGED = re.compile(r"\[ *\d+\.\d+\] (\w+): error: (.*)\n  Command: (.*)\n( *)\^\n?")
_CARET = 11  # columns before the command in error_log
_ATTEMPTS = 20  # to remove an event that is busy
_READINGS = 20  # of a list that changes
_LEAST_PAGE = 4096
_LISTS = ("dynamic_events", "kprobe_events", "uprobe_events")  # in the order of reading
_HINTS = {
    errno.EEXIST: "an event of this name has other arguments",
    errno.EBUSY: "the event is in use",
    errno.ENOENT: "no such symbol, file or event",
    errno.EADDRNOTAVAIL: "the symbol is not unique",
}


class DefinitionRefused(TracingError):  # noqa: N818 - the name states the error
    """A definition that the kernel refuses, with the text and column of its error_log.

    Attributes:
        line: the definition.
        reason: the kernel's text.
    """

    def __init__(self, line: str, reason: str, column: int) -> None:
        super().__init__(f"the kernel refuses {line!r}: {reason}, at column {column + 1}")
        self.line = line
        self.reason = reason


class DefinedEvent:
    """A defined event: the file with its definition, and its name ``GROUP/EVENT``."""

    def __init__(self, file: str, name: str) -> None:
        self.file = file
        self.name = name


def define_event(root: Path, file: str, line: str, name: str) -> DefinedEvent:
    """Define one event.

    Args:
        root: mount point of tracefs.
        file: one of the values of ``EVENT_FILES``.
        line: the definition.
        name: its ``GROUP/EVENT``.

    Raises:
        NotSupported: the kernel has no events of this kind.
        DefinitionRefused: the kernel refuses.
        SyscallError: the kernel refuses, and its error_log does not say why.
    """
    path = root / file
    try:
        _append(path, line)
    except FileNotFoundError as err:
        if not path.exists():
            raise NotSupported(_FEATURES[file], None) from err
        raise _refused(root, line, err) from err
    except OSError as err:
        raise _refused(root, line, err) from err
    return DefinedEvent(file, name)


def remove_event(root: Path, event: DefinedEvent, file: int | None = None) -> None:
    """Remove an event; idempotent.

    Args:
        root: mount point of tracefs.
        event: the event.
        file: a descriptor of its file, if that is open.

    Raises:
        SyscallError: EBUSY: the event is in use.
    """
    for attempt in range(_ATTEMPTS):
        try:
            if file is None:
                _append(root / event.file, f"-:{event.name}")
            else:
                os.write(file, f"-:{event.name}\n".encode())
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno == errno.EBUSY and attempt + 1 < _ATTEMPTS:
                # The kernel releases an event a moment after it was disabled.
                os.sched_yield()
                continue
            number = err.errno or errno.EIO
            raise SyscallError(number, f"removing {event.name}", _HINTS.get(number, "")) from err
        return


def remove_group(root: Path, event: DefinedEvent) -> bool:
    """Remove all events of an event's group with one write; return whether that worked."""
    try:
        _append(root / event.file, f"-:{event.name.partition('/')[0]}/")
    except OSError:
        return False
    return True


def list_events(root: Path) -> list[tuple[DefinedEvent, str]]:
    """Return the probe events of all programs, with their definitions as the kernel lists them."""
    return _probe_events(_listings(root))


def _probe_events(texts: dict[str, str]) -> list[tuple[DefinedEvent, str]]:
    found = []
    for file in ("kprobe_events", "uprobe_events", "dynamic_events"):
        for line in texts[file].splitlines():
            kind, _, name = line.split(" ", 1)[0].partition(":")
            if name and (file != "dynamic_events" or kind[:1] in "eft"):
                found.append((DefinedEvent(file, name), line))
    return found


def defined_names(root: Path) -> dict[str, str]:
    """Return ``GROUP/EVENT`` → file of each event that somebody defined.

    Synthetic events and those of programs (``user_events``) are defined, too.
    """
    texts = _listings(root)
    names = {event.name: event.file for event, _ in _probe_events(texts)}
    for line in texts["dynamic_events"].splitlines():
        kind, _, name = "".join(line.split(maxsplit=1)[:1]).partition(":")
        if kind == "u":
            name = f"user_events/{name}"
        if "/" in name:
            names.setdefault(name, "dynamic_events")
    return names


def orphaned_events(root: Path) -> list[DefinedEvent]:
    """Return the events of this toolkit whose process has ended."""
    return [event for event, _ in list_events(root) if is_orphan(event.name.partition("/")[0])]


def kprobe_misses(root: Path) -> Iterator[tuple[str, int]]:
    """Yield (event, missed hits) for each attach point; nothing if the file cannot be read."""
    for words in _lines(root / "kprobe_profile"):  # event, hits, missed hits
        if len(words) == 3 and words[2].isdigit():
            yield words[0], int(words[2])


def uprobe_hits(root: Path, event: str) -> int:
    """Return the hits of an event, of all processes; 0 if the file cannot be read."""
    lines = _lines(root / "uprobe_profile")  # path, which may have spaces; event, hits
    return sum(
        int(words[-1])
        for words in lines
        if len(words) > 2 and words[-2] == event and words[-1].isdigit()
    )


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        with path.open(errors="replace") as file:
            for line in file:
                yield line.split()
    except OSError:
        return


def _listings(root: Path) -> dict[str, str]:
    # File → its text. The kernel gives at most a page at a time, and counts events of all kinds to
    # find where the next begins: if one is removed in between, another is left out that stays.
    # dynamic_events has all kinds, so it tells whether one was removed meanwhile.
    texts: dict[str, str] = {}
    for _ in range(_READINGS):
        texts = {file: _text(root / file) for file in _LISTS}
        every = texts["dynamic_events"]
        if len(every) < _LEAST_PAGE // 2 or every == _text(root / "dynamic_events"):
            break
    return texts


def _text(path: Path) -> str:
    # Empty if it cannot be read.
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def _append(path: Path, line: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(number, line.encode("utf-8", "surrogateescape") + b"\n")
    finally:
        os.close(number)


def _refused(root: Path, line: str, error: OSError) -> TracingError:
    number = error.errno or errno.EIO
    definition = " ".join(line.split())
    try:
        log = (root / "error_log").read_text(errors="replace")
    except OSError:
        log = ""
    for _, text, command, spaces in reversed(_LOGGED.findall(log)):
        if command.strip() == definition:
            column = max(0, len(spaces) - _CARET)
            return DefinitionRefused(definition, text, column)
    hint = _HINTS.get(number, "")
    tail = f" ({hint})" if hint else ""
    return SyscallError(number, f"defining {definition!r}", tail.strip(" ()"))
