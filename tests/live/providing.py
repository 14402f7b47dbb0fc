"""The program with a Provider, started for a test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from house import ROOT
from patience import patient

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("VALUES", "Providing", "providing")

#: What the program fires, as a tracer shows it: buf(arg7, 4) holds the NUL behind the bytes.
VALUES = [7, "Grüße", -5, 1.5, -2.25, 255, 65535, "raw\0", -128, 2**64 - 1, -32768, -1]


class Providing:
    """A running program: its process ID, lines to and from it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = int(self.read())

    def read(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def order(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def providing(
    *words: object, path: Path | None = None, options: tuple[str, ...] = ()
) -> Iterator[Providing]:
    """Start the program; its exit code is checked unless something failed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if path is not None:
        environment["PROVIDER_PATH"] = str(path)
    program = Path(__file__).with_name("provider_program.py")
    with subprocess.Popen(
        [sys.executable, *options, program, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield Providing(process)
        except BaseException:
            process.kill()
            raise
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(patient(100)) == 0
