"""``usdt list``: list the probes of files, libraries and processes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from usdt.base.errors import ProbeNotFound, TargetError
from usdt.base.text import printable
from usdt.engine.cli.options import pid_option
from usdt.engine.language import parse_probe
from usdt.probes.sites import closest_match, matching
from usdt.targets.listing_files import find_probes, split_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from usdt.probes.probe import FileProbes, Probe

__all__ = ("function_words", "list_probes", "select")


@click.command("list")
@pid_option
@click.option("-a", "--all", "all_processes", is_flag=True, help="Search all processes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@click.argument("words", metavar="[TARGET|PATTERN]...", nargs=-1)
def list_probes(
    pids: tuple[int, ...], words: tuple[str, ...], *, all_processes: bool, as_json: bool
) -> None:
    """List the USDT probes of files, libraries and processes.

    TARGET is a path, a library as the loader knows it (libc, libjvm.so), or a program on PATH.
    PATTERN is provider:name, with * and ?, or PATH:provider:name to name the file as well.
    uprobe:[TARGET:]FUNCTION lists functions.
    """
    words, functions, targets = function_words(words)
    if functions:
        from usdt.cli.functions import list_functions  # noqa: PLC0415 - not for USDT probes

        list_functions(functions, targets, pids, as_json=as_json)
        if len(words) == len(targets):
            return
    found = select(words, pids=pids, all_processes=all_processes)
    if as_json:
        for file, probes in found:
            _warn(file)
            for probe in probes:
                sys.stdout.write(json.dumps(probe.to_json()) + "\n")
        return
    for number, (file, probes) in enumerate(found):
        _warn(file)
        sys.stdout.writelines(_table(file, probes, first=number == 0))


def function_words(words: Sequence[str]) -> tuple[tuple[str, ...], list[str], list[str]]:
    """Split arguments into (arguments that name no function, functions, targets).

    Targets are returned only if there are functions.
    """
    functions = [word for word in words if word.startswith("uprobe:")]
    others = tuple(word for word in words if word not in functions)
    return others, functions, split_words(others)[0] if functions else []


def select(
    words: Sequence[str], *, pids: Sequence[int], all_processes: bool
) -> Iterator[tuple[FileProbes, list[Probe]]]:
    """Yield files with those of their probes that match the arguments.

    Raises:
        TargetError: there is no target.
        ProbeNotFound: nothing matches; the message names the most similar probe.
    """
    targets, patterns = split_words(words)
    requests = [parse_probe(word) for word in patterns]
    targets += [request.path for request in requests if request.path is not None]
    if not targets and not pids and not all_processes:
        raise TargetError("no target: give a file, a library, -p PID, or -a for all processes")
    seen: list[FileProbes] = []
    some = False
    for file in find_probes(list(dict.fromkeys(targets)), pids=pids, everything=all_processes):
        seen.append(file)
        if requests:
            probes = list(dict.fromkeys(p for r in requests for p in matching(r, file.probes)))
        else:
            probes = list(file.probes)
        if probes or (file.warnings and not requests):
            some = some or bool(probes)
            yield file, probes
    if not some:
        raise _nothing(seen, patterns, pids, targets)


def _nothing(
    files: Sequence[FileProbes],
    patterns: Sequence[str],
    pids: Sequence[int],
    targets: Sequence[str],
) -> ProbeNotFound:
    if targets:
        where = ", ".join(file.path for file in files)
    else:
        where = f"process {', '.join(map(str, pids))}" if pids else "all processes"
    names = [probe.full_name for file in files for probe in file.probes]
    if not patterns or not names:
        return ProbeNotFound(f"{where}: no USDT probes")
    wanted = parse_probe(patterns[0])
    near = closest_match(f"{wanted.provider}:{wanted.name}", names)
    hint = f"; nearest is {near}" if near else ""
    return ProbeNotFound(f"{where}: no probe {wanted.provider}:{wanted.name}{hint}")


def _warn(file: FileProbes) -> None:
    for warning in file.warnings:
        click.echo(f"Warning: {printable(warning)}", err=True)


def _table(file: FileProbes, probes: Sequence[Probe], *, first: bool) -> Iterator[str]:
    if not probes:
        return
    if not first:
        yield "\n"
    yield f"{printable(file.path)}  ({probes[0].machine}, {_count(probes)})\n"
    rows = [("PROBE", "SITES", "SEMAPHORE", "ARGUMENTS")]
    rows += [_row(probe) for probe in probes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = (row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2].ljust(widths[2]), row[3])
        yield f"  {'  '.join(cells).rstrip()}\n"


def _count(probes: Sequence[Probe]) -> str:
    sites = sum(len(probe.sites) for probe in probes)
    return f"{len(probes)} probe{'s' * (len(probes) != 1)}, {sites} site{'s' * (sites != 1)}"


def _row(probe: Probe) -> tuple[str, str, str, str]:
    live = [site for site in probe.sites if site.dead is None]
    number = str(len(probe.sites))
    if len(live) != len(probe.sites):
        number = f"{number} ({len(probe.sites) - len(live)} dead)" if live else f"{number} dead"
    semaphores = {site.semaphore for site in probe.sites if site.semaphore}
    each = "one per site" if len(semaphores) > 1 else "yes"
    return (
        printable(probe.full_name),
        number,
        each if semaphores else "-",
        printable(_arguments(probe.sites[0].args, (site.args for site in probe.sites))),
    )


def _arguments(first: str, every: Iterable[str]) -> str:
    others = len(set(every)) - 1
    more = f"  (+{others} other way{'s' * (others != 1)})" if others else ""
    return f"{first or '-'}{more}"
