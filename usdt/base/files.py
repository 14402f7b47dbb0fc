"""Opening files that others name."""

from __future__ import annotations

import errno
import os
import stat

__all__ = ("open_at_once",)


def open_at_once(path: str) -> int:
    """Open a file for reading without waiting for a writer; return the descriptor.

    Reading waits as usual. A FIFO without a writer reads as empty.

    Raises:
        OSError, ValueError: as from os.open().
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if stat.S_ISDIR(os.fstat(number).st_mode):
        os.close(number)  # open() would leave it open
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    os.set_blocking(number, True)
    return number
