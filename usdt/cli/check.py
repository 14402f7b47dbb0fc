"""``usdt check``: check that probes would attach, and that arguments would decode."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from usdt.arch.locations import Unreadable
from usdt.base.text import printable
from usdt.cli.listing import function_words, select
from usdt.elf.file import ElfFile
from usdt.elf.symbol_resolver import SymbolResolver
from usdt.engine.cli.options import pid_option
from usdt.probes.sites import arguments_of, foreign_reason, unsupported_code_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.probes.probe import FileProbes, Probe

__all__ = ("check",)


@click.command("check")
@pid_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@click.argument("words", metavar="[TARGET]...", nargs=-1)
def check(pids: tuple[int, ...], words: tuple[str, ...], *, as_json: bool) -> int:
    """Check that each probe would attach, and that each argument would decode; exit 1 if not.

    uprobe:TARGET:FUNCTION(ITEMS) checks functions and their items; without items, all
    parameters.
    """
    words, functions, targets = function_words(words)
    worst = 0
    if functions:
        from usdt.cli.functioncheck import check_functions  # noqa: PLC0415 - not for USDT probes

        worst = check_functions(functions, targets, pids, as_json=as_json)
        if len(words) == len(targets):
            return worst
    for file, probes in select(words, pids=pids, all_processes=False):
        results = [(probe, list(_problems(probe))) for probe in probes]
        bad = [(probe, problems) for probe, problems in results if problems]
        worst = worst or int(bool(bad or file.warnings))
        if as_json:
            for probe, problems in results:
                sys.stdout.write(json.dumps(_to_json(probe, problems)) + "\n")
        else:
            _report(file, results)
    return worst


def _report(file: FileProbes, results: list[tuple[Probe, list[str]]]) -> None:
    for warning in file.warnings:
        sys.stdout.write(f"{printable(warning)}\n")
    for probe, problems in results:
        for problem in problems:
            sys.stdout.write(f"{printable(file.path)}: {printable(probe.full_name)}: {problem}\n")
    bad = sum(1 for _, problems in results if problems)
    verdict = "all would attach and decode" if not bad else f"{bad} with problems"
    number = len(results)
    sys.stdout.write(f"{printable(file.path)}: {number} probe{'s' * (number != 1)}, {verdict}\n")


def _problems(probe: Probe) -> Iterator[str]:
    if (reason := foreign_reason(probe)) is not None:
        yield reason
    with ElfFile(probe.path) as elf, SymbolResolver(elf) as symbols:
        seen: set[str] = set()
        for site in probe.sites:
            reason = site.dead or unsupported_code_reason(elf, probe, site)
            if reason is not None:
                yield f"site {site.address:#x} cannot be attached: {printable(reason)}"
            for argument in arguments_of(probe, site, elf.type, symbols):
                if isinstance(argument.fetch, Unreadable):
                    text = f"{argument.name} cannot be read: {printable(argument.fetch.reason)}"
                    if text not in seen:
                        seen.add(text)
                        yield text


def _to_json(probe: Probe, problems: list[str]) -> dict[str, Any]:
    return {
        "path": probe.path,
        "provider": probe.provider,
        "name": probe.name,
        "ok": not problems,
        "problems": problems,
    }
