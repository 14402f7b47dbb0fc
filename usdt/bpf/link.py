"""Attaching programs to user-space instructions, newest way first.

``uprobe_multi`` (Linux 6.6, commit 89ae89f53d20) attaches one program to many offsets of one
file in one system call, with a cookie and a reference counter each. Before it, every offset is
a perf event (``perf_event_open`` with the ``uprobe`` PMU, Linux 4.17), joined to the program by
a BPF link that carries a cookie (Linux 5.15, commit 7adfc6c9b315). Before that, an ioctl joins
them, and the program has to know by itself where it is.

Reference counters are USDT semaphores: the kernel increments the 16-bit word at that file
offset in every process that maps it, for as long as the link lives (Linux 4.20, commit
1cc33161a83d). It goes when the descriptor is closed, also by death of the tracer.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import struct
from typing import TYPE_CHECKING

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import NotSupported, SyscallError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import bpf, perf_attribute, perf_event_open
from usdt.bpf._uapi import BPF_F_UPROBE_MULTI_RETURN, AttachType, Command, ioctl_number
from usdt.bpf.rcu import expedited_rcu

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usdt.bpf.program import Program

__all__ = (
    "Link",
    "PerfLink",
    "UprobeMethod",
    "UprobeSite",
    "attach_raw_tracepoint",
    "attach_tracepoint",
    "attach_uprobe_ioctl",
    "attach_uprobe_multi",
    "attach_uprobe_perf",
    "close_links",
    "link_perf_event",
    "set_perf_event_prog",
    "takes_uprobe_multi",
)

_UPROBE_PMU = "/sys/bus/event_source/devices/uprobe/type"
_THOUSAND = 1000  # links whose end is worth a hurry
_REF_CTR_SHIFT = 32  # PERF_UPROBE_REF_CTR_OFFSET_SHIFT: config bits 32-63
_PERF_TYPE_TRACEPOINT = 2
_PERF_ATTR_SIZE = 112  # PERF_ATTR_SIZE_VER5
_SET_BPF, _ENABLE = ioctl_number("$", 8, 4), ioctl_number("$", 0)  # PERF_EVENT_IOC_…


class UprobeMethod(enum.StrEnum):
    """The kernel's ways of attaching, newest first."""

    UPROBE_MULTI = "uprobe_multi"
    PERF_LINK = "perf-link"
    PERF_EVENT = "perf-event"


@frozen
class UprobeSite:
    """One place to attach: file offset, reference counter's file offset (0: none), cookie."""

    offset: int
    ref_ctr_offset: int = 0
    cookie: int = 0


class Link(Closeable):
    """An attachment; closing it detaches.

    Attributes:
        worst: of many functions, those at which most hits were missed, once that was asked for.
    """

    worst: tuple[tuple[str, int], ...] = ()

    def __init__(self, fd: FD) -> None:
        self.fd = fd

    @property
    def places(self) -> int:
        """How many places it is attached to one after the other, by which its end takes time."""
        return 1

    def missed(self) -> int:
        """Hits that the kernel left out so far, as far as it tells."""
        from usdt.bpf.nmissed import missed_hits  # noqa: PLC0415 - only at the end of some sessions

        return missed_hits(self.fd)

    def close(self) -> None:
        """Detach; waits until no program of it runs any more (tens of milliseconds)."""
        self.fd.close()


class PerfLink(Link):
    """A link and the perf event below it."""

    def __init__(self, event: FD, link: FD) -> None:
        super().__init__(link)
        self._event = event

    def close(self) -> None:
        """Detach and close the event."""
        with contextlib.ExitStack() as stack:  # runs every callback, also after an error
            stack.callback(self._event.close)
            stack.callback(super().close)


