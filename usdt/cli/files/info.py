"""``usdt info``: show the sites of a probe, and the location of each argument."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from usdt.base.terminal.look import look_of
from usdt.base.text import printable
from usdt.cli.files.selection import quirks_json, select, split_arguments
from usdt.engine.cli.click_group import colour_option, plural
from usdt.engine.cli.completion.values import complete_probes
from usdt.engine.cli.target_options import pid_option
from usdt.probes.nops import has_nop10
from usdt.runtimes.quirks import find_quirks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from usdt.base.terminal.look import Look
    from usdt.probes.argspec import Operand
    from usdt.probes.probe import Probe, Site
    from usdt.runtimes.quirks import Quirk

__all__ = ("info", "operand_line")

_NOP10 = ", nop and nop10"


@click.command("info")
@pid_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe.")
@colour_option
@click.argument(
    "words", metavar="[TARGET] PROBE...", nargs=-1, required=True, shell_complete=complete_probes
)
def info(pids: tuple[int, ...], words: tuple[str, ...], *, as_json: bool) -> None:
    """Show each call site of a probe, and the location of each argument there.

    For a function, uprobe:TARGET:FUNCTION, show its address, its other names, and the locations
    of its arguments. For a source line, uprobe:TARGET:SOURCE:LINE, show the variables in scope.
    """
    arguments = split_arguments(words)
    if arguments.functions:
        from usdt.cli.files.functions import describe_functions  # noqa: PLC0415 - not for USDT probes

        describe_functions(arguments, pids, as_json=as_json)
        if arguments.only_functions:
            return
    for file, probes in select(arguments, pids):
        for probe in probes:
            quirks = find_quirks(file.path, [probe.full_name], pids)
            with file.elf() as elf:
                nop10 = [has_nop10(elf, site) for site in probe.sites]
            if as_json:
                import json  # noqa: PLC0415 - text needs none

                shown = probe.to_json() | quirks_json(probe, quirks)
                for site, found in zip(shown["sites"], nop10, strict=True):
                    site["nop10"] = found
                sys.stdout.write(json.dumps(shown) + "\n")
            else:
                sys.stdout.writelines(_describe(probe, nop10, quirks, look_of(sys.stdout)))


def _describe(
    probe: Probe, nop10: Sequence[bool], quirks: Sequence[Quirk], look: Look
) -> Iterator[str]:
    name = f"{look.probe}{printable(probe.full_name)}{look.end}"
    yield f"{name}  in {printable(probe.path)}\n"
    yield f"  {probe.machine}, {plural(len(probe.sites), 'call site')}\n"
    for quirk in quirks:
        yield f"  {look.warning}! {printable(quirk.note)}{look.end}\n"
    for number, site in enumerate(probe.sites):
        yield f"  site {number}: {_position(site)}{_NOP10 * nop10[number]}\n"
        operands = probe.operands(site)
        if not operands:
            yield "    no arguments\n"
        for index, operand in enumerate(operands):
            yield f"    arg{index:<3} {operand_line(operand)}\n"


def _position(site: Site) -> str:
    if site.offset is None:
        return f"address {site.address:#x}, dead: {site.dead}"
    position = f"address {site.address:#x}, file offset {site.offset:#x}"
    if site.semaphore:
        position += f", semaphore {site.semaphore:#x}"
    return position


def operand_line(operand: Operand) -> str:
    """Return the text of an operand, its type, size and location, safe for a terminal."""
    if operand.kind == "constant":
        location = f"the constant {operand.value}" if operand.symbol is None else "an address"
    elif operand.kind == "register":
        location = f"in register {operand.register}"
        if operand.low_part is not None:
            location = f"the low {operand.low_part} bytes {location}; the rest is not noted"
    elif operand.kind == "memory":
        location = f"in memory at {_address(operand)}"
    else:
        location = "unknown"
    problem = f" (not readable: {operand.error})" if operand.error else ""
    meaning = f"{operand.type}, {plural(operand.size, 'byte')}, {location}{problem}"
    return f"{printable(operand.text):<24} {printable(meaning)}"


def _address(operand: Operand) -> str:
    parts = [name for name in (operand.symbol, operand.base) if name]
    if operand.index:
        parts.append(f"{operand.index} * {operand.scale}" if operand.scale > 1 else operand.index)
    text = " + ".join(parts)
    if operand.displacement or not parts:
        sign = "-" if operand.displacement < 0 else "+"
        text += f" {sign} {abs(operand.displacement)}" if parts else str(operand.displacement)
    return (f"%{operand.segment}:" if operand.segment else "") + text
