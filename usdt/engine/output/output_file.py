"""Output to a file or to standard output, one write per batch."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
from itertools import islice
from typing import TYPE_CHECKING, Self, TypeVar

from usdt.base.errors import SyscallError, TargetError
from usdt.base.terminal import progress
from usdt.base.terminal.look import PLAIN, look_of, terminal_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from usdt.base.terminal.look import Look

__all__ = ("Lines", "OutputFile", "lines_in")

T = TypeVar("T")

_BATCH = 1000  # lines that are written together
_PIECES = 1024  # UIO_MAXIOV of linux/uio.h: one writev(2) takes so many


class Lines(list[bytes | bytearray]):
    """A batch of lines that are encoded already: pieces that follow one another.

    Attributes:
        number: of lines, each with its newline.
    """

    def __init__(self, pieces: Iterable[bytes | bytearray], number: int) -> None:
        super().__init__(pieces)
        self.number = number

    def first(self, number: int) -> Lines:
        """Return the first lines."""
        data, end = b"".join(self), 0
        for _ in range(number):
            end = data.index(b"\n", end) + 1
        return Lines([data[:end]], number)

    def below(self, line: str) -> Lines:
        """Return them below another line."""
        return Lines([line.encode(), *self], self.number + 1)


def lines_in(batch: Sequence[object]) -> int:
    """Return the number of lines in a batch."""
    return batch.number if isinstance(batch, Lines) else len(batch)


class OutputFile:
    """An output file, or standard output; a context manager.

    Each batch is one write, so that a reader at the other end of a pipe sees lines at once. The
    first write truncates the file; so does a normal exit without any write. A run that fails before
    it has results leaves an existing file unchanged, and removes one that it has created.

    Args:
        path: the file; None is standard output.
        private: create the file for its owner only; a file that exists keeps its mode.

    Raises:
        TargetError: the file cannot be opened.
    """

    def __init__(self, path: str | None, *, private: bool = False) -> None:
        self.name = path or "standard output"
        self._owned = path is not None
        self._begun = path is None
        self._made: str | None = None
        if path is None:
            self._number = 1
            return
        if not os.path.lexists(path):
            self._made = path
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._number = os.open(path, flags, 0o600 if private else 0o666)
        except (OSError, ValueError) as err:  # ValueError: a NUL in the path
            reason = err.strerror if isinstance(err, OSError) else err
            raise TargetError(f"{path}: cannot be written: {reason}") from err

    @property
    def terminal(self) -> bool:
        """Return True if the output is a terminal."""
        return os.isatty(self._number)

    @property
    def look(self) -> Look:
        """Return the look of text: a file has none, whatever --color says."""
        return PLAIN if self._owned and not self.terminal else look_of(self._number)

    def terminal_size(self) -> tuple[int, int]:
        """Return the columns and rows of the terminal; 80 and 24 if it does not know."""
        return terminal_size(self._number)

    def write(self, lines: Sequence[str] | Lines) -> None:
        """Write lines, each with its newline.

        Raises:
            BrokenPipeError: the reader of the pipe has closed it.
            SyscallError: the write failed, for example because the disk is full.
        """
        if isinstance(lines, Lines):
            self.write_pieces(lines)
        else:
            self.write_bytes("".join(lines).encode("utf-8", "backslashreplace"))

    def write_all(self, lines: Iterable[str]) -> None:
        """Write lines as they are made, some at a time; raises the same errors as write()."""
        rest = iter(lines)
        while batch := [*islice(rest, _BATCH)]:
            self.write(batch)

    def write_bytes(self, content: bytes) -> None:
        """Write bytes; raises the same errors as write()."""
        self.write_pieces([content] if content else [])

    def write_pieces(self, pieces: Sequence[bytes | bytearray]) -> None:
        """Write bytes that follow one another; raises the same errors as write()."""
        progress.clear()
        try:
            self._begin()
            for at in range(0, len(pieces), _PIECES):
                self._write_together(pieces[at : at + _PIECES])
        except BrokenPipeError:
            raise
        except OSError as err:
            raise SyscallError(err.errno or 0, f"write to {self.name}") from err

    def _write_together(self, pieces: Sequence[bytes | bytearray]) -> None:
        # One system call for all of them; they are joined only if it does not take them all.
        size = sum(map(len, pieces))
        written = self._written(os.writev, pieces)
        if written < size:
            data = memoryview(b"".join(pieces))[written:]
            while data:
                data = data[self._written(os.write, data) :]

    def _written(self, write: Callable[[int, T], int], content: T) -> int:
        # The number of bytes that a system call has written.
        try:
            return write(self._number, content)
        except BlockingIOError:  # another user of the terminal or pipe made it non-blocking
            poller = select.poll()
            poller.register(self._number, select.POLLOUT)
            poller.poll()
            return 0

    def _begin(self) -> None:
        if not self._begun:
            if stat.S_ISREG(os.fstat(self._number).st_mode):
                os.ftruncate(self._number, 0)
            self._begun = True

    def check_reader(self) -> None:
        """Check, without writing, whether the reader of a pipe has closed it.

        Raises:
            BrokenPipeError: the reader has closed it.
        """
        poller = select.poll()
        poller.register(self._number, 0)
        if any(event & select.POLLERR for _, event in poller.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def write_loss(self, probe: str, lost: int) -> None:
        """Write a JSON line with the number of hits that a probe lost, unless it lost none."""
        import json  # noqa: PLC0415 - for JSON alone

        if lost:
            self.write([json.dumps({"lost": lost, "probe": probe}) + "\n"])

    def close(self) -> None:
        """Close the file; standard output stays open. Idempotent."""
        number, self._number = self._number, -1
        if self._owned and number != -1:
            os.close(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            if kind is None:
                self.write_bytes(b"")
            elif self._made is not None and not self._begun:
                with contextlib.suppress(OSError):
                    os.unlink(self._made)  # noqa: PTH108 - avoids importing pathlib
