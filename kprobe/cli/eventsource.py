"""What the ``kprobe event`` commands share: definitions from words, files and stdin."""

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
    """A definition as given: parsed and named, and the file of tracefs it goes to."""

    definition: Definition
    file: str

    @property
    def name(self) -> str:
        """``GROUP/EVENT``."""
        return f"{self.definition.group}/{self.definition.event}"


def dialect_of(root: Path) -> Dialect:
    """What this kernel takes."""
    return Dialect.running((root / "README").read_text())


def lines_of(words: Iterable[str], files: Iterable[str]) -> list[str]:
    """Definitions given as words, and in files (``-``: stdin), comments and blank lines left out.

    Raises:
        TracingError: a file that cannot be read, or no definition at all.
    """
    lines = list(words)
    for name in files:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text()
        except (OSError, UnicodeDecodeError) as err:
            why = err.strerror if isinstance(err, OSError) else "it is no text"
            raise TracingError(f"{name}: cannot be read: {why}") from err
        lines += text.splitlines()
    found = [line for line in lines if line.partition("#")[0].strip()]
    if not found:
        raise TracingError("no definition given; write one, or -i FILE")
    return found


def given(lines: Iterable[str], dialect: Dialect) -> list[Given]:
    """Parse definitions; old spellings are translated, and that is said.

    Raises:
        DefinitionError: one cannot be understood.
        TracingError: a deletion.
    """
    found = []
    for line in lines:
        modern, told = translate(line)
        for what in told:
            say(f"the spelling of 2009: {what}")
        definition = parse(modern, dialect)
        if isinstance(definition, Deletion):
            raise TracingError(f"{modern}: a deletion; use: kprobe event remove")
        user = isinstance(definition.place, FilePlace)
        found.append(Given(named(definition), EVENT_FILES["user" if user else definition.kind]))
    return found
