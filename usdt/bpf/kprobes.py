"""Programs attached to functions of the kernel, newest method first; and to its iterators.

``fentry`` and ``fexit`` (Linux 5.5, commit fec56f5890d9) attach a program of their own type to one
function that ftrace can trace: the least overhead, but a program for each function.
``kprobe_multi`` (Linux 5.18, commit 0dcac2725406) attaches one program to any number of functions
in one system call. Before it, every function is a perf event of the ``kprobe`` PMU (Linux 4.17),
connected by a link with a cookie (Linux 5.15) or by an ioctl. A definition in tracefs makes such
an event, too; :func:`usdt.bpf.link.attach_tracepoint` attaches to it.

The kernel runs a program of ``AttachType.TRACE_ITER`` for each of its objects while a descriptor is
read, and once without an object at the end (Linux 5.8, commit 15d83c4d7cef). The program is loaded
for a function ``bpf_iter_NAME``, which names the objects: tasks, their files, their mappings.
"""

from __future__ import annotations

import enum
import os
import struct
from typing import TYPE_CHECKING

from usdt.base.closeable import FD
from usdt.base.errors import NotSupported, SyscallError
from usdt.base.frozen import frozen
from usdt.bpf._syscall import bpf, string_array, u64_array
from usdt.bpf._uapi import BPF_F_KPROBE_MULTI_RETURN, AttachType, Command
from usdt.bpf.link import Link, connect_perf_event, open_probe_event, probe_pmu
from usdt.bpf.objects import object_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.program import Program

__all__ = (
    "KprobeMethod",
    "KprobeSite",
    "attach_iterator",
    "attach_kprobe",
    "attach_kprobe_multi",
    "attach_tracing",
    "open_iterator",
    "read_iterator",
)

_INFO = struct.Struct("=36xI")  # struct bpf_link_info: iter.task.pid
_PROCESS = struct.Struct("=II8x")  # union bpf_iter_link_info: task.tid, task.pid


class KprobeMethod(enum.StrEnum):
    """The kernel's methods of attaching to its functions, newest first."""

    FENTRY = "fentry"
    KPROBE_MULTI = "kprobe_multi"
    PERF_LINK = "perf-link"
    PERF_EVENT = "perf-event"
    KPROBE_EVENTS = "kprobe_events"


@frozen
class KprobeSite:
    """An attach point in the kernel: an address, or if unknown a symbol, ``[MODULE:]NAME``.

    Attributes:
        address: of the instruction; 0: unknown.
        symbol: name of the function.
        offset: of the instruction in the function; used without an address.
        cookie: the value of bpf_get_attach_cookie().
    """

    address: int
    symbol: str
    offset: int = 0
    cookie: int = 0


def attach_tracing(program: Program) -> Link:
    """Attach a program of ``ProgType.TRACING`` to the function it was loaded for.

    Raises:
        SyscallError: 524 (ENOTSUPP) or EINVAL: the kernel cannot do this on this CPU, or not with
            so many arguments; EBUSY: the function's entry is in use.
    """
    return Link(FD(bpf(Command.RAW_TRACEPOINT_OPEN, "PI4x", None, program.fd.fileno())))


def attach_kprobe_multi(
    program: Program,
    sites: Sequence[KprobeSite],
    *,
    on_return: bool = False,
    session: bool = False,
) -> Link:
    """Attach ``program`` to the entries or the returns of functions, in one call.

    Args:
        program: loaded with ``AttachType.TRACE_KPROBE_MULTI``.
        sites: functions, all of which ftrace can trace; their offsets are ignored.
        on_return: at the functions' returns instead.
        session: at both; the program was loaded with ``AttachType.TRACE_KPROBE_SESSION``.

    Raises:
        SyscallError: ESRCH: no such symbol; EINVAL: an address where no function begins;
            EOPNOTSUPP: a kernel without CONFIG_FPROBE.
    """
    flags = BPF_F_KPROBE_MULTI_RETURN if on_return else 0
    by_address = all(site.address for site in sites)
    names, keep = string_array([] if by_address else [site.symbol for site in sites])
    kind = AttachType.TRACE_KPROBE_SESSION if session else AttachType.TRACE_KPROBE_MULTI
    link = bpf(
        Command.LINK_CREATE,
        "IIIIIIPPP",
        *(program.fd.fileno(), 0, kind, 0, flags, len(sites)),
        None if by_address else names,
        u64_array([site.address for site in sites]) if by_address else None,
        u64_array([site.cookie for site in sites]),
    )
    del keep
    return Link(FD(link))


def attach_kprobe(
    program: Program, site: KprobeSite, *, on_return: bool = False, cookies: bool = True
) -> Link:
    """Attach ``program`` to one instruction through a perf event.

    Args:
        program: of ``ProgType.KPROBE``.
        site: an instruction of the kernel.
        on_return: at the return of the function that begins there.
        cookies: by a link that carries the cookie; False: by an ioctl, without a cookie.

    Raises:
        NotSupported: the kernel has no ``kprobe`` PMU or no BPF cookies.
        SyscallError: EINVAL: blacklisted, notrace, or not an instruction; ENOENT: no such symbol;
            EADDRNOTAVAIL: several functions have this name.
    """
    pmu = probe_pmu("kprobe")
    if pmu is None:
        raise NotSupported("the kprobe PMU (CONFIG_KPROBE_EVENTS)", None)
    symbol = site.symbol.encode() + b"\0"
    name, offset = (None, site.address) if site.address else (symbol, site.offset)
    event = open_probe_event(pmu, int(on_return), name, offset)
    return connect_perf_event(event, program, site.cookie if cookies else None)


def attach_iterator(program: Program, pid: int = 0) -> Link:
    """Attach ``program`` to the iterator that it was loaded for.

    Args:
        program: loaded with ``AttachType.TRACE_ITER``.
        pid: the only process whose tasks, files or mappings are visited; 0: all.

    Raises:
        NotSupported: the kernel takes no process (Linux 6.1, commit f0d74c4da1f0).
        SyscallError: EINVAL or EBADF: the iterator is one of a map's elements.
    """
    about = _PROCESS.pack(0, pid) if pid else None
    words = (program.fd.fileno(), 0, AttachType.TRACE_ITER, 0, about, _PROCESS.size if pid else 0)
    link = Link(FD(bpf(Command.LINK_CREATE, "IIIIPI4x", *words)))
    if pid and _INFO.unpack(object_info(link.fd, _INFO.size)) != (pid,):
        link.close()  # older kernels ignore it
        raise NotSupported("an iterator over one process", (6, 1))
    return link


def open_iterator(link: Link) -> FD:
    """Return a descriptor whose reads visit all objects, once.

    Raises:
        SyscallError: the kernel refuses.
    """
    return FD(bpf(Command.ITER_CREATE, "II", link.fd.fileno(), 0))


def read_iterator(fd: FD, size: int) -> int:
    """Visit objects until their programs have written ``size`` bytes; return how many they wrote.

    Raises:
        SyscallError: the kernel stopped.
    """
    try:
        return len(os.read(fd.fileno(), size))
    except OSError as err:
        raise SyscallError(err.errno or 0, "read() of an iterator") from err
