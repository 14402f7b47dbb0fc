"""``kprobe event check``: check the syntax of a definition without passing it to the kernel."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kprobe.cli.event.definitions import modernized
from kprobe.events import DefinitionError, Dialect, canonical, parse
from usdt.base.errors import with_place
from usdt.base.text import printable

__all__ = ("check",)

_READMES = ("/sys/kernel/tracing/README", "/sys/kernel/debug/tracing/README")

# \b keeps click from filling the paragraph below it.
_HELP = """Check the syntax of DEFINITION as this kernel would, or the one given by --as.

\b
kprobe event check 'p:opened do_sys_openat2 $arg2:ustring'
kprobe event check --as 6.1 'r:ret do_sys_openat2 $retval:s32'
kprobe event check 'p /usr/bin/bash:0x1000 +0(%di):string'

If the kernel would refuse it, a caret marks the column, as in tracefs' error_log, and the exit code
is 1.
"""


@click.command("check", help=_HELP)
@click.argument("definition")
@click.option(
    "--as",
    "version",
    metavar="VERSION",
    help="Check as Linux VERSION would: 5.10, 6.1, 7.3, …",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(definition: str, version: str | None, *, as_json: bool) -> int:
    """Check one definition."""
    dialect = Dialect.of(version) if version else Dialect.running(_readme())
    definition = modernized(definition, dialect)
    try:
        parse(definition, dialect)
    except DefinitionError as err:
        if as_json:
            answer = {"ok": False, "position": err.column, "message": err.reason}
            click.echo(json.dumps(answer))
        else:
            # err.column counts unescaped characters; an escaped character is longer.
            click.echo(f"  {printable(err.text)}", err=True)
            click.echo(f"  {' ' * len(printable(err.text[: err.column]))}^", err=True)
            placed = with_place(err.reason, f"at column {err.column + 1}")
            click.echo(f"Error: {placed}", err=True)
        return 1
    text = canonical(definition)
    click.echo(json.dumps({"ok": True, "normalized": text}) if as_json else printable(text))
    return 0


def _readme() -> str:
    # The README lists the syntax that this kernel accepts. An unprivileged user cannot read it;
    # then the kernel's version decides.
    for path in _READMES:
        try:
            return Path(path).read_text()
        except OSError:
            continue
    return ""
