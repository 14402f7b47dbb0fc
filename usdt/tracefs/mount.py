"""tracefs, the file system of the kernel's event tracer: find its mount point, or mount it.

A mount of our own is attached to no folder (fsmount(2), Linux 5.2): nobody else sees it, several
runs do not depend on one another, and nothing is left of it, however the process ends.

It has the definitions of probe events, the formats of events and the error log.
"""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.bpf._syscall import mount_privately, write
from usdt.bpf.capabilities import privilege_hint

if TYPE_CHECKING:
    from usdt.base.closeable import FD

__all__ = ("MOUNT_POINT", "find_tracefs", "read_format", "tracefs", "write_control", "write_hint")

MOUNT_POINT = "/sys/kernel/tracing"  # the kernel creates this folder since Linux 4.1
_OLD_MOUNT_POINT = "/sys/kernel/debug/tracing"


def find_tracefs() -> Path | None:
    """Return the mount point of tracefs in this mount namespace, or None."""
    found = []
    with Path("/proc/self/mounts").open(errors="surrogateescape") as mounts:
        for line in mounts:
            _, path, kind, *_ = line.split()
            if kind == "tracefs":
                found.append(path.replace("\\040", " "))
            elif kind == "debugfs":  # which mounts tracefs there on first access
                found.append(f"{path}/tracing")
    for path in sorted(found, key=lambda path: (path != MOUNT_POINT, path != _OLD_MOUNT_POINT)):
        try:
            Path(path, "events").stat()
        except OSError:
            continue
        return Path(path)
    return None


def tracefs() -> Path:
    """Return a path to tracefs: its mount point, or else a mount that only this process has.

    That mount has no place in the file system. It ends with the process.

    Raises:
        TracingError: this process may not see it, or may not mount it.
        NotSupported: the kernel has no tracefs (CONFIG_TRACING).
    """
    return find_tracefs() or Path(f"/proc/self/fd/{_own_mount().fileno()}")


def read_format(category: str, name: str) -> str:
    """Return the text of an event's ``format`` file.

    Raises:
        TracingError: it cannot be read, or there is no such event.
    """
    path = tracefs() / "events" / category / name / "format"
    try:
        return path.read_text(errors="replace")
    except OSError as err:
        raise TracingError(f"tracepoint {category}:{name}: {path}: {err.strerror}") from err


@functools.cache
def _own_mount() -> FD:
    if not Path(MOUNT_POINT).is_dir():
        raise NotSupported("tracefs", None)
    try:
        return mount_privately("tracefs")
    except SyscallError as err:
        if err.errno == errno.ENODEV:
            raise NotSupported("tracefs", None) from err
        if os.path.ismount(MOUNT_POINT):
            raise TracingError(
                f"{MOUNT_POINT}: only its owner may read tracefs, and this process lacks "
                "CAP_DAC_READ_SEARCH: run it as root, or with sudo; or as root: "
                f"mount -o remount,gid=GROUP,mode=750 {MOUNT_POINT}"
            ) from err
        raise TracingError(
            f"{MOUNT_POINT}: tracefs is not mounted, or not visible to this user, and mounting it "
            f"failed: {err.strerror}; as root: mount -t tracefs tracefs {MOUNT_POINT}"
        ) from err


def write_control(path: Path, text: str) -> None:
    """Write a control file of tracefs.

    Raises:
        SyscallError: the kernel refuses.
    """
    try:
        number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write(number, text.encode())
        finally:
            os.close(number)
    except OSError as err:
        hint = write_hint() if err.errno == errno.EACCES else ""
        raise SyscallError(err.errno or errno.EIO, f"writing {text!r} to {path}", hint) from err


def write_hint() -> str:
    """Return a hint for an EACCES of tracefs."""
    return privilege_hint("CAP_DAC_OVERRIDE")
