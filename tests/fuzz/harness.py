"""One mutant: run in this process, watched for time, memory, output and how it ends.

What a command promises for any input is what is checked here: it ends soon, in proportion to the
input; it holds and prints no more than in proportion to the input; an error is a few lines without
a traceback and without a character that a terminal would obey.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ("Capture", "Finding", "TooSlow", "limit_memory", "watch")

_SECONDS = 5.0  # for a mutant of no size; machines are busy
_SECONDS_A_BYTE = 1e-4
_OUTPUT = 1 << 18  # bytes of output for a mutant of no size
_OUTPUT_A_BYTE = 256
_MEMORY = 192 << 20  # bytes that a mutant may add to the peak of the process
_ADDRESS_SPACE = 3 << 30


class TooSlow(BaseException):
    """Raised inside a mutant's run when its time is over; no ``except Exception`` keeps it."""


class Finding(NamedTuple):
    """What a mutant broke."""

    kind: str
    detail: str


def limit_memory() -> None:
    """Make the process fail, rather than the machine, when a mutant asks for too much memory."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, hard))


def watch(run: Callable[[bytes], None], data: bytes) -> Finding | None:
    """Run a mutant; return what it broke, None if it broke nothing."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = _SECONDS + _SECONDS_A_BYTE * len(data)
    old = signal.signal(signal.SIGALRM, _time_over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        run(data)
    except TooSlow:
        return Finding("too slow", f"more than {seconds:.1f} s\n{traceback.format_exc(-6)}")
    except BaseException as err:
        if isinstance(err, KeyboardInterrupt):
            raise
        return Finding(type(err).__name__, traceback.format_exc(-8))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > _MEMORY:
        return Finding("memory", f"the process grew by {grown >> 20} MiB")
    return None


def _time_over(_number: int, _frame: FrameType | None) -> None:
    raise TooSlow


class Capture:
    """Runs commands in this process with their standard streams in files.

    The streams are replaced as descriptors, since commands write to descriptors as well.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="usdt-fuzz.")
        self.input = Path(self._folder.name, "input")
        self._streams = [
            os.open(f"{self._folder.name}/{name}", os.O_RDWR | os.O_CREAT)
            for name in ("out", "err")
        ]

    def command(self, main: Callable[[], None], arguments: list[str], size: int) -> None:
        """Run a console script with arguments; check how it ends and what it printed.

        Args:
            main: the console script.
            arguments: its arguments.
            size: bytes of the input; output is bounded by it.
        """
        saved = [os.dup(number) for number in (1, 2)]
        old_arguments, sys.argv = sys.argv, arguments
        try:
            for number, stream in zip((1, 2), self._streams, strict=True):
                os.ftruncate(stream, 0)
                os.lseek(stream, 0, os.SEEK_SET)
                os.dup2(stream, number)
            code = _exit_code(main)
        finally:
            sys.argv = old_arguments
            sys.stdout.flush()
            sys.stderr.flush()
            for number, stream in zip((1, 2), saved, strict=True):
                os.dup2(stream, number)
                os.close(stream)
        self._check(code, size)

    @contextlib.contextmanager
    def standard_input(self, data: bytes) -> Iterator[None]:
        """Give commands these bytes as standard input."""
        self.input.write_bytes(data)
        saved, stream = sys.stdin, self.input.open(encoding="utf-8", errors="surrogateescape")
        with stream:
            sys.stdin = stream
            try:
                yield
            finally:
                sys.stdin = saved

    def _check(self, code: int, size: int) -> None:
        limit = _OUTPUT + _OUTPUT_A_BYTE * size
        written = [os.fstat(stream).st_size for stream in self._streams]
        assert sum(written) <= limit, f"{sum(written)} bytes of output for {size} of input"
        errors = os.pread(self._streams[1], written[1], 0).decode()
        assert code in (0, 1, 2), f"exit code {code}"
        assert "Traceback" not in errors, errors
        assert code == 0 or any(written), f"exit code {code} without a reason"
        assert "out of memory" not in errors, errors
        for line in errors.splitlines():
            assert line.isprintable() or line.startswith("Usage"), f"not printable: {line[:300]!r}"

    def close(self) -> None:
        """Remove the files."""
        for stream in self._streams:
            os.close(stream)
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _exit_code(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as exited:
        return exited.code if isinstance(exited.code, int) else 0
    return 0
