"""Man pages of both commands and of each of their commands, from what ``--help`` prints.

``python tools/man_pages.py DIRECTORY`` writes them there; a build of the package does the same.
"""

from __future__ import annotations

import os
import re
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("man_pages", "write_man_pages")

_PROGRAMS = ("usdt", "kprobe")
_SEE = "The command {} help topics lists further pages."
_STATUS = (
    ("0", "Success, also if the reader of the output has gone away."),
    ("1", "An error; one line on standard error describes it."),
    ("2", "The command line, or a probe in it, is not understood."),
    ("130", "An interrupt ended the command before it began its work."),
)
# As a reader must find them in the page to type them: an ASCII quote, hyphen, caret, …
_LITERALS = str.maketrans(
    {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
)


def man_pages() -> dict[str, str]:
    """Return the name of each page's file, and its text."""
    pages = {}
    for program in _PROGRAMS:
        group: click.Group = getattr(import_module(f"{program}.cli.group"), program)
        for context in _contexts(click.Context(group, info_name=program, **group.context_settings)):
            name = context.command_path.replace(" ", "-")
            pages[f"{name}.1"] = "".join(f"{line}\n" for line in _page(context, name))
    return pages


def write_man_pages(folder: Path) -> list[str]:
    """Write the pages into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in man_pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(str(path) for path in folder.glob("*.1"))


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    for name, command in _commands(context):
        yield from _contexts(click.Context(command, info_name=name, parent=context))


def _commands(context: click.Context) -> list[tuple[str, click.Command]]:
    group = context.command
    if not isinstance(group, click.Group):
        return []
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return [(name, command) for name, command in found if command and not command.hidden]


def _page(context: click.Context, name: str) -> Iterator[str]:
    from usdt.base.version import VERSION  # noqa: PLC0415 - after setup.py has found the package

    day = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()))
    date = time.strftime("%Y-%m-%d", day)
    yield rf'.TH {_text(name.upper())} 1 {date} "usdt\-toolkit {VERSION}" "usdt\-toolkit"'
    yield from (".SH NAME", rf"{_text(name)} \- {_text(_summary(context.command))}")
    pieces = context.command.collect_usage_pieces(context)
    yield from (".SH SYNOPSIS", f".B {_text(context.command_path)}", _text(" ".join(pieces)))
    yield ".SH DESCRIPTION"
    yield from _paragraphs(context.command.help or "")
    records = [param.get_help_record(context) for param in context.command.get_params(context)]
    yield from _list("OPTIONS", [record for record in records if record and record[1]])
    commands = [(one, _summary(command)) for one, command in _commands(context)]
    yield from _list("COMMANDS", commands)
    if context.parent is None:
        yield from _topics()
        yield from _list("EXIT STATUS", _STATUS)
    yield from _see_also(context, name, [one for one, _ in commands])


def _summary(command: click.Command) -> str:
    first = re.split(r"(?<=\.)\s|\n\n", command.help or "", maxsplit=1)[0]
    return " ".join(first.split()).removesuffix(".")


def _paragraphs(text: str) -> Iterator[str]:
    # A paragraph that begins with \b is laid out by its author, as in click.
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        verbatim, is_verbatim = paragraph.lstrip().removeprefix("\b"), "\b" in paragraph
        if is_verbatim:
            yield from _verbatim(verbatim)
        else:
            yield _text(" ".join(paragraph.split()))


def _verbatim(text: str) -> Iterator[str]:
    yield from (".nf", ".RS 4")
    yield from (_text(line.rstrip()) for line in text.strip("\n").splitlines())
    yield from (".RE", ".fi")


def _list(heading: str, rows: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    if rows:
        yield f".SH {heading}"
    for term, text in rows:
        yield from (".TP", rf"\fB{_text(term)}\fR", _text(" ".join(text.split())))


def _topics() -> Iterator[str]:
    from usdt.engine.cli.help.topics import TOPICS  # noqa: PLC0415 - as above

    for name, text in TOPICS.items():
        yield f".SH {name.upper()}"
        title, _, rest = text.partition("\n")
        yield from (f"{_text(title)}", ".PP")
        yield from _verbatim(rest)


def _see_also(context: click.Context, name: str, commands: list[str]) -> Iterator[str]:
    yield ".SH SEE ALSO"
    names = [f"{name}-{command}" for command in commands]
    if context.parent is not None:
        names.insert(0, name.rpartition("-")[0])
    else:
        names += [program for program in _PROGRAMS if program != name]
    yield ",\n".join(f"\\fB{_text(one)}\\fR(1)" for one in names)
    yield from (".PP", _SEE.format(rf"\fB{_text(context.find_root().command_path)}\fR"))


def _text(text: str) -> str:
    # A line of text as troff takes it; a control character would be one of troff's.
    escaped = "".join(char for char in text if char.isprintable()).translate(_LITERALS)
    return rf"\&{escaped}" if escaped.startswith((".", r"\(aq")) else escaped


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    write_man_pages(Path(sys.argv[1]))
