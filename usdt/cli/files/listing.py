"""``usdt list``: list the probes of files, libraries and processes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from usdt.base.terminal.columns import columns, cut, fitted, padded
from usdt.base.terminal.look import look_of
from usdt.base.text import printable
from usdt.cli.files.selection import quirks_json, select, split_arguments
from usdt.engine.cli.click_group import colour_option, plural, warn
from usdt.engine.cli.completion.values import complete_probes
from usdt.engine.cli.target_options import pid_option
from usdt.runtimes.quirks import find_quirks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.base.terminal.look import Look
    from usdt.probes.probe import FileProbes, Probe
    from usdt.runtimes.quirks import Quirk

__all__ = ("list_probes",)

_GAP = "  "  # between columns


@click.command("list")
@pid_option
@click.option("-a", "--all", "all_processes", is_flag=True, help="Search all processes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@colour_option
@click.argument("words", metavar="[TARGET|PATTERN]...", nargs=-1, shell_complete=complete_probes)
def list_probes(
    pids: tuple[int, ...], words: tuple[str, ...], *, all_processes: bool, as_json: bool
) -> None:
    """List the USDT probes of files, libraries and processes.

    TARGET is a path, a library as the loader knows it (libc, libjvm.so), or a program on PATH.
    PATTERN is provider:name, with * and ?, or PATH:provider:name to name the file as well.
    uprobe:[TARGET:]FUNCTION lists functions. A ! marks probes that do not fire, or not always.
    """
    arguments = split_arguments(words)
    if arguments.functions:
        from usdt.cli.files.functions import list_functions  # noqa: PLC0415 - not for USDT probes

        list_functions(arguments, pids, as_json=as_json)
        if arguments.only_functions:
            return
    selected = select(arguments, pids, all_processes=all_processes)
    for number, (file, probes) in enumerate(selected):
        for warning in file.warnings:
            warn(f"Warning: {warning}")
        quirks = find_quirks(file.path, [probe.full_name for probe in probes], pids)
        if as_json:
            import json  # noqa: PLC0415 - text needs none

            more = {"containers": [*file.containers]} if file.containers else {}
            sys.stdout.writelines(
                json.dumps(probe.to_json() | quirks_json(probe, quirks) | more) + "\n"
                for probe in probes
            )
        else:
            look = look_of(sys.stdout)
            sys.stdout.writelines(_table(file, probes, quirks, look, first=number == 0))


def _table(
    file: FileProbes, probes: Sequence[Probe], quirks: Sequence[Quirk], look: Look, *, first: bool
) -> Iterator[str]:
    if not probes:
        return
    if not first:
        yield "\n"
    sites = plural(sum(len(probe.sites) for probe in probes), "site")
    summary = f"{probes[0].machine}, {plural(len(probes), 'probe')}, {sites}"
    if file.containers:
        summary += f"; in {', '.join(map(printable, file.containers))}"
    yield f"{look.title}{printable(file.path)}{look.end}  ({summary})\n"
    marked = {printable(name) for quirk in quirks for name in quirk.probes}
    rows = [("PROBE", "SITES", "SEMAPHORE", "ARGUMENTS")]
    rows += [_row(probe) for probe in probes]
    widths = _widths(rows, look)
    yield f"  {look.title}{_line(rows[0], widths)}{look.end}\n"
    for probe, *cells in rows[1:]:
        mark = f"{look.warning}!{look.end}" if probe in marked else " "
        yield f"{mark} {_line((f'{look.probe}{probe}{look.end}', *cells), widths)}\n"
    for quirk in quirks:
        yield f"{look.warning}! {printable(quirk.text)}{look.end}\n"


def _widths(rows: Sequence[Sequence[str]], look: Look) -> list[int]:
    # Probes and arguments share what a terminal leaves them.
    name, sites, semaphore, arguments = (
        max(columns(row[column]) for row in rows) for column in range(4)
    )
    if look.width is not None:
        others = 2 + sites + semaphore + 3 * len(_GAP)
        name, arguments = fitted([name, arguments], look.width - others)
    return [name, sites, semaphore, arguments]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, sites, semaphore, arguments = row
    cells = (
        padded(name, widths[0]),
        sites.rjust(widths[1]),
        semaphore.ljust(widths[2]),
        cut(arguments, widths[3]),
    )
    return _GAP.join(cells).rstrip()


def _row(probe: Probe) -> tuple[str, str, str, str]:
    number = len(probe.sites)
    dead = sum(1 for site in probe.sites if site.dead is not None)
    sites = str(number)
    if dead:
        sites = f"{number} ({dead} dead)" if dead < number else f"{number} dead"
    semaphores = {site.semaphore for site in probe.sites if site.semaphore}
    guarded = "one per site" if len(semaphores) > 1 else "yes"
    return (
        printable(probe.full_name),
        sites,
        guarded if semaphores else "-",
        printable(_arguments([site.args for site in probe.sites])),
    )


def _arguments(specs: Sequence[str]) -> str:
    # The argument spec of the first site, and the number of other ones.
    others = len(set(specs)) - 1
    return (specs[0] or "-") + (f"  (+{plural(others, 'variant')})" if others else "")
