"""Links of programs of others to sites of files."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from usdt.base.closeable import allow_descriptors
from usdt.base.errors import ProbeNotFound, SyscallError, TargetError, TracingError
from usdt.bpf import features
from usdt.bpf.link import (
    UprobeMethod,
    attach_uprobe_multi,
    attach_uprobe_perf,
    takes_uprobe_multi,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.link import Link, UprobeSite
    from usdt.bpf.program import Program

__all__ = ("explained", "link_sites", "newest_method")


def newest_method(program: Program) -> UprobeMethod:
    """Return the newest attach method that the kernel and the program allow."""
    if features.have_uprobe_multi() and takes_uprobe_multi(program):
        return UprobeMethod.UPROBE_MULTI
    return UprobeMethod.PERF_LINK if features.have_cookies() else UprobeMethod.PERF_EVENT


def link_sites(
    links: list[Link],
    program: Program,
    via: UprobeMethod,
    path: str,
    sites: Sequence[UprobeSite],
    *,
    pid: int = 0,
    on_return: bool = False,
) -> None:
    """Attach a program to sites of a file.

    Args:
        links: receives the links; on an error, those made so far.
        program: the program.
        via: the attach method.
        path: the file.
        sites: the sites.
        pid: the only process to attach in; 0 for every process.
        on_return: attach to the functions' returns instead.

    Raises:
        SyscallError: EMFILE if the sites need too many descriptors; any other error of the kernel.
        NotSupported: the kernel lacks the method.
    """
    if via is UprobeMethod.UPROBE_MULTI:
        links.append(attach_uprobe_multi(program, path, sites, pid=pid, on_return=on_return))
        return
    linked = via is UprobeMethod.PERF_LINK
    _allow(len(sites) * (2 if linked else 1))
    for site in sites:
        link = attach_uprobe_perf(program, path, site, pid=pid, on_return=on_return, cookies=linked)
        links.append(link)


def _allow(number: int) -> None:
    # Fail now, not after hundreds of sites, because the kernel is slow to detach each of them.
    import resource  # noqa: PLC0415 - only this attach method needs it

    allow_descriptors(number)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    in_use = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - pathlib costs an import
    if limit != resource.RLIM_INFINITY and in_use + number > limit:
        raise SyscallError(errno.EMFILE, f"{number} descriptors of at most {limit}")


def explained(err: TracingError, call: str, pid: int) -> TracingError:
    """Return an error of attaching to files as one that says the cause.

    Args:
        err: the error.
        call: what was tried.
        pid: the only process to attach in; 0 for every process.
    """
    if isinstance(err, ProbeNotFound | TargetError):
        return err
    if not isinstance(err, SyscallError):
        return TracingError(f"{call}: {err}")
    number = err.errno or 0
    hint = err.hint
    if number == errno.EINVAL:
        hint = (
            "another tracer may hold a site with another semaphore, or with none, as bcc's USDT "
            "class does: stop it and try again"
        )
    elif number == errno.ESRCH or (number == errno.ENOENT and pid):
        # ENOENT: the file was to be reached through /proc/PID.
        number, hint = errno.ESRCH, f"process {pid} has ended"
    elif number == errno.EMFILE:
        hint = "by perf events each site needs its own; raise the limit: ulimit -n"
    return SyscallError(number, f"{call}: {err.call}", hint)
