"""tracefs, the file system of the kernel's own tracer: where it is mounted; mounted if it is not.

Definitions of probe events, formats of tracepoints and the error log live there.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.bpf._syscall import mount

__all__ = ("MOUNT_POINT", "find_tracefs", "tracefs", "write_control")

MOUNT_POINT = "/sys/kernel/tracing"  # made by the kernel for it, Linux 4.1 and newer
_OLD_PLACE = "/sys/kernel/debug/tracing"


def find_tracefs() -> Path | None:
    """Where tracefs is mounted for this process, or None."""
    found = []
    with Path("/proc/self/mounts").open(errors="surrogateescape") as mounts:
        for line in mounts:
            _, place, kind, *_ = line.split()
            if kind == "tracefs":
                found.append(place.replace("\\040", " "))
            elif kind == "debugfs":  # which mounts it by itself, where somebody looks
                found.append(f"{place}/tracing")
    for place in sorted(found, key=lambda place: (place != MOUNT_POINT, place != _OLD_PLACE)):
        try:
            Path(place, "events").stat()
        except OSError:
            continue
        return Path(place)
    return None


def tracefs() -> Path:
    """Where tracefs is; it is mounted at its usual place where it is nowhere.

    Raises:
        TracingError: this process may not see it, or not mount it.
        NotSupported: the kernel has none (CONFIG_TRACING).
    """
    found = find_tracefs()
    if found is not None:
        return found
    if not Path(MOUNT_POINT).is_dir():
        raise NotSupported("tracefs", None)
    try:
        mount("tracefs", MOUNT_POINT, "tracefs")
    except SyscallError as err:
        if err.errno == errno.ENODEV:
            raise NotSupported("tracefs", None) from err
        if err.errno == errno.EBUSY and (found := find_tracefs()):  # somebody was faster
            return found
        raise TracingError(
            f"{MOUNT_POINT}: tracefs is not mounted, or not visible to this user, and mounting it "
            f"failed: {err.strerror}; as root: mount -t tracefs tracefs {MOUNT_POINT}"
        ) from err
    return Path(MOUNT_POINT)


def write_control(path: Path, text: str) -> None:
    """Write one of tracefs's files: a switch, a number, words.

    Raises:
        SyscallError: the kernel refuses.
    """
    try:
        number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(number, text.encode())
        finally:
            os.close(number)
    except OSError as err:
        raise SyscallError(err.errno or errno.EIO, f"writing {text!r} to {path}") from err
