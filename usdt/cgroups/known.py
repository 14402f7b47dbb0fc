"""The cgroups of a run: names by ID, also of those that have ended.

All cgroups are looked up at the start. Linux 6.18 reports each that is made later before a process
is in it (:mod:`usdt.bpf.perf.sideband`), so that a container which lives for milliseconds has its
name. Where the kernel does not report them (6.1 accepts the event and reports none; or the
controller perf_event is on a hierarchy of version 1), the file system is searched again when the
number of cgroups has changed.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, assert_never

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError, TargetError
from usdt.bpf.perf.sideband import CgroupRecord, LostRecord, PerfSideband
from usdt.cgroups.hierarchy import mounted_hierarchy
from usdt.cgroups.labels import CgroupName, labels_of
from usdt.cgroups.names import ContainerNames

if TYPE_CHECKING:
    from usdt.cgroups.hierarchy import Hierarchy

__all__ = ("CgroupNames", "KnownCgroups", "RestoredCgroups")

_MAX_CGROUPS = 1 << 17
_MAX_TEXT = 1 << 13  # characters of a name in a recording
_AGAIN = 0.25  # seconds between two searches for cgroups that are not known


_Names = tuple[str, ...]  # in the order of CgroupName


class CgroupNames(Closeable):
    """Names of cgroups by ID."""

    def __init__(self) -> None:
        self._names: dict[int, _Names] = {}

    def name(self, kind: CgroupName, number: int) -> str | None:
        """Return a name of a cgroup: "" if it has none, None if nothing is known of the cgroup."""
        found = self._names.get(number)
        return None if found is None else found[_INDEXES[kind]]

    def look(self) -> None:
        """Take what has become known since the last call."""

    def close(self) -> None:
        """Free all resources; idempotent."""


class KnownCgroups(CgroupNames):
    """Names of this machine's cgroups, from now on; a context manager.

    Args:
        names: names of containers and pods.
    """

    def __init__(self, names: ContainerNames | None = None) -> None:
        super().__init__()
        self._containers = names or ContainerNames()
        self._paths: dict[int, str] = {}
        self._next_search, self._state = 0.0, b""
        self._records: PerfSideband | None = None
        with contextlib.suppress(SyscallError):  # before Linux 5.7, or not permitted
            self._records = PerfSideband(cgroups=True)
        self._hierarchy: Hierarchy | None = None
        with contextlib.suppress(TargetError):  # every ID is that of the root then
            self._hierarchy = mounted_hierarchy()
        self._search()

    def close(self) -> None:
        """Stop watching; idempotent."""
        if self._records is not None:
            self._records.close()
            self._records = None

    def name(self, kind: CgroupName, number: int) -> str | None:
        """See :meth:`CgroupNames.name`."""
        if number not in self._paths:
            self.look()
        if number not in self._paths:
            self._search()
        path = self._paths.get(number)
        if path is None:
            return None
        labels = labels_of(path)
        match kind:
            case CgroupName.CONTAINER:
                return self._containers.container(labels)
            case CgroupName.POD:
                return self._containers.pod(labels)
            case CgroupName.UNIT:
                return labels.unit
            case CgroupName.PATH:
                return path
            case _:
                assert_never(kind)

    def look(self) -> None:
        """Take the cgroups that the kernel has reported, and learn the names of new containers."""
        for record in self._records.take() if self._records is not None else ():
            if isinstance(record, CgroupRecord):
                self._add(record.id, os.fsdecode(record.path))
            elif isinstance(record, LostRecord):
                self._next_search = 0.0
                self._search()
        state = b"" if self._hierarchy is None else self._hierarchy.state()
        if state != self._state:
            self._state = state
            self._search()
        self._containers.look()

    def _search(self) -> None:
        now = time.monotonic()
        if self._hierarchy is None or now < self._next_search:
            return
        for one in self._hierarchy.every:
            self._add(one.id, one.path)
        self._next_search = time.monotonic() + _AGAIN

    def _add(self, number: int, path: str) -> None:
        if self._paths.get(number) == path:
            return
        while len(self._paths) >= _MAX_CGROUPS:
            del self._paths[next(iter(self._paths))]
        self._paths[number] = path
        self._containers.expect(labels_of(path))

    def take_names(self) -> dict[str, list[str]]:
        """Return the names that were not returned before, for a recording."""
        self.look()
        found = {}
        for number in self._paths:
            names = tuple(self.name(kind, number) or "" for kind in CgroupName)
            if self._names.get(number) != names:
                self._names[number] = names
                found[str(number)] = [*names]
        return found


class RestoredCgroups(CgroupNames):
    """Names of cgroups from a recording."""

    def restore(self, data: Any) -> None:
        """Add the names that :meth:`KnownCgroups.take_names` has returned.

        Raises:
            ValueError: it cannot have returned them.
        """
        if not isinstance(data, dict) or len(self._names) + len(data) > _MAX_CGROUPS:
            raise ValueError("names of cgroups expected")
        for number, names in data.items():
            valid = isinstance(names, list) and len(names) == len(CgroupName) and number.isdecimal()
            if not valid or not all(isinstance(n, str) and len(n) <= _MAX_TEXT for n in names):
                raise ValueError("a cgroup's ID and names expected")
            self._names[int(number)] = tuple(names)


_INDEXES = {kind: index for index, kind in enumerate(CgroupName)}
