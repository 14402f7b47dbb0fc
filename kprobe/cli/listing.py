"""``kprobe list``: list functions, tracepoints and system calls that can be traced."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("list_functions",)


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@click.option("-v", "--verbose", is_flag=True, help="Show fields of tracepoints and system calls.")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
def list_functions(patterns: Sequence[str], *, as_json: bool, verbose: bool) -> None:
    """List functions of the kernel and its modules that can be traced, or other probes.

    PATTERN is a function's name, or MODULE:NAME, where vmlinux is the kernel itself; or
    tracepoint:CATEGORY:EVENT, rawtp:EVENT or syscall:NAME. Each may contain * and ?.
    """
    from kprobe.cli import points  # noqa: PLC0415 - with what is listed

    places = [pattern for pattern in patterns if points.is_point(pattern)]
    for one in dict.fromkeys(one for pattern in places for one in points.found(pattern)):
        if as_json:
            sys.stdout.write(one.to_json(fields=verbose) + "\n")
        else:
            lines = points.text(one) if verbose else [points.line(one)]
            sys.stdout.writelines(f"{line}\n" for line in lines)
    if not places or len(places) < len(patterns):
        _list_functions([one for one in patterns if one not in places], as_json=as_json)


def _list_functions(patterns: Sequence[str], *, as_json: bool) -> None:
    from kprobe.functions.prototypes import Functions  # noqa: PLC0415
    from usdt.base.errors import ProbeNotFound  # noqa: PLC0415 - --help must not read anything

    functions = Functions()
    found = [one for pattern in patterns or ("*",) for one in functions.matching(pattern)]
    for notice in functions.notices():
        click.echo(f"Notice: {printable(notice)}", err=True)
    if not found:
        raise ProbeNotFound(f"no kernel function matches {' '.join(patterns)}")
    for one in dict.fromkeys(found):
        if as_json:
            record = {"kind": "function", "name": one.name, "module": one.module or None}
            sys.stdout.write(json.dumps(record) + "\n")
        else:
            sys.stdout.write(
                printable(one.name) + (f" [{one.module}]" if one.module else "") + "\n"
            )
