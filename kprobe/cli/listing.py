"""``kprobe list``: list functions, tracepoints and system calls that can be traced."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from usdt.base.terminal.look import look_of
from usdt.base.text import printable
from usdt.engine.cli.click_group import btf_option, colour_option, warn
from usdt.engine.cli.completion.values import complete_probes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("list_functions",)


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@colour_option
@btf_option
@click.option("-v", "--verbose", is_flag=True, help="Show fields of tracepoints and system calls.")
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1, shell_complete=complete_probes)
def list_functions(patterns: Sequence[str], *, as_json: bool, verbose: bool) -> None:
    """List what can be traced: by default, all functions of the kernel and its modules.

    PATTERN is FUNCTION, MODULE:FUNCTION (the module vmlinux is the kernel itself),
    tracepoint:CATEGORY:EVENT, rawtp:EVENT or syscall:NAME. Each may contain * and ?.
    """
    from kprobe.cli import tracepoints  # noqa: PLC0415 - --help must not pay

    events = [pattern for pattern in patterns if tracepoints.is_tracepoint(pattern)]
    for tracepoint in dict.fromkeys(one for word in events for one in tracepoints.matching(word)):
        tracepoint.write(fields=verbose, as_json=as_json)
    functions = [pattern for pattern in patterns if pattern not in events]
    if functions or not events:
        _list_functions(functions, as_json=as_json)


def _list_functions(patterns: Sequence[str], *, as_json: bool) -> None:
    from kprobe.functions.prototypes import Functions  # noqa: PLC0415
    from usdt.base.errors import ProbeNotFound  # noqa: PLC0415 - --help must not read anything

    catalog = Functions()
    functions = [one for pattern in patterns or ("*",) for one in catalog.matching(pattern)]
    for notice in catalog.notices():
        warn(f"Notice: {notice}")
    if not functions:
        raise ProbeNotFound(f"no kernel function matches {' '.join(patterns)}")
    look = look_of(sys.stdout)
    for function in dict.fromkeys(functions):
        if as_json:
            shown = {"kind": "function", "name": function.name, "module": function.module or None}
            sys.stdout.write(json.dumps(shown) + "\n")
        else:
            module = f" {look.dim}[{function.module}]{look.end}" if function.module else ""
            sys.stdout.write(f"{look.probe}{printable(function.name)}{look.end}{module}\n")
