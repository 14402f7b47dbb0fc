"""``kprobe event enable``, ``disable`` and ``filter``: events of the shared buffer."""

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
    """Enable events in the tracer's shared buffer (trace, trace_pipe), for all users."""
    for event in events:
        write_control(_folder(event) / "enable", "1")
    return 0


@click.command("disable")
@click.argument("events", metavar="GROUP/EVENT...", nargs=-1, required=True)
def disable(events: tuple[str, ...]) -> int:
    """Disable events in the tracer's shared buffer."""
    for event in events:
        write_control(_folder(event) / "enable", "0")
    return 0


@click.command("filter")
@click.argument("event", metavar="GROUP/EVENT")
@click.argument("text", metavar="[FILTER]", required=False)
def set_filter(event: str, text: str | None) -> int:
    """Set the FILTER of an event in the shared buffer; 0 clears it. Without FILTER, show it."""
    path = _folder(event) / "filter"
    if text is None:
        click.echo(path.read_text().rstrip("\n"))
        return 0
    try:
        write_control(path, text)
    except SyscallError as err:
        said = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        write_control(path, "0")  # the kernel keeps its message there until it is cleared
        why = said[-1].strip() if said else err.strerror
        raise TracingError(f"{event}: filter {text!r} is refused: {why}") from err
    return 0


def _folder(event: str) -> Path:
    group, _, name = event.replace(":", "/", 1).partition("/")
    path = tracefs() / "events" / group / name
    if not name or ".." in (group, name) or "/" in name or not (path / "enable").exists():
        raise TracingError(f"no event {event}; expected GROUP/EVENT, as in: kprobe event list")
    return path
