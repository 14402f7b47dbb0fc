"""Reading files of /proc/PID, with errors that name the process and the missing privilege."""

# These paths are handled by the thousand, and importing pathlib takes 6 ms:
# ruff: noqa: PTH116, PTH123

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError, TargetNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("explain_errors", "open_tmp", "read_bytes")

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def read_bytes(path: str) -> bytes:
    """Return the contents of a file in one read(2), as far as the kernel allows.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        return file.read()


def open_tmp(pid: int) -> int:
    """Open /tmp in the root of a process, for dir_fd; the caller closes it.

    One directory is opened at a time: the kernel would resolve a symbolic link in the process's
    root relative to the root of this process.

    Raises:
        OSError: it cannot be opened.
    """
    root = os.open(f"/proc/{pid}/root", _FOLDER & ~os.O_NOFOLLOW)
    try:
        return os.open("tmp", _FOLDER, dir_fd=root)
    finally:
        os.close(root)


@contextmanager
def explain_errors(pid: int) -> Iterator[None]:
    """Turn an OSError of an access to /proc/PID into a TargetError that gives the reason.

    Raises:
        TargetError: not permitted.
        TargetNotFound: no such process.
    """
    try:
        yield
    except (FileNotFoundError, ProcessLookupError) as err:
        raise TargetNotFound(_absent(pid)) from err
    except PermissionError as err:
        raise TargetError(_refusal(pid)) from err
    except OSError as err:
        raise TargetError(f"process {pid}: {err.strerror} ({err.filename})") from err


def _refusal(pid: int) -> str:
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return _absent(pid)
    if os.geteuid() in {owner, 0}:
        return f"process {pid} may not be inspected: not dumpable, or of another user namespace"
    return f"process {pid} belongs to another user (uid {owner}); needs CAP_SYS_PTRACE: run as root"


def _absent(pid: int) -> str:
    return f"no process {pid}; list processes with: ps -e"
