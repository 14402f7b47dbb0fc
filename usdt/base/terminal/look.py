"""How text looks: the palette, when it is used, and the width of a terminal.

Colours mark what readers look for: names of probes, titles of columns, warnings and errors. Units
and notes are dim. Everything else has the colour of the terminal. Escape sequences are only written
here and around texts that have none: what traced processes write is escaped before.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen, replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

__all__ = (
    "COLOURED",
    "PLAIN",
    "WHEN",
    "Look",
    "choose",
    "has_colours",
    "help_width",
    "look_of",
    "terminal_size",
)

#: The values of --color.
WHEN = ("auto", "always", "never")


@frozen
class Look:
    """The escape sequences before what has a meaning, and the width of lines.

    Attributes:
        probe: before the name of a probe, function or file of probes.
        title: before the titles of columns.
        dim: before units and notes.
        warning: before warnings and losses.
        error: before the word "Error".
        end: after each of them.
        width: columns that a table may have; None: any number.
    """

    probe: str = ""
    title: str = ""
    dim: str = ""
    warning: str = ""
    error: str = ""
    end: str = ""
    width: int | None = None

    @property
    def coloured(self) -> bool:
        """Whether there are escape sequences."""
        return bool(self.end)


#: Files, pipes, and whoever wants no colours.
PLAIN = Look()

#: The palette: of the 16 colours that every terminal has and its user has chosen.
COLOURED = Look(
    probe="\x1b[36m",
    title="\x1b[1m",
    dim="\x1b[2m",
    warning="\x1b[33m",
    error="\x1b[1;31m",
    end="\x1b[0m",
)


class _Choice:
    when = "auto"


def choose(when: str) -> None:
    """Set what --color says: "auto", "always" or "never"."""
    _Choice.when = when


def has_colours(*, terminal: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a standard stream has colours.

    --color decides. With ``auto`` it is, in this order, NO_COLOR (https://no-color.org),
    FORCE_COLOR or CLICOLOR_FORCE, and then terminals have colours, unless TERM is ``dumb`` or
    CLICOLOR is 0.

    Args:
        terminal: whether the stream is one.
        environ: the environment.
    """
    if _Choice.when != "auto":
        return _Choice.when == "always"
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return terminal and environ.get("TERM") != "dumb" and environ.get("CLICOLOR") != "0"


def look_of(stream: TextIO | int) -> Look:
    """Return the look of standard output or standard error, or of its descriptor."""
    terminal = os.isatty(stream) if isinstance(stream, int) else stream.isatty()
    look = COLOURED if has_colours(terminal=terminal) else PLAIN
    return replace(look, width=terminal_size(stream)[0]) if terminal else look


def terminal_size(stream: TextIO | int) -> tuple[int, int]:
    """Return the columns and rows of a terminal; 80 and 24 if it does not know."""
    try:
        number = stream if isinstance(stream, int) else stream.fileno()
        columns, rows = os.get_terminal_size(number)
    except (OSError, ValueError):  # ValueError: the stream is closed
        columns = rows = 0
    return columns or 80, rows or 24


def help_width() -> int:
    """Return the columns of a help text, as click computes them.

    click would import shutil for it, and with it five modules that compress data.
    """
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0:
        columns = terminal_size(sys.__stdout__)[0] if sys.__stdout__ else 80
    return max(min(columns, 80) - 2, 50)