def attach_uprobe_multi(
    program: Program,
    path: str,
    sites: Sequence[UprobeSite],
    *,
    pid: int = 0,
    on_return: bool = False,
) -> Link:
    """Attach ``program`` to every site of the file at ``path`` in one call.

    Args:
        program: loaded with ``AttachType.TRACE_UPROBE_MULTI``.
        path: what the kernel opens; /proc/PID/map_files/… and /proc/self/fd/N are fine.
        sites: at least one.
        pid: only in this process (0: in every process).
        on_return: at the function's return instead.

    Raises:
        SyscallError: EINVAL where an offset is not an instruction of the file or another tracer
            holds it with a different reference counter; ESRCH for a pid that is gone.
    """
    number = len(sites)
    ref_ctrs = [site.ref_ctr_offset for site in sites]
    link = bpf(
        Command.LINK_CREATE,
        "IIIIPPPPIII4x",
        *(program.fd.fileno(), 0, AttachType.TRACE_UPROBE_MULTI, 0),
        *(path.encode("utf-8", "surrogateescape") + b"\0", _array([s.offset for s in sites])),
        *(_array(ref_ctrs) if any(ref_ctrs) else None, _array([s.cookie for s in sites])),
        *(number, BPF_F_UPROBE_MULTI_RETURN if on_return else 0, pid),
    )
    return Link(FD(link))


def attach_uprobe_perf(
    program: Program,
    path: str,
    site: UprobeSite,
    *,
    pid: int = 0,
    on_return: bool = False,
) -> Link:
    """Attach ``program`` to one site through a perf event and a link with a cookie.

    Raises:
        NotSupported: the ``uprobe`` PMU or BPF cookies are missing, or the reference counter lies
            beyond the 4 GiB that this interface can express.
        SyscallError: anything else the kernel says.
    """
    event = _open_uprobe(path, site, pid=pid, on_return=on_return)
    return link_perf_event(event, program, site.cookie)


def attach_uprobe_ioctl(
    program: Program,
    path: str,
    site: UprobeSite,
    *,
    pid: int = 0,
    on_return: bool = False,
) -> Link:
    """Attach ``program`` to one site through a perf event alone; the cookie is not delivered.

    Raises:
        NotSupported: as :func:`attach_uprobe_perf`.
        SyscallError: anything else the kernel says.
    """
    return set_perf_event_prog(_open_uprobe(path, site, pid=pid, on_return=on_return), program)


def attach_tracepoint(program: Program, number: int, *, cookie: int | None = None) -> Link:
    """Attach ``program`` to an event of the kernel, on every CPU and in every process.

    The program's context is the event's record, less its first eight bytes (Linux 4.7, commit
    98b5c2c65c29). It is left out while another BPF program is at work on its CPU
    (trace_call_bpf()). Closing waits for a grace period, one link after the other.

    Args:
        program: of ``ProgType.TRACEPOINT``.
        number: the event's ID, as its ``id`` file in tracefs has it.
        cookie: what bpf_get_attach_cookie() gives; None: the way without cookies.

    Raises:
        NotSupported: BPF cookies are missing, and one was given.
        SyscallError: EACCES: the program reads beyond the event's record; EINVAL: no such event;
            ENODEV and the like: the kernel refuses this one.
    """
    attribute, keep = perf_attribute(
        "IIQQQQQIIPQ40x", _PERF_TYPE_TRACEPOINT, _PERF_ATTR_SIZE, number, *[0] * 6, None, 0
    )
    # The event is bound to one CPU, the program is not: it runs before that is looked at.
    event = FD(perf_event_open(attribute, -1, 0))
    del keep
    if cookie is None:
        return set_perf_event_prog(event, program)
    return link_perf_event(event, program, cookie)


def attach_raw_tracepoint(program: Program, name: str, *, cookie: int = 0) -> Link:
    """Attach ``program`` to a tracepoint of the kernel, on every CPU and in every process.

    The program's context is the tracepoint's arguments, one u64 each (Linux 4.17, commit
    c4f6699dfcb8). Neither tracefs nor the layout of an event is needed, and unlike a program on an
    event it is not left out while another BPF program is at work on its CPU (trace_call_bpf()).

    Args:
        program: of ``ProgType.RAW_TRACEPOINT``.
        name: without its category, ``sched_process_fork``.
        cookie: what bpf_get_attach_cookie() gives, where
        :func:`usdt.bpf.features.have_raw_cookies`.

    Raises:
        NotSupported: this kernel has no such tracepoint.
        SyscallError: anything else the kernel says.
    """
    try:
        words = name.encode() + b"\0", program.fd.fileno()
        if cookie:
            link = bpf(Command.RAW_TRACEPOINT_OPEN, "PI4xQ", *words, cookie)
        else:
            link = bpf(Command.RAW_TRACEPOINT_OPEN, "PI4x", *words)
    except SyscallError as err:
        if err.errno == errno.ENOENT:
            raise NotSupported(f"the tracepoint {name}") from err
        raise
    return Link(FD(link))


