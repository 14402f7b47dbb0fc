"""Definitions from arguments, files and stdin; ``kprobe event define``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kprobe.events import Definition, Deletion, Dialect, parse
from kprobe.events.naming import named
from kprobe.events.syntax_2009 import translate
from kprobe.events.values import FileOffset
from usdt.base.errors import TracingError
from usdt.base.frozen import frozen
from usdt.base.text import printable
from usdt.engine.cli.click_group import combined, say
from usdt.tracefs.definitions import EVENT_FILES, DefinitionRefused, define_event, remove_event
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = (
    "NamedDefinition",
    "define",
    "definition_arguments",
    "dialect_of",
    "explained",
    "modernized",
    "parse_definitions",
    "read_lines",
)

# \b keeps click from filling the paragraph below it.
_HELP = """Define events that stay until they are removed. DEFINITION is in the kernel's syntax.

\b
kprobe event define 'p:opened do_sys_openat2 name=+0($arg2):ustring'
kprobe event define -i definitions.txt --dry-run
"""

_NOT_REGISTERED = "Failed to register probe event"  # the kernel's text for blacklisted functions

#: Adds the arguments DEFINITION… (``words``) and -i (``files``).
definition_arguments = combined(
    click.argument("words", metavar="[DEFINITION]...", nargs=-1),
    click.option(
        "-i",
        "--input",
        "files",
        multiple=True,
        metavar="FILE",
        help="Read definitions from FILE, one per line; - is stdin.",
    ),
)


@click.command("define", help=_HELP)
@definition_arguments
@click.option("--dry-run", is_flag=True, help="Show what would be written, but write nothing.")
def define(words: tuple[str, ...], files: tuple[str, ...], *, dry_run: bool) -> None:
    """Define all events or, if the kernel refuses one, none."""
    root = tracefs()
    defined = []
    for item in parse_definitions(read_lines(words, files), dialect_of(root)):
        if dry_run:
            click.echo(printable(f"{item.file}: {item.definition}"))
            continue
        try:
            defined.append(define_event(root, item.file, str(item.definition), item.name))
        except TracingError as err:
            for event in reversed(defined):
                remove_event(root, event)
            raise explained(err) from err
        click.echo(printable(item.name))


@frozen
class NamedDefinition:
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


def read_lines(words: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return definitions from arguments and files (``-`` is stdin), without blank or comment lines.

    Raises:
        TracingError: a file cannot be read, or there is no definition.
    """
    lines = list(words)
    for name in files:
        try:
            text = sys.stdin.read() if name == "-" else Path(name).read_text()
        except (OSError, UnicodeDecodeError) as err:
            reason = err.strerror if isinstance(err, OSError) else "it is not text"
            raise TracingError(f"{name}: cannot be read: {reason}") from err
        lines += text.splitlines()
    definitions = [line for line in lines if line.partition("#")[0].strip()]
    if not definitions:
        raise TracingError("no definition: give one, or -i FILE")
    return definitions


def modernized(line: str, dialect: Dialect) -> str:
    """Return a definition without the syntax of 2009; say on stderr what is translated.

    A name of a parameter of the function is that parameter where the kernel looks it up.
    """
    text, changes = translate(line)
    if changes and dialect.variables:
        text, changes = translate(line, _parameters(line))
    for change in changes:
        say(f"syntax of 2009: {change}")
    return text


def explained(error: TracingError) -> TracingError:
    """Return an error with the reason why its function takes no probe, if the kernel omits it."""
    if not isinstance(error, DefinitionRefused) or error.reason != _NOT_REGISTERED:
        return error
    named = _function(error.line)
    if named is None:
        return error
    from kprobe.functions.prototypes import current_functions  # noqa: PLC0415 - only for an error

    why = current_functions().why_not_traceable(named[2])
    return TracingError(f"{error} ({named[2]} is {why})") if why else error


def _function(line: str) -> re.Match[str] | None:
    # (module or None, function) of a definition, if it is one on a function of the kernel.
    return re.fullmatch(r"(?:(\w+):)?([A-Za-z_]\w*)(?:[+%].*)?", line.split()[1])


def _parameters(line: str) -> set[str]:
    # From BTF, if the definition is of a function that is in it.
    matched = _function(line)
    if matched is None:
        return set()
    from usdt.btf.format import Kind  # noqa: PLC0415 - BTF, only if needed
    from usdt.btf.reader import Btf  # noqa: PLC0415
    from usdt.btf.types import Function, FunctionProto  # noqa: PLC0415

    names: set[str] = set()
    try:
        btf = Btf.from_module(matched[1]) if matched[1] else Btf.from_kernel()
        for number in btf.find(matched[2], Kind.FUNC):
            function = btf.type(number)
            prototype = btf.type(function.type_id) if isinstance(function, Function) else None
            if isinstance(prototype, FunctionProto):
                names.update(parameter.name for parameter in prototype.parameters)
    except TracingError:  # without BTF, no word is a parameter
        return set()
    return names


def parse_definitions(lines: Iterable[str], dialect: Dialect) -> list[NamedDefinition]:
    """Parse definitions. Translate the syntax of 2009, with a message on stderr.

    Raises:
        DefinitionError: one is not valid.
        TracingError: one is a deletion.
    """
    definitions = []
    for line in lines:
        text = modernized(line, dialect)
        definition = parse(text, dialect)
        if isinstance(definition, Deletion):
            raise TracingError(f"{text}: deletes events; use kprobe event remove")
        kind = "user" if isinstance(definition.probe_point, FileOffset) else definition.kind
        definitions.append(NamedDefinition(named(definition), EVENT_FILES[kind]))
    return definitions
