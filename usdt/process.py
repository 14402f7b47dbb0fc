"""Processes as /proc shows them: what each has mapped, and how to open exactly that file.

A path read from another process is only a name. The file may have been deleted or replaced since,
may never have had a name (memfd), or may belong to another mount namespace where the same name is
another file. What identifies a mapped file is its device and inode, so every path offered here for
opening has been compared with them. In order of preference:

    /proc/PID/map_files/START-END   the very file of the mapping, deleted or not; root only
                                    (CAP_SYS_ADMIN, or CAP_CHECKPOINT_RESTORE since Linux 5.9)
    /proc/PID/root/PATH             the name in the process's own mount namespace and chroot
    PATH                            a chroot inside our namespace is shown with our names
    /proc/PID/exe                   the running program, even a deleted one

Devices: overlayfs and btrfs give stat(2) another device number than /proc/PID/maps shows, so where
devices differ the inode decides alone. Device and inode of a :class:`MappedFile` are always those
of /proc/PID/maps where it can be read; :func:`file_identity` tells them for any file.
"""
# ruff: noqa: PTH - these paths are handled by the thousand, and pathlib is a slow import

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bpf.errors import TargetError

__all__ = (
    "MappedFile",
    "Mapping",
    "MapsWatch",
    "ThreadGroup",
    "command_name",
    "exe",
    "file_identity",
    "host_pid",
    "in_initial_pid_namespace",
    "is_kernel_thread",
    "mapped_files",
    "namespace_pids",
    "open_pidfd",
    "parse_maps",
    "path_in_root",
    "pid_exists",
    "pid_namespace",
    "processes",
    "processes_mapping",
    "read_maps",
    "start_time",
    "thread_group",
)

PF_KTHREAD = 0x00200000  # include/linux/sched.h
PROC_PID_INIT_INO = 0xEFFFFFFC  # include/linux/proc_ns.h: the initial pid namespace's inode

_DELETED = b" (deleted)"
_MEMFD = b"/memfd:"
_MAX_SYMLINKS = 40  # MAXSYMLINKS, include/linux/namei.h


@dataclass(frozen=True, slots=True)
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
        """Whether instructions are fetched from it: where probes can be."""
        return self.permissions[2:3] == "x"


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file that a process has mapped.

    Attributes:
        path: its name as the process knows it; for people and output.
        open_path: what to open and to hand to the kernel to reach this very file, or None where
            nothing reaches it (a deleted file, without the privilege to use map_files).
        device: (major, minor) as /proc/PID/maps has it.
        inode: as /proc/PID/maps has it.
        deleted: ``path`` no longer leads to it.
    """

    path: str
    open_path: str | None
    device: tuple[int, int]
    inode: int
    deleted: bool


@dataclass(frozen=True, slots=True)
class ThreadGroup:
    """The process that a given id belongs to; ``given`` differs from ``pid`` for a thread's id."""

    pid: int
    given: int

    @property
    def note(self) -> str:
        """What to tell who gave a thread's id, or ""."""
        if self.pid == self.given:
            return ""
        return f"{self.given} is a thread of process {self.pid}: the whole process is meant"


def parse_maps(data: bytes) -> list[Mapping]:
    """Parse the contents of /proc/PID/maps; lines that make no sense are passed over.

    The kernel writes a newline in a name as ``\\012`` and leaves a backslash alone, so a name that
    really contains ``\\012`` cannot be told from one with a newline; a newline is taken.
    """
    return [mapping for line in data.split(b"\n") if (mapping := _parse_line(line)) is not None]


def _parse_line(line: bytes) -> Mapping | None:
    fields = line.split(None, 5)
    if len(fields) < 5:
        return None
    start, _, end = fields[0].partition(b"-")
    major, _, minor = fields[3].partition(b":")
    name = fields[5] if len(fields) == 6 else b""
    deleted = name.endswith(_DELETED) and name.startswith(b"/")
    try:
        return Mapping(
            start=int(start, 16),
            end=int(end, 16),
            permissions=fields[1].decode("ascii"),
            offset=int(fields[2], 16),
            device=(int(major, 16), int(minor, 16)),
            inode=int(fields[4]),
            path=_decoded(name[: -len(_DELETED)] if deleted else name),
            deleted=deleted,
        )
    except ValueError:
        return None


