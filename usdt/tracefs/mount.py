"""tracefs, the file system of the kernel's own tracer: where it is mounted; mounted if it is not.

Definitions of probe events, formats of tracepoints and the error log live there.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.bpf._syscall import mount

__all__ = ("PLACE", "find", "tracefs", "write_control")

PLACE = "/sys/kernel/tracing"  # made by the kernel for it, Linux 4.1 and newer
_OLD_PLACE = "/sys/kernel/debug/tracing"


def find() -> Path | None:
    """Where tracefs is mounted for this process, or None."""
    found = []
    with Path("/proc/self/mounts").open(errors="surrogateescape") as mounts:
        for line in mounts:
            _, place, kind, *_ = line.split()
            if kind == "tracefs":
                found.append(place.replace("\\040", " "))
            elif kind == "debugfs":  # which mounts it by itself, where somebody looks
                found.append(f"{place}/tracing")
    for place in sorted(found, key=lambda place: (place != PLACE, place != _OLD_PLACE)):
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
    found = find()
    if found is not None:
        return found
    if not Path(PLACE).is_dir():
        raise NotSupported("tracefs", None)
    try:
        mount("tracefs", PLACE, "tracefs")
    except SyscallError as err:
        if err.errno == errno.ENODEV:
            raise NotSupported("tracefs", None) from err
        if err.errno == errno.EBUSY and (found := find()):  # somebody was faster
            return found
        raise TracingError(
            f"{PLACE}: tracefs is not mounted, or not to be seen by this user, and mounting it "
            f"failed: {err.strerror}; be root, or: mount -t tracefs tracefs {PLACE}"
        ) from err
    return Path(PLACE)


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
