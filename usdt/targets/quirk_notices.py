"""Messages about attached probes with quirks: those that do not fire, or not always."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.runtimes.quirks import find_quirks, is_settled, knows_quirks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usdt.runtimes.quirks import Quirk
    from usdt.targets.traced_files import TracedFile

__all__ = ("QuirkNotices",)


class QuirkNotices:
    """The quirks of attached probes.

    Attributes:
        found: those that have been told to the user.
    """

    def __init__(self) -> None:
        self.found: list[Quirk] = []
        self._names: set[str] = set()
        self._new: dict[tuple[str, int], set[str]] = {}

    def attached(self, file: TracedFile, names: Iterable[str]) -> None:
        """Add probes, ``provider:name``, that were attached in a file."""
        if knows_quirks(file.path):
            names = set(names)
            self._names |= names
            self._new.setdefault((file.path, file.pid), set()).update(names)

    def take(self) -> list[str]:
        """Return messages about the probes that were added.

        A process that has not read its options yet is looked at by a later call.
        """
        found: list[Quirk] = []
        for (path, pid), names in list(self._new.items()):
            if is_settled(path, pid):
                del self._new[path, pid]
                found += find_quirks(path, sorted(names), [pid] if pid else [])
        found = [one for one in found if one not in self.found and one.unless not in self._names]
        self.found += found
        return [one.text for one in found]
