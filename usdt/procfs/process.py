"""Processes and threads: which exist, their names, parents, start times and descriptors."""

# These paths are handled by the thousand, and importing pathlib takes 6 ms:
# ruff: noqa: PTH112, PTH115, PTH119, PTH208

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError, TargetNotFound
from usdt.base.frozen import frozen
from usdt.base.text import closest
from usdt.procfs.access import explain_errors, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = (
    "ThreadGroup",
    "catches",
    "command_name",
    "describe_process",
    "has_memory",
    "has_name",
    "is_kernel_thread",
    "is_stopped",
    "open_pidfd",
    "parent",
    "pid_exists",
    "process_names",
    "processes",
    "processes_named",
    "start_time",
    "status_numbers",
    "thread_group",
    "thread_with_memory",
)

_COMM = 15  # bytes of a command name: TASK_COMM_LEN of include/linux/sched.h, without its NUL
PF_KTHREAD = 0x00200000  # include/linux/sched.h


@frozen
class ThreadGroup:
    """The process that an ID belongs to; ``given`` differs from ``pid`` if it is a thread's ID."""

    pid: int
    given: int

    @property
    def note(self) -> str:
        """A message for a user who gave a thread's ID, or ""."""
        if self.pid == self.given:
            return ""
        return f"{self.given} is a thread of process {self.pid}: the whole process is meant"


def processes() -> Iterator[int]:
    """Yield every process of /proc, in ascending order; any may have ended meanwhile."""
    yield from sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def pid_exists(pid: int) -> bool:
    """Return whether a process or thread has this ID (a zombie has)."""
    return pid > 0 and os.path.isdir(f"/proc/{pid}")


def command_name(pid: int) -> str:
    """Return a process's ``comm``, at most 15 bytes; the process may have set it to anything.

    Raises:
        TargetError: no such process.
    """
    with explain_errors(pid):
        return os.fsdecode(read_bytes(f"/proc/{pid}/comm").removesuffix(b"\n"))


def processes_named(name: str) -> list[int]:
    """Return all processes of a name, except this one, in ascending order.

    A name is the command name (``comm``), or that of the executable file; ``python3`` also stands
    for ``python3.11``. Kernel threads are not found.

    Raises:
        TargetNotFound: there is no such process; the message names the most similar one.
    """
    found: list[int] = []
    known: set[str] = set()
    for pid in processes():
        names = process_names(pid) if pid != os.getpid() else ()
        known.update(names)
        if has_name(names, name):
            found.append(pid)
    if not found:
        near = closest(name, sorted(known))
        hint = f"did you mean {near}?" if near else "list them with: ps -e"
        raise TargetNotFound(f"-p {name or repr(name)}: no process of this name; {hint}")
    return found


def has_name(names: Iterable[str], wanted: str) -> bool:
    """Return whether :func:`processes_named` finds a process that has these names."""
    return any(_is_name(wanted, one) for one in names)


def process_names(pid: int) -> tuple[str, ...]:
    """Return the command name of a process, and the name of its executable.

    Nothing for a kernel thread, and for a process that has ended.
    """
    try:
        if is_kernel_thread(pid):
            return ()
        comm = command_name(pid)
    except TargetError:
        return ()  # ended meanwhile
    try:
        program = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return (comm,)  # of another user
    return comm, os.path.basename(program)


def _is_name(wanted: str, name: str) -> bool:
    # A command name has at most 15 bytes; the rest of an executable's name may be its version.
    if name == wanted or (len(os.fsencode(name)) == _COMM and wanted.startswith(name)):
        return True
    version = name.removeprefix(wanted)
    return version != name and version.lstrip("-.").replace(".", "").isdecimal()


def describe_process(pid: int) -> str:
    """Return a process's ID and, while it lives, its name, for messages."""
    try:
        return f"process {pid} ({command_name(pid)})"
    except TargetError:
        return f"process {pid}"


def thread_group(pid: int) -> ThreadGroup:
    """Return the process an ID belongs to, which may be the process's own or a thread's.

    Raises:
        TargetError: no such process or thread.
    """
    with explain_errors(pid):
        return ThreadGroup(status_numbers(pid, b"Tgid")[0], pid)


def status_numbers(pid: int, field: bytes) -> tuple[int, ...]:
    """Return the numbers of a field of /proc/PID/status; () if there is no such field.

    Raises:
        OSError: the file cannot be read.
    """
    return tuple(int(word) for word in _status_words(pid, field))


def _status_words(pid: int, field: bytes) -> list[bytes]:
    # The process's name is in the first line, with newlines escaped.
    data = read_bytes(f"/proc/{pid}/status")
    return data.partition(b"\n" + field + b":")[2].partition(b"\n")[0].split()


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal.

    Raises:
        TargetError: no such process.
    """
    with explain_errors(pid):
        words = _status_words(pid, b"SigCgt")
    return bool(words) and bool(int(words[0], 16) >> (number - 1) & 1)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, by a signal or a debugger.

    Raises:
        TargetError: no such process.
    """
    return _stat_fields(pid)[0] in (b"T", b"t")


def _stat_fields(pid: int) -> list[bytes]:
    # Fields 3 and on of /proc/PID/stat (proc(5)); the name before them may hold anything but NUL.
    with explain_errors(pid):
        return read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if the parent is outside our PID namespace.

    Raises:
        TargetError: no such process.
    """
    return int(_stat_fields(pid)[4 - 3])


def is_kernel_thread(pid: int) -> bool:
    """Return whether this is a kernel thread, which has no mappings.

    Raises:
        TargetError: no such process.
    """
    return bool(int(_stat_fields(pid)[9 - 3]) & PF_KTHREAD)


def has_memory(pid: int) -> bool:
    """Return whether a process or thread has memory; kernel threads and those that ended have none.

    Raises:
        TargetError: no such process.
    """
    return _stat_fields(pid)[23 - 3] != b"0"  # vsize


def thread_with_memory(pid: int) -> int:
    """Return a thread whose files in /proc show a process's memory; 0 if it has none.

    It is the first thread, until that ends before the others, by pthread_exit(3) in main().

    Raises:
        TargetError: no such process.
    """
    if has_memory(pid):
        return pid
    with explain_errors(pid):
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    for thread in threads:
        with contextlib.suppress(TargetError):  # ended meanwhile
            if has_memory(thread):
                return thread
    return 0


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot.

    Two processes that have the same ID one after the other differ in it.

    Raises:
        TargetError: no such process.
    """
    return int(_stat_fields(pid)[22 - 3])


def open_pidfd(pid: int) -> int:
    """Open a descriptor that becomes readable when a process ends; the caller closes it.

    Raises:
        TargetError: no such process; the ID of a thread is not that of a process.
    """
    with explain_errors(pid):
        return os.pidfd_open(pid)
