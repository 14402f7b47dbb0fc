"""A file that a TARGET argument names, and whether it can be one."""

# Importing pathlib takes 6 ms:
# ruff: noqa: PTH116

from __future__ import annotations

import os
import stat

from usdt.base.errors import TargetError, TargetNotFound
from usdt.base.frozen import frozen

__all__ = ("Target", "check_readable")


@frozen
class Target:
    """The file that a TARGET argument names.

    Attributes:
        path: the file's name; with a process, in its mount namespace.
        open_path: the path to open and to pass to the kernel.
        given: the argument as the user wrote it.
    """

    path: str
    open_path: str
    given: str

    def __fspath__(self) -> str:
        return self.open_path


def check_readable(path: str, word: str, where: str = "") -> None:
    """Check that a path is that of a regular file that can be read.

    Args:
        path: the path to open.
        word: the argument as the user wrote it.
        where: whose path it is, for messages.

    Raises:
        TargetNotFound: there is no such file.
        TargetError: it is of another kind, or not readable.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as err:
        raise TargetNotFound(f"{word}: no such file{where}") from err
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        raise TargetError(f"{word}: {reason}{where}") from err
    if stat.S_ISDIR(mode):
        raise TargetError(f"{word}: is a directory; name a program or library in it")
    if not stat.S_ISREG(mode):
        raise TargetError(f"{word}: is not a regular file, so it has no probes")
    if not os.access(path, os.R_OK):
        raise TargetError(f"{word}: no permission to read it; run as root or as its owner")
