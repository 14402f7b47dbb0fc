"""Kprobes as events of tracefs, for programs: defined, joined by ID, removed with the link."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from bpf.errors import TracingError
from bpf.link import Link
from bpf.tracefs import tracefs
from tracing.eventtracer.definitions import FILES, Defined, define, remove
from tracing.eventtracer.owner import own_name

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("DefinedKprobe", "define_kprobe")

_CALLS = 512  # calls under way at a time whose return is seen (maxactive)
_numbers = count(1)


class DefinedKprobe(Link):
    """An event and what is attached to it.

    Attributes:
        number: its ID.
        link: of a program, once there is one.
    """

    def __init__(self, root: Path, event: Defined, number: int) -> None:
        self.number = number
        self.link: Link | None = None
        self._root = root
        self._event: Defined | None = event

    def close(self) -> None:
        """Detach, and remove the event."""
        link, self.link = self.link, None
        event, self._event = self._event, None
        try:
            if link is not None:
                link.close()
        finally:
            if event is not None:
                remove(self._root, event)


def define_kprobe(target: str, *, on_return: bool) -> DefinedKprobe:
    """Define an event at ``[MODULE:]FUNCTION[+OFFSET]`` or at an address.

    Raises:
        NotSupported: the kernel has no such events.
        TracingError: it refuses this one.
    """
    root = tracefs()
    name = f"{own_name()}/kernel{next(_numbers)}"
    kind = f"r{_CALLS}" if on_return else "p"
    event = define(root, FILES["p"], f"{kind}:{name} {target}", name)
    try:
        number = int((root / "events" / name / "id").read_text())
    except (OSError, ValueError) as err:
        remove(root, event)
        raise TracingError(f"{root}/events/{name}/id: {err}") from err
    return DefinedKprobe(root, event, number)
