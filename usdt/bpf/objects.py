"""Kernel objects that others made: reached by descriptor, by ID or by a pin in bpffs.

A descriptor does not tell its type, and the kernel answers a query about a map with the data of a
program if the descriptor is one of a program. The name of the anonymous inode tells the type.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from usdt.base.closeable import FD
from usdt.base.errors import NotSupported, SyscallError, TargetError
from usdt.bpf._syscall import address_of, bpf, bpf_attribute
from usdt.bpf._uapi import Command

__all__ = ("dup_fd", "object_info", "open_module_btf", "open_pin", "pin")

_BTF_INFO = struct.Struct("=QIIQII")  # struct bpf_btf_info
_MODULE_NAME = 64  # bytes; a module's name is shorter
_MAX_BTF_OBJECTS = 1 << 16
_NAMES = {"map": "bpf-map", "program": "bpf-prog"}


def open_pin(path: str | os.PathLike[str], kind: str) -> FD:
    """Open the object pinned at ``path``; ``kind`` is "map" or "program".

    Raises:
        TargetError: nothing is pinned there, or not an object of this kind.
        SyscallError: any other error of the kernel.
    """
    shown = os.fspath(path)
    try:
        fd = FD(bpf(Command.OBJ_GET, "PII", os.fsencode(shown) + b"\0", 0, 0))
    except SyscallError as err:
        if err.errno in (errno.ENOENT, errno.ENOTDIR):
            raise TargetError(f"{shown}: nothing is pinned there; a BPF {kind} expected") from err
        # For a file outside bpffs and for a directory, the errno is EPERM or EACCES.
        if err.errno in (errno.EPERM, errno.EACCES, errno.EINVAL, errno.EISDIR):
            raise TargetError(
                f"{shown}: cannot open a BPF {kind} there ({err.strerror}): the path must be a pin "
                "in bpffs (/sys/fs/bpf), and this process privileged"
            ) from err
        raise
    return _checked(fd, kind, shown)


def dup_fd(number: int, kind: str) -> FD:
    """Duplicate a descriptor of an object; ``kind`` is "map" or "program".

    Raises:
        TargetError: the number is not a descriptor of such an object.
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
    """Return the first ``size`` bytes of the object's ``struct bpf_…_info``; 0 where unknown.

    Raises:
        SyscallError: the kernel refuses.
    """
    info = bytearray(size)
    bpf(Command.OBJ_GET_INFO_BY_FD, "IIP", fd.fileno(), size, info)
    return bytes(info)


def pin(fd: FD, path: str | os.PathLike[str]) -> None:
    """Pin an object at a path in bpffs, where it stays until it is unlinked.

    Raises:
        SyscallError: EEXIST; EPERM: the name has a dot, or the path is not in bpffs.
    """
    bpf(Command.OBJ_PIN, "PII", os.fsencode(path) + b"\0", fd.fileno(), 0)


def open_module_btf(module: str) -> FD:
    """Open the BTF of a loaded module.

    Raises:
        NotSupported: the kernel has none of it. Modules' BTF: Linux 5.11, commit 36e68442d1af.
        SyscallError: EPERM without CAP_SYS_ADMIN.
    """
    btf_id = 0
    for _ in range(_MAX_BTF_OBJECTS):
        result, error, answer = bpf_attribute(Command.BTF_GET_NEXT_ID, "III", btf_id, 0, 0)
        if result == -1:
            if error == errno.ENOENT:
                break
            raise SyscallError(error, "bpf(BPF_BTF_GET_NEXT_ID)")
        (btf_id,) = struct.unpack_from("=I", answer, 4)
        try:
            fd = FD(bpf(Command.BTF_GET_FD_BY_ID, "III", btf_id, 0, 0))
        except SyscallError as err:
            if err.errno == errno.ENOENT:  # it has gone meanwhile
                continue
            raise
        if _btf_name(fd) == module:
            return fd
        fd.close()
    raise NotSupported(f"BTF of the module {module}", (5, 11))


def _btf_name(fd: FD) -> str:
    # The name of the kernel's BTF or a module's; "" for the BTF of a program.
    name = bytearray(_MODULE_NAME)
    address, keep = address_of(name)
    info = bytearray(_BTF_INFO.pack(0, 0, 0, address, _MODULE_NAME, 0))
    bpf(Command.OBJ_GET_INFO_BY_FD, "IIP", fd.fileno(), len(info), info)
    del keep
    return bytes(name).split(b"\0", 1)[0].decode("utf-8", "replace")