def _decoded(name: bytes) -> str:
    return os.fsdecode(name.replace(b"\\012", b"\n"))


def read_maps(pid: int) -> list[Mapping]:
    """Every mapping of a process; a kernel thread and a zombie have none.

    Raises:
        TargetError: no such process, or not permitted.
    """
    return parse_maps(_maps(pid))


def _maps(pid: int) -> bytes:
    with _explained(pid):
        return _read(f"/proc/{pid}/maps")


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


@contextmanager
def _explained(pid: int) -> Iterator[None]:
    # Every look into /proc/PID fails in one of these ways.
    try:
        yield
    except (FileNotFoundError, ProcessLookupError) as err:
        raise TargetError(f"no process {pid}") from err
    except PermissionError as err:
        raise TargetError(_refusal(pid)) from err
    except OSError as err:
        raise TargetError(f"process {pid}: {err.strerror} ({err.filename})") from err


def _refusal(pid: int) -> str:
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return f"no process {pid}"
    if owner == os.geteuid():
        return f"process {pid} does not let itself be inspected; needs CAP_SYS_PTRACE: run as root"
    return f"process {pid} belongs to another user (uid {owner}); needs CAP_SYS_PTRACE: run as root"


def mapped_files(pid: int, *, executable_only: bool = True) -> list[MappedFile]:
    """The files a process has mapped, one for each device and inode, in order of address.

    Args:
        pid: the process; a thread's id will do.
        executable_only: only files with a mapping that is executable (programs, libraries).

    Raises:
        TargetError: no such process, or not permitted.
    """
    lines = _file_lines(_maps(pid), executable_only=executable_only)
    return [_mapped_file(pid, mapping) for mapping in lines.values()]


def _file_lines(
    data: bytes, *, executable_only: bool
) -> dict[tuple[tuple[int, int], int], Mapping]:
    # The first mapping of each file. A process has hundreds of lines and few of interest:
    # they are picked as bytes, before anything is converted.
    found: dict[bytes, bytes] = {}
    for line in data.split(b"\n"):
        fields = line.split(None, 5)
        if len(fields) < 6 or fields[4] == b"0" or (executable_only and fields[1][2:3] != b"x"):
            continue
        found.setdefault(fields[3] + b" " + fields[4], line)
    mappings = (_parse_line(line) for line in found.values())
    return {(mapping.device, mapping.inode): mapping for mapping in mappings if mapping is not None}


def _mapped_file(pid: int, mapping: Mapping) -> MappedFile:
    # A file whose name really ends in " (deleted)" is told from a deleted one by asking for it.
    whole = mapping.path + " (deleted)"
    if mapping.deleted and not mapping.path.startswith("/memfd:"):
        if _is_same(f"/proc/{pid}/root{whole}", mapping.device, mapping.inode):
            return _named(pid, mapping, whole, deleted=False)
    return _named(pid, mapping, mapping.path, deleted=mapping.deleted)


def _named(pid: int, mapping: Mapping, path: str, *, deleted: bool) -> MappedFile:
    candidates = (
        f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}",
        f"/proc/{pid}/root{path}",
        path,
        f"/proc/{pid}/exe",
    )
    device, inode = mapping.device, mapping.inode
    open_path = next((name for name in candidates if _is_same(name, device, inode)), None)
    return MappedFile(path, open_path, device, inode, deleted)


def _is_same(path: str, device: tuple[int, int], inode: int) -> bool:
    # An equal inode on another device is taken for the same file: see the module's docstring.
    del device
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    return found.st_ino == inode and stat.S_ISREG(found.st_mode)
