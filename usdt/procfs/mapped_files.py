"""The files that processes have mapped, and paths that open exactly these files.

A path read from another process is only a name. The file may have been deleted or replaced since,
may never have had a name (memfd), or the process may be in another mount namespace, where the name
is that of another file. Device and inode identify a mapped file, so every path offered here for
opening has been compared with them. In order of preference:

    /proc/PID/map_files/START-END   the mapped file itself, even if deleted; root only
                                    (CAP_SYS_ADMIN, or CAP_CHECKPOINT_RESTORE since Linux 5.9)
    /proc/PID/root + PATH           the name in the process's own mount namespace and chroot
    PATH                            a chroot inside our namespace is shown with our names
    /proc/PID/exe                   the running program, even if deleted

Devices: on overlayfs and btrfs, stat(2) returns another device number than /proc/PID/maps shows.
One of the two is then an anonymous one (major 0), and the inode alone is compared. Device and inode
of a :class:`MappedFile` are always those of /proc/PID/maps if it can be read;
:func:`file_identity` finds them for any file.
"""

# These paths are handled by the thousand, and importing pathlib takes 6 ms:
# ruff: noqa: PTH115, PTH116, PTH123

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen
from usdt.base.terminal import progress
from usdt.procfs.access import explain_errors, read_bytes
from usdt.procfs.maps import DELETED, Mapping, parse_line, read_maps_file
from usdt.procfs.process import pid_exists, start_time, thread_with_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = (
    "FileId",
    "MappedFile",
    "MapsPoller",
    "executable_of",
    "file_identity",
    "files_of_processes",
    "mapped_file",
    "mapped_files",
    "same_file",
)

#: Device (major, minor) and inode of a file, as in /proc/PID/maps.
FileId = tuple[tuple[int, int], int]


@frozen
class MappedFile:
    """A file that a process has mapped.

    Attributes:
        path: its name as the process knows it, for output.
        open_path: a path that opens this very file, for us and for the kernel; None if there is
            none (a deleted file, without the privilege to use map_files).
        device: (major, minor) as in /proc/PID/maps.
        inode: as in /proc/PID/maps.
        deleted: ``path`` no longer leads to the file.
    """

    path: str
    open_path: str | None
    device: tuple[int, int]
    inode: int
    deleted: bool

    @property
    def identity(self) -> FileId:
        """Device and inode, which identify a file."""
        return self.device, self.inode


def mapped_files(pid: int, *, executable_only: bool = True) -> list[MappedFile]:
    """Return the files a process has mapped, one for each device and inode, in order of address.

    Args:
        pid: the process, or one of its threads.
        executable_only: only files with an executable mapping (programs, libraries).

    Raises:
        TargetError: no such process, or not permitted.
    """
    lines = _file_lines(read_maps_file(pid), executable_only=executable_only)
    return [mapped_file(pid, mapping) for mapping in lines.values()]


def files_of_processes(
    pids: Iterable[int], *, skip_errors: bool = False
) -> Iterator[tuple[str, str, FileId]]:
    """Yield path, path to open and identity of the files that processes have mapped executable.

    Each file is yielded once; one that cannot be opened is left out.

    Args:
        pids: the processes.
        skip_errors: True to skip processes that have ended or belong to another user.

    Raises:
        TargetError: no such process, or not permitted.
    """
    seen: set[FileId] = set()
    for pid in progress.through(pids, "searching processes"):
        try:
            files = mapped_files(pid)
        except TargetError:
            if skip_errors:
                continue
            raise
        for file in files:
            if file.open_path is not None and file.identity not in seen:
                seen.add(file.identity)
                yield file.path, file.open_path, file.identity


def _file_lines(data: bytes, *, executable_only: bool) -> dict[FileId, Mapping]:
    # The first mapping of each file. A process has hundreds of lines, and few are of interest:
    # select them as bytes, before anything is converted.
    found: dict[bytes, bytes] = {}
    for line in data.split(b"\n"):
        fields = line.split(None, 5)
        if len(fields) < 6 or fields[4] == b"0" or (executable_only and fields[1][2:3] != b"x"):
            continue
        found.setdefault(fields[3] + b" " + fields[4], line)
    mappings = (parse_line(line) for line in found.values())
    return {(mapping.device, mapping.inode): mapping for mapping in mappings if mapping is not None}


def mapped_file(pid: int, mapping: Mapping) -> MappedFile:
    """Return the file of a mapping of a process."""
    # The file's real name may end in " (deleted)": see whether that name leads to the file.
    literal = mapping.path + os.fsdecode(DELETED)
    if mapping.deleted and _is_same(f"/proc/{pid}/root{literal}", mapping.device, mapping.inode):
        return _named(pid, mapping, literal, deleted=False)
    return _named(pid, mapping, mapping.path, deleted=mapping.deleted)


