"""``kprobe event check``: whether a kernel would take a definition, without asking one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kprobe.events import DefinitionError, Dialect, canonical, parse
from usdt.engine.cli.click_group import escaped

__all__ = ("check",)

_READMES = ("/sys/kernel/tracing/README", "/sys/kernel/debug/tracing/README")

# \b keeps click from filling the paragraph below it.
_HELP = """Check the syntax of DEFINITION as a kernel would: this one, or another by --as.

\b
kprobe event check 'p:opened do_sys_openat2 $arg2:ustring'
kprobe event check --as 6.1 'r:ret do_sys_openat2 $retval:s32'
kprobe event check 'p /usr/bin/bash:0x1000 +0(%di):string'

The exit code is 1 where it would be refused; the caret is where error_log has it.
"""


@click.command("check", help=_HELP)
@click.argument("definition")
@click.option("--as", "version", metavar="VERSION", help="Another kernel: 5.10, 6.1, 6.18, 7.3 …")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def check(definition: str, version: str | None, *, as_json: bool) -> int:
    """Check one definition."""
    dialect = Dialect.of(version) if version else Dialect.running(_readme())
    try:
        parse(definition, dialect)
    except DefinitionError as err:
        if as_json:
            found = {"ok": False, "position": err.column, "message": err.reason}
            click.echo(json.dumps(found))
        else:
            # error_log counts characters; one that is shown escaped is longer than one.
            click.echo(f"  {escaped(err.text)}", err=True)
            click.echo(f"  {' ' * len(escaped(err.text[: err.column]))}^", err=True)
            click.echo(f"Error: {err.reason}, at column {err.column + 1}", err=True)
        return 1
    text = canonical(definition)
    click.echo(json.dumps({"ok": True, "normalized": text}) if as_json else escaped(text))
    return 0


def _readme() -> str:
    # What this kernel tells of its dialect; without privilege its version has to do.
    for path in _READMES:
        try:
            return Path(path).read_text()
        except OSError:
            continue
    return ""
