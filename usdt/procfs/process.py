"""Processes as /proc shows them: what each has mapped, and how to open exactly that file.

A path read from another process is only a name. The file may have been deleted or replaced since,
may never have had a name (memfd), or may belong to another mount namespace where the same name is
another file. What identifies a mapped file is its device and inode, so every path offered here for
opening has been compared with them. In order of preference:

    /proc/PID/map_files/START-END   the very file of the mapping, deleted or not; root only
                                    (CAP_SYS_ADMIN, or CAP_CHECKPOINT_RESTORE since Linux 5.9)
    /proc/PID/root + PATH           the name in the process's own mount namespace and chroot
    PATH                            a chroot inside our namespace is shown with our names
    /proc/PID/exe                   the running program, even a deleted one

Devices: overlayfs and btrfs give stat(2) another device number than /proc/PID/maps shows. One of
the two numbers is then an anonymous one (major 0), and the inode decides alone. Device and inode of
a :class:`MappedFile` are always those of /proc/PID/maps where it can be read;
:func:`file_identity` tells them for any file.
"""

# These paths are handled by the thousand, and importing pathlib takes 6 ms:
# ruff: noqa: PTH112, PTH115, PTH116, PTH123, PTH208

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "MappedFile",
    "Mapping",
    "MapsPoller",
    "ThreadGroup",
    "command_name",
    "executable_of",
    "file_identity",
    "in_initial_pid_namespace",
    "is_kernel_thread",
    "mapped_files",
    "namespace_pids",
    "open_pidfd",
    "parent",
    "parse_maps",
    "pid_exists",
    "pid_namespace",
    "pid_visible_to_bpf",
    "processes",
    "read_maps",
    "same_file",
    "start_time",
    "thread_group",
)

PF_KTHREAD = 0x00200000  # include/linux/sched.h
PROC_PID_INIT_INO = 0xEFFFFFFC  # include/linux/proc_ns.h: the initial pid namespace's inode

_DELETED = b" (deleted)"


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
        """Whether instructions are fetched from it: where probes can be."""
        return self.permissions[2:3] == "x"


@frozen
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


