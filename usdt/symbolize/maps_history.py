"""The current and earlier mappings of one process."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.procfs.maps import parse_maps, read_maps_file
from usdt.procfs.process import start_time

if TYPE_CHECKING:
    from usdt.procfs.maps import Mapping

__all__ = ("MAX_GENERATIONS", "MapsHistory", "is_jit_code")

MAX_GENERATIONS = 8  # older mappings kept: an unloaded library, the program before execve(2)
_MAX_MAPPINGS = 1 << 18  # vm.max_map_count is 65,530 unless raised


def is_jit_code(mapping: Mapping | None) -> bool:
    """Return whether a mapping has code that is in no file."""
    return mapping is not None and mapping.executable and not mapping.path


class MapsHistory:
    """The current mappings of one process, and up to :data:`MAX_GENERATIONS` - 1 earlier sets.

    Args:
        pid: the process ID in this process's PID namespace.

    Attributes:
        pid: the process ID.
        generation: number of changes seen.
        alive: True if /proc/PID/maps could be read the last time.
        outdated: True if the process has executed another program since the last read.
        has_jit_code: True if a current mapping has code that is in no file.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.generation = 0
        self.alive = True
        self.outdated = False
        self.has_jit_code = False
        self._start_time: int | None = None
        self._data = b""
        self._past: list[tuple[list[int], list[Mapping]]] = []

    def refresh(self) -> bool:
        """Read the mappings again; return True if any has changed."""
        try:
            data = read_maps_file(self.pid)
            if data and data == self._data:
                self.outdated = False
                return False
            started = start_time(self.pid)
        except TargetError:
            self.alive = False
            return False
        if not data:  # a zombie, or a kernel thread
            self.alive = False
            return False
        if started != self._start_time:
            self._past.clear()  # another process with the same ID
            self._start_time = started
        self.alive = True
        self._data = data
        self.remember(parse_maps(data)[:_MAX_MAPPINGS])
        return True

    def remember(self, mappings: list[Mapping]) -> None:
        """Set the current mappings; the previous ones become earlier ones."""
        mappings = sorted(mappings, key=lambda one: one.start)
        self._past.insert(0, ([one.start for one in mappings], mappings))
        del self._past[MAX_GENERATIONS:]
        self.generation += 1
        self.outdated = False
        self.has_jit_code = any(is_jit_code(one) for one in mappings)

    @property
    def mappings(self) -> list[Mapping]:
        """The current mappings."""
        return self._past[0][1] if self._past else []

    def known(self) -> list[Mapping]:
        """Return the current and earlier mappings, the latest last."""
        return [one for _, mappings in reversed(self._past) for one in mappings]

    def find(self, address: int, *, before: bool = False) -> Mapping | None:
        """Return the current mapping of an address; with ``before``, the latest that covered it."""
        if self.outdated and not before:
            return None
        for starts, mappings in self._past:
            at = bisect.bisect_right(starts, address) - 1
            if at >= 0 and address < mappings[at].end:
                return mappings[at]
            if not before:
                return None
        return None
