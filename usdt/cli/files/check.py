"""``usdt check``: check that probes would attach, and that arguments would decode."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from usdt.arch.locations import Unreadable
from usdt.base.terminal import progress
from usdt.base.terminal.look import look_of
from usdt.base.text import printable
from usdt.cli.files.selection import quirks_json, select, split_arguments
from usdt.elf.symbol_resolver import SymbolResolver
from usdt.engine.cli.click_group import colour_option, plural
from usdt.engine.cli.completion.values import complete_probes
from usdt.engine.cli.target_options import pid_option
from usdt.probes.sites import arguments_of, foreign_reason, unsupported_code_reason
from usdt.runtimes.quirks import find_quirks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from usdt.probes.probe import FileProbes, Probe

__all__ = ("check",)


class _Result(NamedTuple):
    name: str  # of a probe or function
    json: dict[str, Any]  # the keys that name it in JSON, and its quirks
    problems: list[str]


@click.command("check")
@pid_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@colour_option
@click.argument("words", metavar="[TARGET|PATTERN]...", nargs=-1, shell_complete=complete_probes)
def check(pids: tuple[int, ...], words: tuple[str, ...], *, as_json: bool) -> int:
    """Check that each probe would attach, and that each argument would decode; exit 1 if not.

    TARGET and PATTERN are as for usdt list. uprobe:TARGET:FUNCTION(ITEMS) checks functions and
    their items; without items, all parameters. Probes that attach and do not fire, or not always,
    are named, too.
    """
    arguments = split_arguments(words)
    passed = True
    if arguments.functions:
        from usdt.cli.files.functions import check_functions  # noqa: PLC0415 - not for USDT probes

        for path, problems in check_functions(arguments, pids):
            results = [_Result(name, {"function": name}, found) for name, found in problems]
            passed &= _report(path, "function", results, as_json=as_json)
        if arguments.only_functions:
            return int(not passed)
    for file, probes in select(arguments, pids):
        passed = passed and not file.warnings
        quirks = find_quirks(file.path, [probe.full_name for probe in probes], pids)
        if not as_json:
            _write_problems([*file.warnings, *(f"{file.path}: {quirk.text}" for quirk in quirks)])
        results = [
            _Result(
                probe.full_name,
                {"provider": probe.provider, "name": probe.name, **quirks_json(probe, quirks)},
                list(_problems(file, probe)),
            )
            for probe in probes
        ]
        passed &= _report(file.path, "probe", results, as_json=as_json)
    return int(not passed)


def _report(path: str, noun: str, results: Sequence[_Result], *, as_json: bool) -> bool:
    # Prints the problems of one file; returns whether there are none.
    progress.clear()
    bad = sum(1 for result in results if result.problems)
    if as_json:
        for result in results:
            verdict = {"ok": not result.problems, "problems": result.problems}
            sys.stdout.write(json.dumps({"path": path} | result.json | verdict) + "\n")
        return not bad
    _write_problems(
        f"{path}: {result.name}: {problem}" for result in results for problem in result.problems
    )
    summary = "all would attach and decode" if not bad else f"{bad} with problems"
    sys.stdout.write(f"{printable(path)}: {plural(len(results), noun)}, {summary}\n")
    return not bad


def _write_problems(problems: Iterable[str]) -> None:
    progress.clear()
    look = look_of(sys.stdout)
    for problem in problems:
        sys.stdout.write(f"{look.warning}{printable(problem)}{look.end}\n")


def _problems(file: FileProbes, probe: Probe) -> Iterator[str]:
    if (reason := foreign_reason(probe)) is not None:
        yield reason
    with file.elf() as elf, SymbolResolver(elf) as symbols:
        unreadable: set[str] = set()
        for site in probe.sites:
            reason = site.dead or unsupported_code_reason(elf, probe, site)
            if reason is not None:
                yield f"site {site.address:#x} cannot be attached: {printable(reason)}"
            for argument in arguments_of(probe, site, elf.type, symbols):
                if isinstance(argument.fetch, Unreadable):
                    text = f"{argument.name} cannot be read: {printable(argument.fetch.reason)}"
                    if text not in unreadable:
                        unreadable.add(text)
                        yield text
