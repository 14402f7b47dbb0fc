"""``usdt info``: show the sites of a probe, and the location of each argument."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from usdt.base.text import printable
from usdt.cli.listing import function_words, select
from usdt.engine.cli.options import pid_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.probes.argspec import Operand
    from usdt.probes.probe import Probe, Site

__all__ = ("info", "meaning")


@click.command("info")
@pid_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@click.argument("words", metavar="[TARGET] PROBE...", nargs=-1, required=True)
def info(pids: tuple[int, ...], words: tuple[str, ...], *, as_json: bool) -> None:
    """Show each call site of a probe, and where each argument lives there.

    For a function, uprobe:TARGET:FUNCTION, show its address, other names, and where its
    arguments live.
    """
    words, functions, targets = function_words(words)
    if functions:
        from usdt.cli.functions import describe_functions  # noqa: PLC0415 - not for USDT probes

        describe_functions(functions, targets, pids, as_json=as_json)
        if len(words) == len(targets):
            return
    for _, probes in select(words, pids=pids, all_processes=False):
        for probe in probes:
            if as_json:
                sys.stdout.write(json.dumps(probe.to_json()) + "\n")
            else:
                sys.stdout.writelines(_describe(probe))


def _describe(probe: Probe) -> Iterator[str]:
    number = len(probe.sites)
    yield f"{printable(probe.full_name)}  in {printable(probe.path)}\n"
    yield f"  {probe.machine}, {number} call site{'s' * (number != 1)}\n"
    for index, site in enumerate(probe.sites):
        yield f"  site {index}: {_place(site)}\n"
        operands = probe.operands(site)
        if not operands:
            yield "    no arguments\n"
        for position, operand in enumerate(operands):
            text, meant = printable(operand.text), printable(meaning(operand))
            yield f"    arg{position:<3} {text:<24} {meant}\n"


def _place(site: Site) -> str:
    if site.offset is None:
        return f"address {site.address:#x}, dead: {site.dead}"
    place = f"address {site.address:#x}, file offset {site.offset:#x}"
    if site.semaphore:
        place += f", semaphore {site.semaphore:#x}"
    return place


def meaning(operand: Operand) -> str:
    """Return the type, size and location of an operand as text."""
    size = f"{operand.type}, {operand.size} byte{'s' * (operand.size != 1)}"
    if operand.kind == "constant":
        where = f"the constant {operand.value}" if operand.symbol is None else "an address"
    elif operand.kind == "register":
        where = f"in register {operand.register}"
    elif operand.kind == "memory":
        where = f"in memory at {_address(operand)}"
    else:
        where = "unknown"
    return f"{size}, {where}" + (f" (not readable: {operand.error})" if operand.error else "")


def _address(operand: Operand) -> str:
    terms = [f"%{operand.segment}:"] if operand.segment else []
    parts = [name for name in (operand.symbol, operand.base) if name]
    if operand.index:
        parts.append(f"{operand.index} * {operand.scale}" if operand.scale > 1 else operand.index)
    text = " + ".join(parts)
    if operand.displacement or not parts:
        sign = "-" if operand.displacement < 0 else "+"
        text += f" {sign} {abs(operand.displacement)}" if parts else str(operand.displacement)
    return "".join(terms) + text
