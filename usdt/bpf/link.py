"""Links: programs attached to user-space instructions, tracepoints and perf events.

``uprobe_multi`` (Linux 6.6, commit 89ae89f53d20) attaches one program to many offsets of one
file in one system call, with a cookie and a reference counter each. Before it, every offset is
a perf event (``perf_event_open`` with the ``uprobe`` PMU, Linux 4.17), connected to the program
by a BPF link that carries a cookie (Linux 5.15, commit 7adfc6c9b315). Before that, an ioctl
connects them, and the program must find out its location by itself.

Reference counters are USDT semaphores: the kernel increments the 16-bit word at that file
offset in every process that maps it, for as long as the link lives (Linux 4.20, commit
1cc33161a83d). The link ends when its descriptor is closed, also by the death of the tracer.

Missed hits: the kernel passes over a kprobe that is hit while another runs on the same CPU, and a
function's return when more calls are in progress than it has return instances for (nmissed).
"""

from __future__ import annotations

import contextlib
import enum
import errno
import struct
from typing import TYPE_CHECKING

from usdt.base.closeable import FD, Closeable
from usdt.base.errors import NotSupported, SyscallError
from usdt.base.frozen import frozen
from usdt.base.terminal import progress
from usdt.bpf._syscall import bpf, perf_attribute, perf_event_open, u64_array
from usdt.bpf._uapi import (
    BPF_F_UPROBE_MULTI_RETURN,
    PERF_ATTR_SIZE,
    AttachType,
    Command,
    ioctl_number,
)
from usdt.bpf.capabilities import privilege_hint, uprobe_event_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.bpf.program import Program

__all__ = (
    "Link",
    "PerfLink",
    "UprobeMethod",
    "UprobeSite",
    "attach_raw_tracepoint",
    "attach_tracepoint",
    "attach_uprobe_multi",
    "attach_uprobe_perf",
    "close_links",
    "connect_perf_event",
    "open_probe_event",
    "probe_pmu",
    "reaches_threads",
    "takes_uprobe_events",
    "takes_uprobe_multi",
)

_MANY = 64  # links from which grace periods are expedited: each waits for two or three, of 20 ms
_NO_PID = 0xFFFF_FFFF  # -1
_REF_CTR_SHIFT = 32  # PERF_UPROBE_REF_CTR_OFFSET_SHIFT: config bits 32-63
_PERF_TYPE_TRACEPOINT = 2
# struct bpf_link_info: type, id, prog_id; then by type, for a perf event its type and "missed".
_INFO = struct.Struct("=I12xI12xQ8xQ8x")
_LINK_PERF_EVENT, _LINK_KPROBE_MULTI = 7, 8  # enum bpf_link_type
_PERF_KPROBES = (3, 4)  # enum bpf_perf_event_type: BPF_PERF_EVENT_KPROBE, …_KRETPROBE
_SET_BPF, _ENABLE = ioctl_number("$", 8, 4), ioctl_number("$", 0)  # PERF_EVENT_IOC_…


class UprobeMethod(enum.StrEnum):
    """The kernel's methods of attaching uprobes, newest first."""

    UPROBE_MULTI = "uprobe_multi"
    PERF_LINK = "perf-link"
    PERF_EVENT = "perf-event"
    UPROBE_EVENTS = "uprobe_events"  # tracefs; for many sites, where there is no uprobe_multi


@frozen
class UprobeSite:
    """An attach point: file offset, file offset of its reference counter (0: none), cookie."""

    offset: int
    ref_ctr_offset: int = 0
    cookie: int = 0


