"""``kprobe event remove`` and ``clean``; events by name or pattern."""

from __future__ import annotations

import fnmatch
import re
import sys
from typing import TYPE_CHECKING

import click

from usdt.base.errors import TracingError
from usdt.base.text import printable
from usdt.engine.cli.click_group import plural, say
from usdt.tracefs.definitions import list_events
from usdt.tracefs.mount import tracefs
from usdt.tracefs.owner import is_orphan, is_ours

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from usdt.tracefs.definitions import DefinedEvent

__all__ = ("chosen_events", "clean", "matching_events", "remove")

_PATTERN = re.compile(r"[*?[]")
_EXAMPLES = 10  # events that a question names

# \b keeps click from filling the paragraph below it.
_HELP = """Remove events. A name without a group must be unique.

\b
kprobe event remove kprobes/opened
kprobe event remove 'mygroup/*'
kprobe event remove --yes '*'

What a pattern matches is removed once you confirm it. Without a terminal that needs --yes. Events
that a running trace has defined for itself are left alone.
"""


@click.command("remove", help=_HELP)
@click.argument("events", metavar="[GROUP/]EVENT|PATTERN...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Remove what a pattern matches without asking.")
def remove(events: tuple[str, ...], *, yes: bool) -> int:
    """Remove events."""
    from usdt.tracefs.session import remove_events  # noqa: PLC0415 - with the tracer

    root = tracefs()
    chosen = chosen_events(events, [event for event, _ in list_events(root)])
    if any(map(_PATTERN.search, events)) and not (yes or _confirmed(chosen)):
        say("nothing is removed")
        return 1
    _, failures = remove_events(root, chosen)
    if len(failures) == 1:
        raise TracingError(failures[0])
    for line in failures:
        say(line)
    return 1 if failures else 0


def chosen_events(wanted: Sequence[str], events: Iterable[DefinedEvent]) -> list[DefinedEvent]:
    """Return the events that names and patterns select.

    A name or pattern without a group selects by the name alone. A pattern leaves out events of
    running traces of this toolkit.

    Raises:
        TracingError: there is none, or a name is ambiguous.
    """
    known = {event.name: event for event in events}
    chosen: dict[str, DefinedEvent] = {}
    for word in wanted:
        found = [event for event in known.values() if _selects(word, event)]
        if not found:
            raise TracingError(f"no probe event {word}; list them with: kprobe event list")
        if len(found) > 1 and not _PATTERN.search(word):
            names = ", ".join(sorted(event.name for event in found))
            raise TracingError(f"{word} is ambiguous: {names}; add the group")
        chosen.update({event.name: event for event in found})
    return list(chosen.values())


def matching_events(root: Path, name: str) -> list[str]:
    """Return the probe events, as GROUP/EVENT, that a name with or without a group may mean."""
    names = dict.fromkeys(event.name for event, _ in list_events(root))
    return [full for full in names if name in _names(full)]


def _names(full: str) -> tuple[str, str, str]:
    return full, full.partition("/")[2], full.replace("/", ":", 1)


def _selects(word: str, event: DefinedEvent) -> bool:
    if not _PATTERN.search(word):
        return word in _names(event.name)
    group = event.name.partition("/")[0]
    if is_ours(group) and not is_orphan(group):
        return False
    full, name, with_colon = _names(event.name)
    shown = full if "/" in word else with_colon if ":" in word else name
    return fnmatch.fnmatchcase(shown, word)


def _confirmed(events: Sequence[DefinedEvent]) -> bool:
    what = plural(len(events), "event")
    if not sys.stdin.isatty():
        raise click.UsageError(f"The pattern matches {what}; to remove them, add --yes.")
    for event in events[:_EXAMPLES]:
        say(f"  {event.name}")
    if len(events) > _EXAMPLES:
        say(f"  and {len(events) - _EXAMPLES} more")
    return click.confirm(f"Remove {what}?", err=True)


@click.command("clean")
def clean() -> int:
    """Remove events that killed runs of this toolkit left behind, and no others."""
    from usdt.tracefs.session import clean as remove_leftovers  # noqa: PLC0415 - with the tracer

    removed, failures = remove_leftovers(tracefs())
    for line in removed:
        click.echo(printable(f"removed {line}"))
    for line in failures:
        say(line)
    if not removed and not failures:
        say("nothing to remove")
    return 1 if failures else 0