def link_perf_event(event: FD, program: Program, cookie: int) -> PerfLink:
    """Join ``program`` to a perf event, which is closed if that fails.

    Raises:
        NotSupported: BPF cookies are missing.
        SyscallError: anything else the kernel says.
    """
    try:
        link = bpf(
            Command.LINK_CREATE,
            "IIIIQ",
            *(program.fd.fileno(), event.fileno(), AttachType.PERF_EVENT, 0, cookie),
        )
    except SyscallError as err:
        event.close()
        if err.errno == errno.EINVAL:
            raise NotSupported("a BPF link to a perf event with a cookie", (5, 15)) from err
        raise
    return PerfLink(event, FD(link))


def set_perf_event_prog(event: FD, program: Program) -> Link:
    """The same without a link and its cookie, as kernels before 5.15 have it.

    Raises:
        SyscallError: what the kernel says.
    """
    try:
        fcntl.ioctl(event.fileno(), _SET_BPF, program.fd.fileno())
        fcntl.ioctl(event.fileno(), _ENABLE, 0)
    except OSError as err:
        event.close()
        raise SyscallError(err.errno or 0, "ioctl(PERF_EVENT_IOC_SET_BPF)") from err
    return Link(event)


def takes_uprobe_multi(program: Program) -> bool:
    """Whether the program was loaded for uprobe_multi; nothing but trying tells.

    Raises:
        SyscallError: no privilege, above all.
    """
    try:
        attach_uprobe_multi(program, "/", [UprobeSite(0)]).close()
    except SyscallError as err:
        # The program is looked at before the path is: EBADF, ENOENT and EISDIR are about the path.
        if err.errno in (errno.EBADF, errno.ENOENT, errno.EISDIR):
            return True
        if err.errno not in (errno.EINVAL, errno.E2BIG, errno.EOPNOTSUPP):
            raise
        return False
    return True


def close_links(links: Iterable[Link]) -> None:
    """Close links side by side, as the kernel makes each of them wait."""
    rest = list(links)
    if len(rest) > 1:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - rare, and slow

        many = sum(link.places for link in rest) >= _THOUSAND
        hurry = expedited_rcu() if many else contextlib.nullcontext()
        with hurry, ThreadPoolExecutor(min(64, len(rest))) as pool:
            list(pool.map(lambda link: link.close(), rest))
    for link in rest:
        link.close()


def _open_uprobe(path: str, site: UprobeSite, *, pid: int, on_return: bool) -> FD:
    if site.ref_ctr_offset >> 32:
        raise NotSupported("a semaphore beyond 4 GiB of its file (uprobe_multi)", (6, 6))
    config = int(on_return) | site.ref_ctr_offset << _REF_CTR_SHIFT
    attribute, keep = perf_attribute(
        "IIQQQQQIIPQ40x",
        *(_uprobe_pmu(), _PERF_ATTR_SIZE, config, 0, 0, 0, 0, 0, 0),
        *(path.encode("utf-8", "surrogateescape") + b"\0", site.offset),
    )
    # With a pid the event follows the task; without, one CPU's event catches every hit, because
    # the breakpoint is in the file's pages and the program runs before the CPU is looked at.
    event = FD(perf_event_open(attribute, pid or -1, -1 if pid else 0))
    del keep
    return event


def _array(values: Sequence[int]) -> bytes:
    return struct.pack(f"={len(values)}Q", *values)


def _uprobe_pmu() -> int:
    try:
        with open(_UPROBE_PMU) as file:  # noqa: PTH123 - pathlib costs an import
            return int(file.read())
    except OSError as err:
        raise NotSupported("the uprobe PMU", (4, 17)) from err
