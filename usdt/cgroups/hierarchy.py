"""The mounted cgroup2 file system: its cgroups, with IDs and levels, and their processes.

The ID of a cgroup is the inode number of its directory (64 bits on 64-bit machines, Linux 5.5,
commit 743210386c03). The root has the ID 1 and the level 0. In a cgroup namespace, and below a bind
mount, the mounted root is a cgroup below: the levels of its cgroups are then unknown.
"""

# These paths are handled by the thousand, and importing pathlib takes 6 ms:
# ruff: noqa: PTH116

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.procfs.access import explain_errors, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("Cgroup", "Hierarchy", "cgroup_path", "mounted_hierarchy")

_ROOT_ID = 1
_MAX_CGROUPS = 1 << 17
_MAX_DEPTH = 64
_OCTAL = r"\\([0-7]{3})"


@frozen
class Cgroup:
    """A cgroup.

    Attributes:
        path: from the root of the mounted hierarchy, ``/`` for that root.
        id: the number by which programs know it.
    """

    path: str
    id: int

    @property
    def depth(self) -> int:
        """How many directories it is below the mounted root."""
        return 0 if self.path == "/" else self.path.count("/")

    def holds(self, other: Cgroup) -> bool:
        """Return whether another cgroup is this one, or below it."""
        return self.path in ("/", other.path) or other.path.startswith(self.path + "/")


class Hierarchy:
    """The cgroups of version 2 that are mounted at a directory.

    Attributes:
        mount: the directory.
        whole: whether its root is that of the machine, so that depths are levels.
        hybrid: whether cgroups of version 1 are mounted as well.
    """

    def __init__(self, mount: str, *, hybrid: bool = False) -> None:
        self.mount = mount
        self.hybrid = hybrid
        self.whole = os.stat(mount).st_ino == _ROOT_ID

    def find(self, path: str) -> Cgroup | None:
        """Return the cgroup at a path from the root; None if there is none."""
        parts = [part for part in path.split("/") if part]
        if ".." in parts or "." in parts or "\0" in path:
            return None
        try:
            found = os.lstat("/".join((self.mount, *parts)))
        except (OSError, ValueError):
            return None
        return Cgroup("/" + "/".join(parts), found.st_ino) if _is_directory(found) else None

    def below(self, top: Cgroup) -> Iterator[Cgroup]:
        """Yield a cgroup and all below it, each before its children; any may be gone by now."""
        ahead, number = [top], 0
        while ahead and number < _MAX_CGROUPS:
            one = ahead.pop()
            number += 1
            yield one
            if one.depth < _MAX_DEPTH:
                ahead += self._children(one)

    def _children(self, one: Cgroup) -> list[Cgroup]:
        prefix = "" if one.path == "/" else one.path
        try:
            with os.scandir(self.mount + prefix) as entries:
                return [
                    Cgroup(f"{prefix}/{entry.name}", entry.inode())
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:  # removed meanwhile, or not permitted
            return []

    @property
    def every(self) -> Iterator[Cgroup]:
        """All cgroups."""
        root = self.find("/")
        return iter(()) if root is None else self.below(root)

    def state(self) -> bytes:
        """Return what differs if cgroups were made or removed, as long as their number differs."""
        try:
            return read_bytes(f"{self.mount}/cgroup.stat")
        except OSError:  # before Linux 4.14, or at the root of a namespace
            return b""

    def processes(self, top: Cgroup) -> list[int]:
        """Return the processes in a cgroup and in those below it, as we see them."""
        found: set[int] = set()
        for one in self.below(top):
            with contextlib.suppress(OSError, ValueError):
                try:
                    words = read_bytes(f"{self.mount}{one.path}/cgroup.procs").split()
                except OSError as err:
                    # A threaded cgroup: its processes are in the cgroup above it.
                    if err.errno != errno.EOPNOTSUPP:
                        raise
                    continue
                found.update(map(int, words))
        return sorted(found - {0})  # 0: a process outside of our PID namespace


def _is_directory(found: os.stat_result) -> bool:
    return found.st_mode & 0o170000 == 0o040000


def mounted_hierarchy() -> Hierarchy:
    """Return the hierarchy of this machine.

    Raises:
        TargetError: no cgroup2 file system is mounted.
    """
    try:
        lines = os.fsdecode(read_bytes("/proc/self/mountinfo")).split("\n")
    except OSError as err:
        raise TargetError(f"/proc/self/mountinfo: {err.strerror}") from err
    split = [line.partition(" - ") for line in lines]
    old = any(rest.startswith("cgroup ") for _, _, rest in split)
    for mounted, _, rest in split:
        kind = rest.partition(" ")[0]
        words = mounted.split(" ")
        if kind == "cgroup2" and len(words) > 4:
            with contextlib.suppress(OSError):
                mount = re.sub(_OCTAL, lambda match: chr(int(match[1], 8)), words[4])
                return Hierarchy(mount, hybrid=old)
    only = "only cgroups of version 1 are mounted" if old else "none is mounted"
    raise TargetError(
        f"no cgroup2 file system: {only}, and programs see cgroups of version 2; "
        "mount it with: mount -t cgroup2 none DIRECTORY"
    )


def cgroup_path(pid: int) -> str:
    """Return the path of a process's cgroup; "" if it has none of version 2.

    Raises:
        TargetError: no such process.
    """
    with explain_errors(pid):
        data = read_bytes(f"/proc/{pid}/cgroup")
    for line in data.split(b"\n"):
        if line.startswith(b"0::"):
            return os.fsdecode(line[3:]).removesuffix(" (deleted)")
    return ""
