"""File descriptors with an owner that closes each once."""

from __future__ import annotations

import contextlib
import os
from typing import Self

__all__ = ("FD", "Closeable", "allow_descriptors", "open_descriptors")

_SPARE = 64  # descriptors that the rest of the process may need


def allow_descriptors(count: int) -> None:
    """Raise RLIMIT_NOFILE for ``count`` more descriptors, also the hard limit where allowed.

    If the limit cannot be raised, do nothing: opening then fails with EMFILE.
    """
    import resource  # noqa: PLC0415 - only where every site needs a descriptor

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = open_descriptors() + count + _SPARE
    if hard != resource.RLIM_INFINITY and hard < wanted:
        with contextlib.suppress(OSError, ValueError):  # beyond fs.nr_open, or no privilege
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def open_descriptors() -> int:
    """Return the number of this process's open descriptors, or one more."""
    # Since Linux kernel commit f1f1f2569901 ("proc: report open files as size in stat() for
    # /proc/pid/fd") (in v6.2), the size is their number. Before that it is 0, and they are listed,
    # which takes long for thousands.
    folder = "/proc/self/fd"
    return os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208 - pathlib costs


class Closeable:
    """What close() ends, and the end of a ``with`` block."""

    __slots__ = ()

    def close(self) -> None:
        """Give up what is held; again is fine."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class FD(Closeable):
    """A file descriptor of a kernel object: closed once, never 0.

    bpf(2) reads 0 in a descriptor's place as "not given", so a number that comes out as 0 (a
    process started without standard input) is moved away.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        if number == 0:
            import fcntl  # noqa: PLC0415 - rarely needed, and a library of its own

            number = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(0)
        self.number = number

    def fileno(self) -> int:
        """Return the descriptor.

        Raises:
            ValueError: it is closed.
        """
        if self.number == -1:
            raise ValueError("operation on a closed kernel object")
        return self.number

    @property
    def closed(self) -> bool:
        """Whether close() has been called."""
        return self.number == -1

    def close(self) -> None:
        """Close the descriptor; again is fine."""
        number, self.number = self.number, -1  # the number may be reused at once
        if number != -1:
            os.close(number)
