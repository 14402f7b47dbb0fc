"""Kprobes as events of tracefs that programs attach to: defined, attached by ID, then removed.

The name of an event also has the process ID, because ``kprobe_profile`` does not list groups.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
from usdt.bpf.link import Link
from usdt.tracefs.definitions import (
    EVENT_FILES,
    DefinedEvent,
    define_event,
    kprobe_misses,
    remove_event,
)
from usdt.tracefs.mount import tracefs
from usdt.tracefs.owner import own_name

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("DefinedKprobe", "define_kprobe", "new_event_name")

_MAX_ACTIVE = 512  # calls in progress whose return is traced (maxactive)
_numbers = count(1)


class DefinedKprobe(Link):
    """A kprobe event, and the link of the program attached to it.

    Attributes:
        number: the event's ID.
        link: of a program, once one is attached.
    """

    def __init__(self, root: Path, event: DefinedEvent, number: int) -> None:
        self.number = number
        self.link: Link | None = None
        self._root = root
        self._event: DefinedEvent | None = event

    def missed(self) -> int:
        """Return the hits that the kernel passed over."""
        event = self._event
        if event is None:
            return 0
        name = event.name.partition("/")[2]
        return sum(number for found, number in kprobe_misses(self._root) if found == name)

    def close(self) -> None:
        """Detach the program, then remove the event."""
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
        NotSupported: the kernel has no kprobe events.
        TracingError: the kernel refuses this one.
    """
    root = tracefs()
    name = new_event_name()
    kind = f"r{_MAX_ACTIVE}" if on_return else "p"
    event = define_event(root, EVENT_FILES["p"], f"{kind}:{name} {target}", name)
    try:
        number = int((root / "events" / name / "id").read_text())
    except (OSError, ValueError) as err:
        remove_event(root, event)
        raise TracingError(f"{root}/events/{name}/id: {err}") from err
    return DefinedKprobe(root, event, number)


def new_event_name() -> str:
    """Return a ``GROUP/EVENT`` that is not in use."""
    # The number comes first, because the kernel compares a name with thousands of others.
    return f"{own_name()}/n{next(_numbers)}_{own_name()}"
