"""Files and pipes that are merged: lines of bounded length, or recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.closeable import Closeable
from usdt.base.errors import TargetError
from usdt.base.files import open_at_once, size_of
from usdt.base.terminal import progress
from usdt.engine.recording.blocks import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.merge.source import Source

__all__ = ("LONGEST_LINE", "Stream")

LONGEST_LINE = 1 << 22  # bytes
_REPORTED = 1024  # lines between two reports of progress
_PARQUET = b"PAR1"


class Stream(Closeable):
    """A file, or standard input ("-"), read line by line.

    Attributes:
        recording: whether it is a recording.

    Raises:
        TargetError: the file cannot be opened, or is Parquet.
    """

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == "-" else path
        try:
            number = 0 if path == "-" else open_at_once(path)
            self.file = open(number, "rb", closefd=path != "-")  # noqa: SIM115 - closed by close()
            start = self.file.peek(len(MAGIC))
        except (OSError, ValueError) as err:
            reason = err.strerror if isinstance(err, OSError) else err
            raise TargetError(f"{self.name}: cannot be read: {reason}") from err
        self.recording = start.startswith(MAGIC)
        if start.startswith(_PARQUET):
            self.close()
            raise TargetError(
                f"{self.name}: Parquet, which is not read here; merge the JSON streams or the "
                "recordings"
            )

    def lines(self, source: Source) -> Iterator[bytes]:
        """Yield the lines, except those that are empty or too long, which are noted.

        Raises:
            TargetError: the file cannot be read.
        """
        what, size, number = f"reading {self.name}", size_of(self.file), 0
        try:
            while line := self.file.readline(LONGEST_LINE):
                if not number % _REPORTED:
                    progress.report(what, self.file.tell() if size else number, size)
                number += 1
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    source.line += 1
                    source.problem(f"longer than {LONGEST_LINE} bytes: skipped")
                    self._skip()
                elif line.isspace():
                    source.line += 1
                else:
                    yield line
        except OSError as err:
            raise TargetError(f"{self.name}: cannot be read: {err.strerror}") from err

    def _skip(self) -> None:
        while (rest := self.file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.file.close()
