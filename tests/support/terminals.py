"""Commands whose output is a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import termios
from typing import TYPE_CHECKING

from patience import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ("COLOUR", "on_terminal", "terminal")

#: An escape sequence of a colour.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# What decides about colours, besides the terminal.
_DECIDING = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")


@contextlib.contextmanager
def terminal(columns: int, rows: int = 24) -> Iterator[tuple[int, int]]:
    """A terminal of a size: the descriptor that reads what it shows, and that of its programs."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("=4H", rows, columns, 0, 0))
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        with contextlib.suppress(OSError):
            os.close(theirs)


def on_terminal(
    *words: object,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
    once: tuple[str, Callable[[], object]] | None = None,
) -> str:
    """Run a command with standard output and error on a terminal; return what it writes there.

    Args:
        words: the command.
        columns: the width of the terminal.
        environ: added to an environment that says nothing about colours.
        once: a text, and what is called once the command has written it.
    """
    clean = {name: value for name, value in os.environ.items() if name not in _DECIDING}
    clean |= {"TERM": "xterm"} | dict(environ or {})
    with terminal(columns) as (ours, theirs):
        process = subprocess.Popen(
            [*map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=clean,
        )
        os.close(theirs)
        found = b""
        with contextlib.suppress(OSError):  # EIO: all have closed it
            while data := os.read(ours, 1 << 16):
                found += data
                if once is not None and once[0].encode() in found:
                    once[1]()
                    once = None
        process.wait(patient(100))
    return found.decode().replace("\r\n", "\n")
