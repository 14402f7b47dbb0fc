"""/proc/PID/maps: the mappings of a process."""

from __future__ import annotations

import contextlib
import os

from usdt.base.frozen import frozen
from usdt.procfs.access import explain_errors, read_bytes
from usdt.procfs.process import thread_with_memory

__all__ = ("DELETED", "Mapping", "parse_line", "parse_maps", "read_maps", "read_maps_file")

#: What the kernel appends to the name of a mapped file that was deleted.
DELETED = b" (deleted)"
_TRIES = 100  # to read mappings of a process that executes programs all the time


@frozen
class Mapping:
    """One line of /proc/PID/maps (Documentation/filesystems/proc.rst).

    Attributes:
        start: first address.
        end: first address after it.
        permissions: four characters, ``r-xp``.
        offset: of the first byte in the file.
        device: (major, minor) of the file; (0, 0) where there is none.
        inode: of the file; 0 where there is none.
        path: the file's name in its own namespace, ``[vdso]``, ``[heap]`` …, or "" (anonymous).
        deleted: the name no longer leads to the file. A memfd never had a name: always deleted.
    """

    start: int
    end: int
    permissions: str
    offset: int
    device: tuple[int, int]
    inode: int
    path: str
    deleted: bool

    @property
    def executable(self) -> bool:
        """True if the process may execute instructions there, so that probes can be there."""
        return self.permissions[2:3] == "x"


def read_maps(pid: int) -> list[Mapping]:
    """Return every mapping of a process; a kernel thread and a zombie have none.

    Raises:
        TargetError: no such process, or not permitted.
    """
    return parse_maps(read_maps_file(pid))


def read_maps_file(pid: int) -> bytes:
    """Return the contents of /proc/PID/maps; nothing for a kernel thread and a zombie.

    Raises:
        TargetError: no such process, or not permitted.
    """
    with explain_errors(pid):
        data = read_bytes(f"/proc/{pid}/maps")
        # open(2) takes the memory that read(2) shows. If the process executes a program in between,
        # that memory is gone, and the file empty. So is that of a first thread that has ended.
        for _ in range(_TRIES):
            if data or not (thread := thread_with_memory(pid)):
                break
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended, too
                data = read_bytes(f"/proc/{thread}/maps")
        return data


def parse_maps(data: bytes) -> list[Mapping]:
    r"""Parse the contents of /proc/PID/maps; skip malformed lines.

    The kernel writes a newline in a name as ``\012`` and does not escape a backslash, so a name
    that contains ``\012`` cannot be told from one with a newline; a newline is assumed.
    """
    return [mapping for line in data.split(b"\n") if (mapping := parse_line(line)) is not None]


def parse_line(line: bytes) -> Mapping | None:
    """Parse one line of /proc/PID/maps; None if it is malformed."""
    fields = line.split(None, 5)
    if len(fields) < 5:
        return None
    start, _, end = fields[0].partition(b"-")
    major, _, minor = fields[3].partition(b":")
    name = fields[5] if len(fields) == 6 else b""
    deleted = name.endswith(DELETED) and name.startswith(b"/")
    try:
        return Mapping(
            start=int(start, 16),
            end=int(end, 16),
            permissions=fields[1].decode("ascii"),
            offset=int(fields[2], 16),
            device=(int(major, 16), int(minor, 16)),
            inode=int(fields[4]),
            path=_decode_name(name[: -len(DELETED)] if deleted else name),
            deleted=deleted,
        )
    except ValueError:
        return None


def _decode_name(name: bytes) -> str:
    return os.fsdecode(name.replace(b"\\012", b"\n"))
