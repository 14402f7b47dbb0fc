"""Definitions from arguments, files and stdin, for the ``kprobe event`` commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kprobe.events import Definition, Deletion, Dialect, parse
from kprobe.events.naming import named
from kprobe.events.syntax_2009 import translate
from kprobe.events.values import FilePlace
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.engine.cli.click_group import say
from usdt.tracefs.definitions import EVENT_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("Given", "dialect_of", "given", "lines_of")


@frozen
class Given:
    """A parsed and named definition, and the tracefs file that it is written to."""

    definition: Definition
    file: str

    @property
    def name(self) -> str:
        """``GROUP/EVENT``."""
        return f"{self.definition.group}/{self.definition.event}"


def dialect_of(root: Path) -> Dialect:
    """Return the syntax that this kernel accepts."""
    return Dialect.running((root / "README").read_text())


def lines_of(words: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return definitions from arguments and files (``-`` is stdin), without blank or comment lines.

    Raises:
        TracingError: a file cannot be read, or there is no definition.
    """
    lines = list(words)
    for name in files:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text()
        except (OSError, UnicodeDecodeError) as err:
            why = err.strerror if isinstance(err, OSError) else "it is not text"
            raise TracingError(f"{name}: cannot be read: {why}") from err
        lines += text.splitlines()
    found = [line for line in lines if line.partition("#")[0].strip()]
    if not found:
        raise TracingError("no definition: give one, or -i FILE")
    return found


def given(lines: Iterable[str], dialect: Dialect) -> list[Given]:
    """Parse definitions. Translate the syntax of 2009, with a message on stderr.

    Raises:
        DefinitionError: one is not valid.
        TracingError: one is a deletion.
    """
    found = []
    for line in lines:
        modern, told = translate(line)
        for what in told:
            say(f"syntax of 2009: {what}")
        definition = parse(modern, dialect)
        if isinstance(definition, Deletion):
            raise TracingError(f"{modern}: deletes events; use kprobe event remove")
        user = isinstance(definition.place, FilePlace)
        found.append(Given(named(definition), EVENT_FILES["user" if user else definition.kind]))
    return found
