"""The set of traced cgroups, in which programs look up those that the current task is in or below.

``bpf_get_current_ancestor_cgroup_id(LEVEL)`` returns the ID of the cgroup at a level above the
task, 0 if its own cgroup is not that deep. So one lookup per level decides, whatever cgroups are
made below those in the set. Programs look at the levels that are known when they are loaded, and
at all others once a cgroup at one of those is added.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.machine import KERNEL_WORD_SIZE
from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import Map, MapSpec
from usdt.engine.compiler.codegen.task_filter import ANY_LEVEL, CGROUPS

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ("MAX_LEVEL", "CgroupSet")

MAX_LEVEL = 12  # the deepest level at which cgroups are looked for that are added later
_MAX_CGROUPS = 1 << 12
_ID = struct.Struct("=Q")


class CgroupSet(Closeable):
    """The set of traced cgroups; a context manager.

    Args:
        levels: the levels that cgroups of the set have at the start.

    Attributes:
        levels: in ascending order.
        more_levels: those of cgroups that may be added.
        maps: the set, by the name with which programs refer to it.

    Raises:
        NotSupported: programs cannot look up the ancestors of a cgroup.
        SyscallError: EPERM without CAP_BPF and CAP_PERFMON.
    """

    def __init__(self, levels: Collection[int]) -> None:
        self.levels = tuple(sorted(levels))
        self.more_levels = tuple(sorted({*range(1, MAX_LEVEL + 1)} - {*levels}))
        what = "tracing by cgroup, container, pod or unit"
        if KERNEL_WORD_SIZE == 4:  # inode numbers have the lower half of IDs
            raise NotSupported(f"{what} on 32-bit machines")
        if not features.have_ancestor_cgroups():
            raise NotSupported(what, (5, 16))
        self.maps: dict[str, Map] = {
            CGROUPS: MapSpec(MapType.HASH, 8, 1, _MAX_CGROUPS, CGROUPS).create()
        }

    def add(self, number: int, level: int | None = None) -> None:
        """Trace the cgroup with this ID, and those below it.

        Args:
            number: the ID.
            level: its level, if that may be another than those of the start.

        Raises:
            TracingError: the set is full.
        """
        if level is not None and level not in self.levels:
            self.add(ANY_LEVEL)
        try:
            self.maps[CGROUPS].set(_ID.pack(number), b"\1")
        except SyscallError as err:
            if err.errno != errno.E2BIG:
                raise
            raise TracingError(f"more than {_MAX_CGROUPS} cgroups to trace") from err

    def remove(self, number: int) -> None:
        """Trace a cgroup no longer."""
        self.maps[CGROUPS].delete(_ID.pack(number))

    def close(self) -> None:
        """Free the set; idempotent."""
        for table in self.maps.values():
            table.close()
