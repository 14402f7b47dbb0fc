"""Perf map files: the names of functions that a JIT compiler has compiled.

The file is ``/tmp/perf-PID.map`` in the process's mount namespace; PID is the ID in its own PID
namespace. Each line is a function, ``START SIZE name``, with both numbers in hexadecimal. A
compiler appends lines; a later function replaces an earlier one at the same address
(tools/perf/Documentation/jit-interface.txt of the kernel's sources).

Any user can create such a file. It is therefore used only if it is a regular file that belongs to
the process's user or to root, and its path has no symbolic link. Only its first :data:`MAX_BYTES`
bytes are read.
"""

# Descriptors and dir_fd, which pathlib does not support:
# ruff: noqa: PTH116

from __future__ import annotations

import bisect
import contextlib
import os
import stat
import time

from usdt.base.errors import TargetError
from usdt.procfs.access import open_tmp
from usdt.procfs.namespaces import namespace_pids

__all__ = ("MAX_BYTES", "PerfMap")

MAX_BYTES = 64 << 20
_PAUSE = 20  # the pause between two reads, as a multiple of the duration of a read
_MAX_NAME = 4096
_MAX_LINES = 1 << 20


class PerfMap:
    """The perf map of one process, read again when it has changed.

    Args:
        pid: the process ID in this process's PID namespace.

    Attributes:
        name: ``perf-PID.map``, with the ID in the process's own PID namespace.
        notices: messages for the user: why an existing file was not used.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.notices: list[str] = []
        self._not_before = 0.0
        self._state: tuple[int, ...] | None = None
        self._starts: list[int] = []
        self._rows: list[tuple[int, int, bytes]] = []
        self.name = f"perf-{pid}.map"
        with contextlib.suppress(TargetError):
            self.name = f"perf-{namespace_pids(pid)[-1]}.map"

    def find(self, address: int) -> tuple[int, str] | None:
        """Return (start, name) of the function at an address; None if there is none."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start, size, name = self._rows[at]
        if not start <= address < start + size:
            return None
        return start, name.decode("utf-8", "surrogateescape")

    def refresh(self, *, at_once: bool = False) -> bool:
        """Read the file if it has changed; return True if it had.

        The longer a read takes, the longer the pause before the next one, but for ``at_once``.
        """
        began = time.monotonic()
        if began < self._not_before and not at_once:
            return False
        try:
            return self._refresh()
        finally:
            self._not_before = time.monotonic() + _PAUSE * (time.monotonic() - began)

    def _refresh(self) -> bool:
        descriptor = self._open()
        if descriptor is None:
            return False
        try:
            found = os.fstat(descriptor)
            state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if state == self._state:
                return False
            self._state = state
            if self._refused(found):
                return False
            with open(descriptor, "rb", closefd=False) as file:
                self.load(file.read(MAX_BYTES))
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def load(self, data: bytes) -> None:
        """Parse the contents of a perf map; skip malformed lines."""
        rows: dict[int, tuple[int, int, bytes]] = {}
        for line in data.split(b"\n", _MAX_LINES):
            fields = line.split(None, 2)
            if len(fields) == 3 and len(line) <= _MAX_NAME:
                try:
                    start, size = int(fields[0], 16), int(fields[1], 16)
                except ValueError:
                    continue
                if 0 < start < 1 << 64 and size > 0:
                    rows[start] = start, size, fields[2]
        self._rows = sorted(rows.values())
        self._starts = [row[0] for row in self._rows]

    def dump(self) -> bytes:
        """Return the known functions in the format of a perf map."""
        return b"".join(b"%x %x %s\n" % row for row in self._rows)

    def _open(self) -> int | None:
        try:
            folder = open_tmp(self._pid)
        except OSError:
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        try:
            if not stat.S_ISREG(os.stat(self.name, dir_fd=folder, follow_symlinks=False).st_mode):
                return None
            return os.open(self.name, flags, dir_fd=folder)
        except OSError:
            return None
        finally:
            os.close(folder)

    def _refused(self, found: os.stat_result) -> bool:
        try:
            owner = os.stat(f"/proc/{self._pid}").st_uid
        except OSError:
            owner = 0
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {0, owner}:
            self.notices.append(
                f"{self.name} is not used: it belongs to uid {found.st_uid}, "
                f"but process {self._pid} to uid {owner}"
            )
            return True
        return False