class Link(Closeable):
    """An attachment; closing it detaches.

    Attributes:
        most_missed: (function, missed hits) of the functions with the most, after a call of
            :meth:`missed`; only of links to many functions.
    """

    most_missed: tuple[tuple[str, int], ...] = ()

    def __init__(self, fd: FD) -> None:
        self.fd = fd

    @property
    def detach_steps(self) -> int:
        """How many attach points the kernel detaches one after the other, each with a wait."""
        return 1

    def missed(self) -> int:
        """Return the hits that the kernel passed over so far.

        0 where the kernel does not count them: before Linux 6.7 (commits e2b2cd592adf and
        3acf8ace6823), and for perf events without a link.
        """
        from usdt.bpf.objects import object_info  # noqa: PLC0415 - rarely needed

        try:
            kind, perf, multi, single = _INFO.unpack(object_info(self.fd, _INFO.size))
        except SyscallError:  # a perf event, which has no link; kernels before 5.8
            return 0
        if kind == _LINK_KPROBE_MULTI:
            return int(multi)
        return int(single) if kind == _LINK_PERF_EVENT and perf in _PERF_KPROBES else 0

    def close(self) -> None:
        """Detach; wait until the program no longer runs (tens of milliseconds)."""
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
    kind: AttachType = AttachType.TRACE_UPROBE_MULTI,
) -> Link:
    """Attach ``program`` to every site of the file at ``path`` in one call.

    Args:
        program: loaded with ``kind`` as its attach type.
        path: the file that the kernel opens; /proc/PID/map_files/… and /proc/self/fd/N work too.
        sites: at least one.
        pid: only in this process (0: in every process).
        on_return: at the functions' returns instead.
        kind: ``TRACE_UPROBE_SESSION`` for entries and returns (Linux 6.13, commit d920179b3d48).

    Raises:
        SyscallError: EINVAL: an offset is not an instruction of the file, or another tracer
            attached there with a different reference counter; ESRCH: the process has ended.
    """
    number = len(sites)
    ref_ctrs = [site.ref_ctr_offset for site in sites]
    link = bpf(
        Command.LINK_CREATE,
        "IIIIPPPPIII4x",
        *(program.fd.fileno(), 0, kind, 0),
        *(path.encode("utf-8", "surrogateescape") + b"\0", u64_array([s.offset for s in sites])),
        *(u64_array(ref_ctrs) if any(ref_ctrs) else None, u64_array([s.cookie for s in sites])),
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
    cookies: bool = True,
) -> Link:
    """Attach ``program`` to one site through a perf event.

    Args:
        program: of ``ProgType.KPROBE``.
        path: as for :func:`attach_uprobe_multi`.
        site: an instruction of the file.
        pid: only in this process (0: in every process).
        on_return: at the function's return instead.
        cookies: by a link that carries the cookie; False: by an ioctl, without a cookie.

    Raises:
        NotSupported: the ``uprobe`` PMU or BPF cookies are missing, or the reference counter is
            beyond the first 4 GiB of the file.
        SyscallError: any other error of the kernel.
    """
    if site.ref_ctr_offset >> 32:
        raise NotSupported("a semaphore beyond 4 GiB of its file (uprobe_multi)", (6, 6))
    pmu = probe_pmu("uprobe")
    if pmu is None:
        raise NotSupported("the uprobe PMU", (4, 17))
    config = int(on_return) | site.ref_ctr_offset << _REF_CTR_SHIFT
    name = path.encode("utf-8", "surrogateescape") + b"\0"
    event = open_probe_event(pmu, config, name, site.offset, pid=pid, hint=uprobe_event_hint)
    return connect_perf_event(event, program, site.cookie if cookies else None)


def attach_tracepoint(
    program: Program, event_id: int, *, cookie: int | None = None, pid: int = 0
) -> Link:
    """Attach ``program`` to an event of the kernel, on every CPU.

    The program's context is the event's record, less its first eight bytes (Linux 4.7, commit
    98b5c2c65c29). The kernel does not run it while another BPF program runs on the same CPU
    (trace_call_bpf()). Closing waits for a grace period, one link after the other.

    Args:
        program: of ``ProgType.TRACEPOINT``; for an event that is a probe, ``ProgType.KPROBE``.
        event_id: the number in the event's ``id`` file in tracefs.
        cookie: the value of bpf_get_attach_cookie(); None: attach without a cookie.
        pid: only in this process (0: in every process).

    Raises:
        NotSupported: a cookie was given, and the kernel has no BPF cookies.
        SyscallError: EACCES: the program reads beyond the event's record; EINVAL: no such event;
            ENODEV and others: the kernel refuses this event.
    """
    event = open_probe_event(_PERF_TYPE_TRACEPOINT, event_id, pid=pid)
    return connect_perf_event(event, program, cookie)


