"""``kprobe event define``, ``remove`` and ``clean``: events that stay until they are removed."""

from __future__ import annotations

import click

from kprobe.cli.eventsource import dialect_of, given, lines_of
from usdt.base.errors import TracingError
from usdt.engine.cli.click_group import say
from usdt.tracefs.mount import tracefs

__all__ = ("clean", "define", "remove")

# \b keeps click from filling the paragraph below it.
_DEFINE = """Define events that stay until they are removed. DEFINITION is in the kernel's syntax.

\b
kprobe event define 'p:opened do_sys_openat2 name=+0($arg2):ustring'
kprobe event define -i definitions.txt --dry-run
"""


@click.command("define", help=_DEFINE)
@click.argument("definitions", metavar="[DEFINITION]...", nargs=-1)
@click.option(
    "-i",
    "--input",
    "files",
    multiple=True,
    metavar="FILE",
    help="Read definitions from FILE, one per line; - is stdin.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written, but write nothing.")
def define(definitions: tuple[str, ...], files: tuple[str, ...], *, dry_run: bool) -> int:
    """Define events."""
    from usdt.tracefs.definitions import define_event, remove_event  # noqa: PLC0415 - slow

    root = tracefs()
    wanted = given(lines_of(definitions, files), dialect_of(root))
    done = []
    for item in wanted:
        if dry_run:
            click.echo(f"{item.file}: {item.definition}")
            continue
        try:
            done.append(define_event(root, item.file, str(item.definition), item.name))
        except TracingError:
            for event in reversed(done):  # all or none
                remove_event(root, event)
            raise
        click.echo(item.name)
    return 0


@click.command("remove")
@click.argument("events", metavar="[GROUP/]EVENT...", nargs=-1, required=True)
def remove(events: tuple[str, ...]) -> int:
    """Remove events. A name without a group must be unique."""
    from usdt.tracefs.definitions import list_events, remove_event  # noqa: PLC0415 - slow

    root = tracefs()
    for wanted in events:
        found = {event.name: event for event, _ in list_events(root) if matches(event.name, wanted)}
        if not found:
            raise TracingError(f"no probe event {wanted}; list them with: kprobe event list")
        if len(found) > 1:
            names = ", ".join(sorted(found))
            raise TracingError(f"{wanted} is ambiguous: {names}; add the group")
        remove_event(root, *found.values())
    return 0


@click.command("clean")
def clean() -> int:
    """Remove events that killed runs of this toolkit left behind, and no others."""
    from usdt.tracefs.session import clean as sweep  # noqa: PLC0415 - with the tracer

    gone, stuck = sweep(tracefs())
    for line in gone:
        click.echo(f"removed {line}")
    for line in stuck:
        say(line)
    if not gone and not stuck:
        say("nothing to remove")
    return 1 if stuck else 0


def matches(name: str, wanted: str) -> bool:
    """Return True if ``wanted`` names the event ``GROUP/EVENT``, with or without the group."""
    return wanted in (name, name.partition("/")[2], name.replace("/", ":", 1))
