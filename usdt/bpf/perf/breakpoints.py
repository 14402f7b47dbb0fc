"""Programs on hardware breakpoints: they run when memory is written, read or executed.

A CPU has few breakpoints: four on x86-64. One in a process belongs to its threads, those that start
later too; one in the kernel to every CPU.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from usdt.base.closeable import FD
from usdt.base.errors import NotSupported, SyscallError, TargetError, TracingError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import perf_attribute, perf_event_open
from usdt.bpf._uapi import PERF_ATTR_SIZE
from usdt.bpf.maps import read_cpu_list
from usdt.bpf.perf.counters import EventsLink, connect_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.bpf.link import Link
    from usdt.bpf.program import Program

__all__ = ("EXECUTE", "READ", "WRITE", "Breakpoint", "attach_breakpoint")

READ, WRITE, EXECUTE = 1, 2, 4  # include/uapi/linux/hw_watched.h

_BREAKPOINT = 5  # enum perf_type_id
_INHERIT = 1 << 1  # struct perf_event_attr: threads that start later have it as well
_KERNEL = 1 << 63


@frozen
class Breakpoint:
    """Memory that is watched.

    Attributes:
        address: of the memory.
        length: 1, 2, 4 or 8 bytes.
        mode: the accesses that count: READ, WRITE, EXECUTE or several of them.
    """

    address: int
    length: int
    mode: int

    @property
    def in_kernel(self) -> bool:
        """Whether the memory is the kernel's."""
        return bool(self.address & _KERNEL)


def attach_breakpoint(program: Program, watched: Breakpoint, pids: Sequence[int]) -> Link:
    """Attach ``program`` to a breakpoint.

    Args:
        program: of ``ProgType.PERF_EVENT``. Its context is ``struct bpf_perf_event_data``.
        watched: the breakpoint.
        pids: the processes whose memory it is; not used for memory of the kernel.

    Raises:
        TracingError: it is memory of processes, and no process is given.
        TargetError: a process does not exist.
        NotSupported: this CPU, or this kernel, has no such breakpoint.
        SyscallError: any other error of the kernel. ENOSPC: all breakpoints of the CPU are in use.
    """
    if not watched.in_kernel and not pids:
        raise TracingError(
            "this address is one of a process: choose the process with -p or -c, without --follow"
        )
    places = _places(watched, pids)
    links = connect_each((_open(watched, task, cpu) for task, cpu in places), program)
    if not links:
        raise TargetError(f"process {', '.join(map(str, pids))} has ended")
    return EventsLink(links)


def _places(watched: Breakpoint, pids: Sequence[int]) -> Iterator[tuple[int, int]]:
    # Task and CPU of each perf event; -1: any.
    if watched.in_kernel:
        for cpu in read_cpu_list("online"):
            yield -1, cpu
        return
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib costs an import
                yield int(thread), -1


def _open(watched: Breakpoint, task: int, cpu: int) -> FD | None:
    # None: the thread has ended meanwhile.
    flags = 0 if watched.in_kernel else _INHERIT
    attribute, _ = perf_attribute(
        "IIQQQQQIIQQ40x",
        *(_BREAKPOINT, PERF_ATTR_SIZE, 0, 1, 0, 0, flags, 0),
        *(watched.mode, watched.address, watched.length),
    )
    try:
        return FD(perf_event_open(attribute, task, cpu))
    except SyscallError as err:
        if err.errno == errno.ESRCH:
            return None
        if err.errno in (errno.EINVAL, errno.ENOENT, errno.EOPNOTSUPP):
            bits = zip("rwx", (READ, WRITE, EXECUTE), strict=True)
            mode = "".join(letter for letter, bit in bits if watched.mode & bit)
            size = f"{watched.length} byte{'s' * (watched.length > 1)}"
            raise NotSupported(f"breakpoints of mode {mode} on {size}") from err
        raise