def attach_raw_tracepoint(program: Program, name: str, *, cookie: int = 0) -> Link:
    """Attach ``program`` to a tracepoint of the kernel, on every CPU and in every process.

    The program's context is the tracepoint's arguments, one u64 each (Linux 4.17, commit
    c4f6699dfcb8). This needs neither tracefs nor the layout of an event, and unlike a program on
    an event, the program also runs while another BPF program runs on the same CPU.

    Args:
        program: of ``ProgType.RAW_TRACEPOINT``.
        name: without its category, ``sched_process_fork``.
        cookie: the value of bpf_get_attach_cookie(); needs
            :func:`usdt.bpf.features.have_raw_cookies`.

    Raises:
        NotSupported: this kernel has no such tracepoint.
        SyscallError: any other error of the kernel.
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


def probe_pmu(name: str) -> int | None:
    """Return the type of perf events of the PMU "uprobe" or "kprobe"; None if there is none."""
    try:
        with open(f"/sys/bus/event_source/devices/{name}/type") as file:  # noqa: PTH123 - fast
            return int(file.read())
    except FileNotFoundError:
        return None


def open_probe_event(
    kind: int,
    config: int,
    name: bytes | None = None,
    offset: int = 0,
    *,
    pid: int = 0,
    hint: Callable[[], str] = privilege_hint,
) -> FD:
    """Open a perf event of a probe.

    Args:
        kind: the type of the event: a PMU's or PERF_TYPE_TRACEPOINT.
        config: what ``attr.config`` means for it.
        name: the file or function, NUL-terminated; None for an address.
        offset: in the file or function; or the address.
        pid: only in this process (0: in every process).
        hint: returns what a process lacks that the kernel refuses.

    Raises:
        SyscallError: the kernel refuses.
    """
    attribute, keep = perf_attribute(
        "IIQQQQQIIPQ40x", kind, PERF_ATTR_SIZE, config, *[0] * 6, name, offset
    )
    # With a pid the event follows the task. Without, an event of one CPU gets the hits of all: its
    # program runs before the kernel checks the CPU.
    event = FD(perf_event_open(attribute, pid or -1, -1 if pid else 0, hint=hint))
    del keep
    return event


def connect_perf_event(event: FD, program: Program, cookie: int | None) -> Link:
    """Connect ``program`` to a perf event; close the event on failure.

    Args:
        event: the event.
        program: the program.
        cookie: carried by a link; None: connect by an ioctl, without link and cookie, as kernels
            before 5.15 do.

    Raises:
        NotSupported: a cookie was given, and BPF cookies are missing.
        SyscallError: any other error of the kernel.
    """
    try:
        if cookie is None:
            return _set_program(event, program)
        words = program.fd.fileno(), event.fileno(), AttachType.PERF_EVENT, 0, cookie
        return PerfLink(event, FD(bpf(Command.LINK_CREATE, "IIIIQ", *words)))
    except SyscallError as err:
        event.close()
        if cookie is not None and err.errno == errno.EINVAL:
            raise NotSupported("a BPF link to a perf event with a cookie", (5, 15)) from err
        raise


def _set_program(event: FD, program: Program) -> Link:
    import fcntl  # noqa: PLC0415 - for kernels before 5.15

    try:
        fcntl.ioctl(event.fileno(), _SET_BPF, program.fd.fileno())
        fcntl.ioctl(event.fileno(), _ENABLE, 0)
    except OSError as err:
        raise SyscallError(err.errno or 0, "ioctl(PERF_EVENT_IOC_SET_BPF)") from err
    return Link(event)


def takes_uprobe_events() -> bool:
    """Return whether this process may open perf events of uprobes, by trying it.

    Raises:
        SyscallError: any error that does not answer the question.
    """
    pmu = probe_pmu("uprobe")
    if pmu is None:
        return False
    try:
        open_probe_event(pmu, 0, b"/\0").close()
    except SyscallError as err:
        # The kernel checks the caller first: EINVAL and EISDIR are about the path.
        if err.errno in (errno.EINVAL, errno.EISDIR, errno.ENOENT):
            return True
        if err.errno not in (errno.EACCES, errno.EPERM):
            raise
        return False
    return True


def takes_uprobe_multi(program: Program, kind: AttachType = AttachType.TRACE_UPROBE_MULTI) -> bool:
    """Return whether a program can be attached by uprobe_multi, by trying it.

    Args:
        program: the program.
        kind: as for :func:`attach_uprobe_multi`.

    Raises:
        SyscallError: any error that does not answer the question, such as EPERM.
    """
    try:
        attach_uprobe_multi(program, "/", [UprobeSite(0)], kind=kind).close()
    except SyscallError as err:
        # The kernel checks the program first: EBADF, ENOENT and EISDIR are about the path.
        if err.errno in (errno.EBADF, errno.ENOENT, errno.EISDIR):
            return True
        if err.errno not in (errno.EINVAL, errno.E2BIG, errno.EOPNOTSUPP):
            raise
        return False
    return True


def reaches_threads(program: Program) -> bool:
    """Return whether links of uprobe_multi with a process ID reach all threads of the process.

    The fix of Linux 6.10 (commit 46ba0e49b642) also refuses negative IDs before it looks at the
    path; see :func:`takes_uprobe_multi` for the argument.
    """
    try:
        attach_uprobe_multi(program, "/", [UprobeSite(0)], pid=_NO_PID).close()
    except SyscallError as err:
        return err.errno == errno.EINVAL
    return False


def close_links(links: Iterable[Link]) -> None:
    """Close links in parallel threads, because the kernel makes each of them wait."""
    rest = list(links)
    if len(rest) > 1:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - rare, and slow

        from usdt.bpf.rcu import expedited_rcu  # noqa: PLC0415 - as rare

        many = sum(link.detach_steps for link in rest) >= _MANY
        grace_periods = expedited_rcu() if many else contextlib.nullcontext()
        pool = ThreadPoolExecutor(min(64, len(rest)))
        # RuntimeError: no thread can be started for lack of memory. The rest is closed below.
        with grace_periods, contextlib.suppress(RuntimeError), pool:
            closing = pool.map(lambda link: link.close(), rest)
            for _ in progress.through(closing, "detaching", len(rest)):
                pass
    for link in rest:
        link.close()
