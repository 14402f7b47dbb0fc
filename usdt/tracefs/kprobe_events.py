"""Kprobes as events of tracefs, for programs: defined, joined by ID, removed with the link.

Names of events are of this process, too: the kernel's counts of missed hits do not tell the group.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.bpf.link import Link
from usdt.tracefs.definitions import EVENT_FILES, DefinedEvent, define_event, remove_event
from usdt.tracefs.mount import tracefs
from usdt.tracefs.owner import own_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("DefinedKprobe", "define_kprobe", "kprobe_misses", "new_event_name")

_CALLS = 512  # calls under way at a time whose return is seen (maxactive)
_numbers = count(1)


class DefinedKprobe(Link):
    """An event and what is attached to it.

    Attributes:
        number: its ID.
        link: of a program, once there is one.
    """

    def __init__(self, root: Path, event: DefinedEvent, number: int) -> None:
        self.number = number
        self.link: Link | None = None
        self._root = root
        self._event: DefinedEvent | None = event

    def missed(self) -> int:
        """Hits of which the program was not told."""
        event = self._event
        if event is None:
            return 0
        name = event.name.partition("/")[2]
        return sum(number for found, number in kprobe_misses(self._root) if found == name)

    def close(self) -> None:
        """Detach, and remove the event."""
        link, self.link = self.link, None
        event, self._event = self._event, None
        try:
            if link is not None:
                link.close()
        finally:
            if event is not None:
                remove_event(self._root, event)


def define_kprobe(target: str, *, on_return: bool) -> DefinedKprobe:
    """Define an event at ``[MODULE:]FUNCTION[+OFFSET]`` or at an address.

    Raises:
        NotSupported: the kernel has no such events.
        TracingError: it refuses this one.
    """
    root = tracefs()
    name = new_event_name()
    kind = f"r{_CALLS}" if on_return else "p"
    event = define_event(root, EVENT_FILES["p"], f"{kind}:{name} {target}", name)
    try:
        number = int((root / "events" / name / "id").read_text())
    except (OSError, ValueError) as err:
        remove_event(root, event)
        raise TracingError(f"{root}/events/{name}/id: {err}") from err
    return DefinedKprobe(root, event, number)


def new_event_name() -> str:
    """``GROUP/EVENT`` that nobody has."""
    # What differs comes first: the kernel compares names with thousands of others.
    return f"{own_name()}/n{next(_numbers)}_{own_name()}"


def kprobe_misses(root: Path) -> Iterator[tuple[str, int]]:
    """Names of events, without their groups, and hits missed: one for each place, as defined."""
    try:
        with (root / "kprobe_profile").open(errors="replace") as file:
            for line in file:
                words = line.split()
                if len(words) == 3 and words[2].isdigit():
                    yield words[0], int(words[2])
    except OSError:
        return
