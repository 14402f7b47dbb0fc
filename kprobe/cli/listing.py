"""``kprobe list``: the functions that can be traced."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from tracing.commandline import escaped

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("list_functions",)


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per function.")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
def list_functions(patterns: Sequence[str], *, as_json: bool) -> None:
    """List the kernel's functions that can be traced, its modules' too.

    PATTERN is a name with * and ?, or MODULE:NAME; the kernel itself is the module vmlinux.
    """
    from bpf.errors import ProbeNotFound  # noqa: PLC0415 - --help must not read anything
    from kprobe.functions import Functions  # noqa: PLC0415

    functions = Functions()
    found = [one for pattern in patterns or ("*",) for one in functions.matching(pattern)]
    for notice in functions.notices():
        click.echo(f"Notice: {escaped(notice)}", err=True)
    if not found:
        raise ProbeNotFound(f"no kernel function fits {' '.join(patterns)}")
    for one in dict.fromkeys(found):
        if as_json:
            record = {"kind": "function", "name": one.name, "module": one.module or None}
            sys.stdout.write(json.dumps(record) + "\n")
        else:
            sys.stdout.write(escaped(one.name) + (f" [{one.module}]" if one.module else "") + "\n")
