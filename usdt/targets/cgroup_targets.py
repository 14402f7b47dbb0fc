"""The processes in selected cgroups, and the files that they have mapped.

The kernel decides which hits count (:class:`usdt.engine.runtime.cgroup_set.CgroupSet`). This module
finds the files in which probes are attached: those of processes that are in the cgroups now, and of
those that start later. A container or unit that is started again has another cgroup, which is
selected by the same name.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import SyscallError, TargetError
from usdt.bpf.perf.sideband import PerfSideband
from usdt.cgroups.hierarchy import mounted_hierarchy
from usdt.cgroups.selection import CgroupSelection
from usdt.engine.runtime.cgroup_set import MAX_LEVEL, CgroupSet
from usdt.procfs.mapped_files import MapsPoller

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.cgroups.hierarchy import Cgroup
    from usdt.cgroups.selection import CgroupChoice
    from usdt.procfs.mapped_files import MappedFile

__all__ = ("CgroupTargets",)

_SEARCH = 2.0  # seconds between two searches, if the number of cgroups is what it was


class CgroupTargets(Closeable):
    """Selected cgroups; a context manager.

    Args:
        choices: the options that select them.

    Attributes:
        followed: the set in the kernel.
        written: the options as written, for messages.
        notices: messages for the user.

    Raises:
        TargetError: an option selects nothing, or no cgroup2 file system is mounted.
        NotSupported: the kernel cannot tell programs the cgroups of tasks.
    """

    def __init__(self, choices: Sequence[CgroupChoice]) -> None:
        self.notices: list[str] = []
        self.written = " ".join(choice.written for choice in choices)
        self._hierarchy = mounted_hierarchy()
        self._selection = CgroupSelection(choices, self._hierarchy)
        self._tops = self._selection.first()
        self._state, self._next_search = b"", 0.0
        self._events: PerfSideband | None = None
        self._maps: dict[int, MapsPoller] = {}
        # Where the level of the mounted root is not known, all are looked at.
        known = {one.depth for one in self._tops}
        self.followed = CgroupSet(known if self._hierarchy.whole else {*range(1, MAX_LEVEL + 1)})
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for one in self._tops:
                self.followed.add(one.id)
            with contextlib.suppress(SyscallError):  # before Linux 5.7
                self._events = PerfSideband(cgroups=True)
            undo.pop_all()

    def close(self) -> None:
        """Release all resources; idempotent."""
        self.followed.close()
        if self._events is not None:
            self._events.close()

    @property
    def descriptors(self) -> list[int]:
        """File descriptors that are readable when a cgroup has been made."""
        return [] if self._events is None else self._events.descriptors

    def processes(self) -> list[int]:
        """Return the processes in the cgroups."""
        return sorted({pid for one in self._tops for pid in self._hierarchy.processes(one)})

    def update(self) -> None:
        """Look for cgroups that are selected by now, and for those that are gone."""
        made = self._events.take() if self._events is not None else ()
        state, now = self._hierarchy.state(), time.monotonic()
        if not made and state == self._state and now < self._next_search:
            return
        self._state, self._next_search = state, now + _SEARCH
        current = self._selection.again()
        if current == self._tops:
            return
        before = {one.id for one in self._tops}
        for one in current:
            if one.id not in before:
                self._add(one)
        for number in before - {one.id for one in current}:
            self.followed.remove(number)
        self._tops = current

    def _add(self, one: Cgroup) -> None:
        if one.depth > max(MAX_LEVEL, *self.followed.levels):
            self.notices.append(
                f"cgroup {one.path} is new and not traced: it is more than {MAX_LEVEL} levels deep"
            )
            return
        self.followed.add(one.id, one.depth if self._hierarchy.whole else None)

    def new_files(self) -> Iterator[tuple[int, MappedFile]]:
        """Yield the files that processes in the cgroups have mapped since the last call."""
        present = self.processes()
        for pid in self._maps.keys() - set(present):
            del self._maps[pid]
        for pid in present:
            maps = self._maps.get(pid)
            if maps is None or not maps.alive:
                maps = self._maps[pid] = MapsPoller(pid)
            with contextlib.suppress(TargetError):
                for file in maps.changed():
                    yield pid, file

    def forget_files(self) -> None:
        """Let the next :meth:`new_files` yield all files once more."""
        self._maps.clear()