@frozen
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
    r"""Parse the contents of /proc/PID/maps; lines that make no sense are passed over.

    The kernel writes a newline in a name as ``\012`` and leaves a backslash alone, so a name that
    really contains ``\012`` cannot be told from one with a newline; a newline is taken.
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
    if os.geteuid() in {owner, 0}:
        return f"process {pid} may not be inspected: not dumpable, or of another user namespace"
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
    if mapping.deleted and _is_same(f"/proc/{pid}/root{whole}", mapping.device, mapping.inode):
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
    # Whether a path leads to the mapped file; see the module's docstring for devices.
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    if found.st_ino != inode or not stat.S_ISREG(found.st_mode):
        return False
    return _same_device((os.major(found.st_dev), os.minor(found.st_dev)), device)


def same_file(path: str, mapped: MappedFile) -> bool:
    """Whether a path, as we open it, leads to a mapped file."""
    return _is_same(path, mapped.device, mapped.inode)


def _same_device(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one == other or one[0] == 0 or other[0] == 0


def file_identity(path: str) -> tuple[tuple[int, int], int]:
    """Device and inode of a file as /proc/PID/maps shows them, learnt by mapping it ourselves.

    Raises:
        TargetError: the file cannot be opened, or is empty or no regular file.
    """
    import mmap  # noqa: PLC0415 - most commands never need it

    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            before = set(_read("/proc/self/maps").split(b"\n"))
            with mmap.mmap(file.fileno(), 1, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ):
                after = _read("/proc/self/maps").split(b"\n")
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
        raise TargetError(f"{path}: cannot be mapped: {reason}") from err
    for line in after:
        mapping = None if line in before else _parse_line(line)
        if mapping is not None and mapping.inode == found.st_ino:
            return mapping.device, mapping.inode
    return (os.major(found.st_dev), os.minor(found.st_dev)), found.st_ino


def executable_of(pid: int) -> MappedFile | None:
    """The program a process runs, reached by /proc/PID/exe; None for kernel threads and zombies.

    Raises:
        TargetError: no such process, or not permitted.
    """
    link = f"/proc/{pid}/exe"
    with _explained(pid):
        try:
            name = os.readlink(os.fsencode(link))
            found = os.stat(link)
        except FileNotFoundError:
            os.stat(f"/proc/{pid}")  # gone, or a process without a program
            return None
    for mapping in _file_lines(_maps(pid), executable_only=False).values():
        if _is_same(link, mapping.device, mapping.inode):
            mapped = _mapped_file(pid, mapping)
            return MappedFile(mapped.path, link, mapping.device, mapping.inode, mapped.deleted)
    deleted = name.endswith(_DELETED)
    path = os.fsdecode(name[: -len(_DELETED)] if deleted else name)
    device = os.major(found.st_dev), os.minor(found.st_dev)
    return MappedFile(path, link, device, found.st_ino, deleted)


def processes() -> Iterator[int]:
    """Every process that /proc lists, in ascending order; any may be gone when it is looked at."""
    yield from sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def command_name(pid: int) -> str:
    """A process's ``comm``, at most 15 bytes, which the process may have set to anything.

    Raises:
        TargetError: no such process.
    """
    with _explained(pid):
        return os.fsdecode(_read(f"/proc/{pid}/comm").removesuffix(b"\n"))


def pid_exists(pid: int) -> bool:
    """Whether a process or thread has this id (a zombie has)."""
    return pid > 0 and os.path.isdir(f"/proc/{pid}")


def thread_group(pid: int) -> ThreadGroup:
    """The process an id belongs to, be it the process's own or that of one of its threads.

    Raises:
        TargetError: no such process or thread.
    """
    with _explained(pid):
        return ThreadGroup(_status_numbers(pid, b"Tgid")[0], pid)


def namespace_pids(pid: int) -> tuple[int, ...]:
    """A process's id in each pid namespace from ours to its own, outermost first.

    Raises:
        TargetError: no such process.
    """
    with _explained(pid):
        return _status_numbers(pid, b"NSpid") or (pid,)  # Linux 4.1, commit e4bc33245124


def _status_numbers(pid: int, field: bytes) -> tuple[int, ...]:
    # The program's name stands in the first line of status, with newlines escaped.
    data = _read(f"/proc/{pid}/status")
    _, found, rest = data.partition(b"\n" + field + b":")
    if not found:
        return ()
    return tuple(int(word) for word in rest.partition(b"\n")[0].split())


def _stat_fields(pid: int) -> list[bytes]:
    # Fields 3 and on of /proc/PID/stat (proc(5)); the name before them may hold anything but NUL.
    with _explained(pid):
        return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def parent(pid: int) -> int:
    """The process that a process is a child of; 0 where that is outside our PID namespace.

    Raises:
        TargetError: no such process.
    """
    return int(_stat_fields(pid)[4 - 3])


def is_kernel_thread(pid: int) -> bool:
    """Whether the kernel itself runs it: nothing is mapped there.

    Raises:
        TargetError: no such process.
    """
    return bool(int(_stat_fields(pid)[9 - 3]) & PF_KTHREAD)


def start_time(pid: int) -> int:
    """When a process was started, in clock ticks since boot: tells a reused id from the old one.

    Raises:
        TargetError: no such process.
    """
    return int(_stat_fields(pid)[22 - 3])


def pid_namespace() -> tuple[int, int]:
    """Device and inode of our pid namespace: what bpf_get_ns_current_pid_tgid() wants."""
    found = os.stat("/proc/self/ns/pid")
    return found.st_dev, found.st_ino


def in_initial_pid_namespace() -> bool:
    """Whether process ids mean to us what they mean to bpf_get_current_pid_tgid()."""
    try:
        return pid_namespace()[1] == PROC_PID_INIT_INO
    except OSError:
        return True  # a kernel without CONFIG_PID_NS has but one


def pid_visible_to_bpf(pid: int) -> bool:
    """Whether the kernel tells a program this process's ID as we see it.

    In the initial namespace it does for all; elsewhere bpf_get_ns_current_pid_tgid() knows the
    processes of our own namespace, and not those of namespaces below.

    Raises:
        TargetError: no such process.
    """
    return in_initial_pid_namespace() or len(namespace_pids(pid)) == 1


def open_pidfd(pid: int) -> int:
    """A descriptor for a process that becomes readable when it ends; the caller closes it.

    Raises:
        TargetError: no such process (a thread's id is none).
    """
    with _explained(pid):
        return os.pidfd_open(pid)


class MapsPoller:
    """What a process maps as time goes by: libraries it loads, programs it executes.

    Attributes:
        pid: the process.
        alive: False once the process is gone; known after a call of :meth:`changed`.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.alive = True
        self._maps = b""
        self._start_time: int | None = None
        self._seen: set[tuple[tuple[int, int], int]] = set()

    def changed(self) -> list[MappedFile]:
        """Files mapped executable since the last call, each told once; all of them at first.

        When nothing changed this costs one read of /proc/PID/maps. Never raises for a process
        that is gone: see ``alive``.

        Raises:
            TargetError: the process exists and may not be inspected.
        """
        if not self.alive:
            return []
        try:
            data = _maps(self.pid)
            if data == self._maps:
                return []
            started = start_time(self.pid)
        except TargetError:
            if pid_exists(self.pid):
                raise
            self.alive = False
            return []
        if not data or started != (self._start_time or started):
            self.alive = False  # a zombie, or another process of the same id
            return []
        self._maps, self._start_time = data, started
        lines = _file_lines(data, executable_only=True)
        fresh = [mapping for key, mapping in lines.items() if key not in self._seen]
        self._seen.update(lines)
        return [_mapped_file(self.pid, mapping) for mapping in fresh]