def _named(pid: int, mapping: Mapping, path: str, *, deleted: bool) -> MappedFile:
    open_path = _open_path(pid, mapping, path)
    if open_path is None:
        with contextlib.suppress(TargetError):
            thread = thread_with_memory(pid)
            if thread not in (0, pid):
                open_path = _open_path(thread, mapping, path)
    return MappedFile(path, open_path, mapping.device, mapping.inode, deleted)


def _open_path(pid: int, mapping: Mapping, path: str) -> str | None:
    candidates = (
        f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}",
        f"/proc/{pid}/root{path}",
        path,
        f"/proc/{pid}/exe",
    )
    return next((one for one in candidates if _is_same(one, mapping.device, mapping.inode)), None)


def _is_same(path: str, device: tuple[int, int], inode: int) -> bool:
    # Whether a path leads to the mapped file; see the module's docstring for devices.
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    if found.st_ino != inode or not stat.S_ISREG(found.st_mode):
        return False
    return _same_device((os.major(found.st_dev), os.minor(found.st_dev)), device)


def _same_device(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one == other or one[0] == 0 or other[0] == 0


def same_file(path: str, mapped: MappedFile) -> bool:
    """Return whether a path, in our own mount namespace, leads to a mapped file."""
    return _is_same(path, mapped.device, mapped.inode)


def file_identity(path: str) -> FileId:
    """Return device and inode of a file as /proc/PID/maps shows them, by mapping it.

    Raises:
        TargetError: the file cannot be opened, is empty, or is not a regular file.
    """
    import mmap  # noqa: PLC0415 - most commands never need it

    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not found.st_size:
                raise TargetError(f"{path}: empty file, not an ELF file")
            before = set(read_bytes("/proc/self/maps").split(b"\n"))
            with mmap.mmap(file.fileno(), 1, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ):
                after = read_bytes("/proc/self/maps").split(b"\n")
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise TargetError(f"{path}: cannot be mapped: {reason}") from err
    for line in after:
        mapping = None if line in before else parse_line(line)
        if mapping is not None and mapping.inode == found.st_ino:
            return mapping.device, mapping.inode
    return (os.major(found.st_dev), os.minor(found.st_dev)), found.st_ino


def executable_of(pid: int) -> MappedFile | None:
    """Return the program a process runs, with /proc/PID/exe as the path to open.

    None for kernel threads and zombies.

    Raises:
        TargetError: no such process, or not permitted.
    """
    link = f"/proc/{pid}/exe"
    with explain_errors(pid):
        try:
            name = os.readlink(os.fsencode(link))
            found = os.stat(link)
        except FileNotFoundError:
            thread = thread_with_memory(pid)  # raises if the process has ended
            return executable_of(thread) if thread not in (0, pid) else None
    for mapping in _file_lines(read_maps_file(pid), executable_only=False).values():
        if _is_same(link, mapping.device, mapping.inode):
            mapped = mapped_file(pid, mapping)
            return MappedFile(mapped.path, link, mapping.device, mapping.inode, mapped.deleted)
    deleted = name.endswith(DELETED)
    path = os.fsdecode(name[: -len(DELETED)] if deleted else name)
    device = os.major(found.st_dev), os.minor(found.st_dev)
    return MappedFile(path, link, device, found.st_ino, deleted)


class MapsPoller:
    """Reports the files that a process maps over time: libraries it loads, programs it executes.

    Attributes:
        pid: the process.
        alive: False once the process has ended, as of the last call of :meth:`changed`.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.alive = True
        self._maps = b""
        self._start_time: int | None = None
        self._seen: set[FileId] = set()

    def changed(self) -> list[MappedFile]:
        """Return the files mapped executable since the last call; at first, all of them.

        Each file is returned once. If nothing changed, this costs one read of /proc/PID/maps. A
        process that has ended is not an error: see ``alive``.

        Raises:
            TargetError: the process exists and may not be inspected.
        """
        if not self.alive:
            return []
        try:
            data = read_maps_file(self.pid)
            if data == self._maps:
                return []
            started = start_time(self.pid)
        except TargetError:
            if pid_exists(self.pid):
                raise
            self.alive = False
            return []
        if not data or started != (self._start_time or started):
            self.alive = False  # a zombie, or another process with the same ID
            return []
        self._maps, self._start_time = data, started
        lines = _file_lines(data, executable_only=True)
        fresh = [mapping for key, mapping in lines.items() if key not in self._seen]
        self._seen.update(lines)
        return [mapped_file(self.pid, mapping) for mapping in fresh]
