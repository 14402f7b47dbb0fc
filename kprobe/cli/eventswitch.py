"""``kprobe event enable``, ``disable`` and ``filter``: switches of the tracer's own buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from usdt.base.errors import SyscallError, TracingError
from usdt.tracefs.mount import tracefs, write_control

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("disable", "enable", "set_filter")


@click.command("enable")
@click.argument("events", metavar="GROUP/EVENT...", nargs=-1, required=True)
def enable(events: tuple[str, ...]) -> int:
    """Switch events on in the tracer's own buffer (trace, trace_pipe), for everybody."""
    for event in events:
        write_control(_folder(event) / "enable", "1")
    return 0


@click.command("disable")
@click.argument("events", metavar="GROUP/EVENT...", nargs=-1, required=True)
def disable(events: tuple[str, ...]) -> int:
    """Switch events off in the tracer's own buffer."""
    for event in events:
        write_control(_folder(event) / "enable", "0")
    return 0


@click.command("filter")
@click.argument("event", metavar="GROUP/EVENT")
@click.argument("text", metavar="[FILTER]", required=False)
def set_filter(event: str, text: str | None) -> int:
    """Set the FILTER of an event in the tracer's own buffer; 0 clears it, none shows it."""
    path = _folder(event) / "filter"
    if text is None:
        click.echo(path.read_text().rstrip("\n"))
        return 0
    try:
        write_control(path, text)
    except SyscallError as err:
        said = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        write_control(path, "0")  # the kernel keeps its words there until somebody clears them
        why = said[-1].strip() if said else err.strerror
        raise TracingError(f"the filter {text!r} of {event} is refused: {why}") from err
    return 0


def _folder(event: str) -> Path:
    group, _, name = event.replace(":", "/", 1).partition("/")
    path = tracefs() / "events" / group / name
    if not name or ".." in (group, name) or "/" in name or not (path / "enable").exists():
        raise TracingError(f"no event {event}; it is GROUP/EVENT: kprobe event list")
    return path
