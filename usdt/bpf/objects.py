"""Kernel objects that somebody else made: reached by a descriptor or by a pin in bpffs.

A descriptor says nothing of its kind, and the kernel answers questions about a map with a
program's numbers if it is given one. What it is stands in the name of its anonymous inode.
"""

from __future__ import annotations

import errno
import fcntl
import os

from usdt.base.closeable import FD
from usdt.base.errors import SyscallError, TargetError
from usdt.bpf._syscall import bpf
from usdt.bpf._uapi import Command

__all__ = ("dup_fd", "object_info", "open_pin", "pin")

_NAMES = {"map": "bpf-map", "program": "bpf-prog"}


def open_pin(path: str | os.PathLike[str], kind: str) -> FD:
    """Open what is pinned at ``path``; ``kind`` is "map" or "program".

    Raises:
        TargetError: nothing is there, or no BPF object, or one of another kind.
        SyscallError: anything else the kernel says.
    """
    shown = os.fspath(path)
    try:
        fd = FD(bpf(Command.OBJ_GET, "PII", os.fsencode(shown) + b"\0", 0, 0))
    except SyscallError as err:
        if err.errno in (errno.ENOENT, errno.ENOTDIR):
            raise TargetError(f"{shown}: nothing is pinned there; a BPF {kind} expected") from err
        # Of a file outside of bpffs the kernel says EPERM or EACCES, of a directory as well.
        if err.errno in (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EISDIR):
            raise TargetError(
                f"{shown}: no BPF {kind} can be had there ({err.strerror}): it must be a pin in "
                "bpffs (/sys/fs/bpf), and this process privileged"
            ) from err
        raise
    return _checked(fd, kind, shown)


def dup_fd(number: int, kind: str) -> FD:
    """A descriptor of our own for an object that somebody else's descriptor refers to.

    Raises:
        TargetError: the number is no descriptor of such an object.
    """
    shown = f"descriptor {number}"
    try:
        fd = FD(fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3))
    except (OSError, OverflowError, ValueError) as err:
        raise TargetError(f"{shown}: not an open descriptor; a BPF {kind} expected") from err
    return _checked(fd, kind, shown)


def _checked(fd: FD, kind: str, shown: str) -> FD:
    found = os.readlink(f"/proc/self/fd/{fd.fileno()}")  # noqa: PTH115 - pathlib costs an import
    name = found.removeprefix("anon_inode:").strip("[]")
    if name != _NAMES[kind]:
        fd.close()
        raise TargetError(f"{shown}: is {name or found}, a BPF {kind} expected")
    return fd


def object_info(fd: FD, size: int) -> bytes:
    """The first ``size`` bytes of ``struct bpf_map_info`` or ``bpf_prog_info``; 0 where unknown."""
    info = bytearray(size)
    bpf(Command.OBJ_GET_INFO_BY_FD, "IIP", fd.fileno(), size, info)
    return bytes(info)


def pin(fd: FD, path: str | os.PathLike[str]) -> None:
    """Pin an object at a path in bpffs, where it stays until it is unlinked.

    Raises:
        SyscallError: EEXIST; EPERM where the name has a dot or the path is not in bpffs.
    """
    bpf(Command.OBJ_PIN, "PII", os.fsencode(path) + b"\0", fd.fileno(), 0)
