"""Programs that are ended when they make no progress: when what they write does not grow."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ("TIED", "Done", "Stuck", "watched")

#: Words before a program that end it with whoever started it.
TIED = ("setpriv", "--pdeathsig", "KILL", "--")
_STEP = 0.2  # seconds between two looks


class Stuck(Exception):  # noqa: N818 - it says what the program is
    """A program was ended: it was silent, or it took too long."""

    def __init__(self, why: str, *, silent: bool) -> None:
        super().__init__(why)
        self.silent = silent


class Done(NamedTuple):
    """What a program wrote, and its exit code."""

    code: int
    output: str
    errors: str


def watched(
    command: Sequence[str], *, cwd: Path, growing: Path | None, silence: float, limit: float
) -> Done:
    """Run a program to its end; Stuck if that takes more than ``limit`` seconds.

    Where ``growing`` is given, the program has to write in this folder: it is also Stuck when
    nothing changes there for ``silence`` seconds.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            (*TIED, *command),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
        with process:
            try:
                _follow(process, growing, silence, limit)
            finally:
                # With the helpers that it started: they are a group of their own.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return Done(process.returncode, *(_text(file) for file in (output, errors)))


def _follow(
    process: subprocess.Popen[bytes], growing: Path | None, silence: float, limit: float
) -> None:
    end = time.monotonic() + limit
    known, changed = _sizes(growing), time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STEP)
            return
        # A file that begins anew, with what it had before, is no progress.
        found, now = _sizes(growing), time.monotonic()
        if not found <= known:
            known, changed = known | found, now
        if growing and now - changed > silence:
            raise Stuck(f"nothing came for {silence:.0f} s", silent=True)
        if now > end:
            raise Stuck(f"it took more than {limit:.0f} s", silent=False)


def _sizes(folder: Path | None) -> set[tuple[str, int]]:
    # Of files that have something in them.
    found = set()
    for path in folder.rglob("*") if folder else ():
        with contextlib.suppress(OSError):  # it may go while we look
            if path.is_file() and (size := path.stat().st_size):
                found.add((str(path), size))
    return found


def _text(file: tempfile._TemporaryFileWrapper[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
