"""``usdt events``: show probes as definitions for the kernel's event tracer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from usdt.base.text import printable
from usdt.cli.files.selection import select, split_arguments
from usdt.engine.cli.completion.values import complete_probes
from usdt.engine.cli.target_options import pid_option
from usdt.engine.language import parse_probe
from usdt.probes.matching import matching
from usdt.probes.sites import foreign_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.language.tree import ProbeText
    from usdt.probes.probe import Probe
    from usdt.probes.uprobe_events import SiteEvent

__all__ = ("events",)

# \b keeps click from filling the paragraph below it.
_HELP = """Show probes as definitions for uprobe_events of tracefs.

PROBE may have items, as for trace.

\b
usdt events /usr/bin/python3.11 'python:*'
usdt events 'uprobe:libc:fopen(str(arg0), return)'
usdt events -p 1234 'postgresql:query__start(str(arg0))' > definitions
kprobe event watch -i definitions

Each site is one line. Comments name what a definition cannot express.
"""


@click.command("events", help=_HELP)
@pid_option
@click.argument(
    "words", metavar="[TARGET] PROBE...", nargs=-1, required=True, shell_complete=complete_probes
)
def events(pids: tuple[int, ...], words: tuple[str, ...]) -> None:
    """Show probes as definitions."""
    arguments = split_arguments(words)
    requests = [parse_probe(word) for word in arguments.patterns]
    functions = [parse_probe(word) for word in arguments.functions]
    names: set[str] = set()  # of events, to keep them unique
    for request in functions:
        sys.stdout.writelines(_function_lines(request, pids[0] if pids else None, names))
    if arguments.only_functions:
        return
    for _, probes in select(arguments, pids):
        for probe in probes:
            own = [request for request in requests if matching(request, [probe])]
            for request in own or [parse_probe("*:*")]:
                sys.stdout.writelines(_probe_lines(probe, request, names))


def _function_lines(request: ProbeText, pid: int | None, names: set[str]) -> Iterator[str]:
    from usdt.probes.uprobe_events import function_events  # noqa: PLC0415 - not for --help
    from usdt.targets.search.target_files import resolve_targets  # noqa: PLC0415
    from usdt.uprobes.provider import FunctionRequest  # noqa: PLC0415

    function = FunctionRequest(request)
    for target in resolve_targets(request.path or "", pid=pid):
        yield f"# {printable(request.pattern)} in {printable(target.path)}\n"
        for event in function_events(function, target.path, target.open_path, taken=names):
            yield from _event_lines(event)


def _event_lines(event: SiteEvent) -> Iterator[str]:
    yield from (f"# {printable(note)}\n" for note in event.notes)
    yield f"{event.text}\n"
    if event.filter:
        yield f"# {event.name}: filter: {printable(event.filter)}\n"


def _probe_lines(probe: Probe, request: ProbeText, names: set[str]) -> Iterator[str]:
    from usdt.probes.uprobe_events import site_events  # noqa: PLC0415 - not for --help

    yield f"# {printable(probe.full_name)} in {printable(probe.path)}\n"
    if (reason := foreign_reason(probe)) is not None:
        yield f"# {reason}\n"
    for number, site in enumerate(probe.sites):
        if site.dead is not None:
            yield f"# site {number} is dead: {printable(site.dead)}\n"
    for event in site_events(probe, request, taken=names):
        yield from _event_lines(event)
