"""Where lines go: a file or standard output, written in whole batches."""

from __future__ import annotations

import errno
import json
import os
import select
from typing import TYPE_CHECKING, Self

from bpf.errors import SyscallError, TargetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracing.session import Lost

__all__ = ("FileSink",)


class FileSink:
    """Writes lines to a file, or to standard output; a context manager.

    Every batch is one write, so that a reader at the other end of a pipe sees lines at once.

    Args:
        path: the file, created or emptied; None is standard output.

    Raises:
        TargetError: the file cannot be opened.
    """

    def __init__(self, path: str | None) -> None:
        self._name = path or "standard output"
        self._owned = path is not None
        if path is None:
            self._number = 1
            return
        try:
            self._number = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666
            )
        except OSError as err:
            raise TargetError(f"{path}: cannot be written: {err.strerror}") from err

    def write(self, lines: Sequence[str]) -> None:
        """Write lines, each with its newline.

        Raises:
            BrokenPipeError: nobody reads any more.
            SyscallError: a full disk, above all.
        """
        data = memoryview("".join(lines).encode("utf-8", "backslashreplace"))
        while data:
            try:
                data = data[os.write(self._number, data) :]
            except BrokenPipeError:
                raise
            except BlockingIOError:  # whoever shares the terminal or pipe made it non-blocking
                poller = select.poll()
                poller.register(self._number, select.POLLOUT)
                poller.poll()
            except OSError as err:
                raise SyscallError(err.errno or 0, f"write to {self._name}") from err

    def check_reader(self) -> None:
        """Notice a reader that has gone although there is nothing to write.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        poller = select.poll()
        poller.register(self._number, 0)
        if any(event & select.POLLERR for _, event in poller.poll(0)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def lost(self, item: Lost, *, as_json: bool) -> None:
        """Say in the output itself what a probe lost, where that output is JSON."""
        if as_json and item.lost:
            self.write([json.dumps({"lost": item.lost, "probe": item.probe}) + "\n"])

    def close(self) -> None:
        """Close the file; standard output stays open."""
        number, self._number = self._number, -1
        if self._owned and number != -1:
            os.close(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
