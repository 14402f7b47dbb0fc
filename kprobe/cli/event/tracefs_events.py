"""Commands on events that exist: list, show, enable, disable, filter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kprobe.cli.event.removal import matching_events
from usdt.base.errors import SyscallError, TracingError
from usdt.base.text import printable, printable_lines
from usdt.engine.cli.click_group import plural
from usdt.tracefs.definitions import list_events
from usdt.tracefs.mount import tracefs, write_control
from usdt.tracefs.owner import is_orphan, is_ours

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.tracefs.format import EventFormat

__all__ = ("disable", "enable", "list_command", "set_filter", "show")

_events_argument = click.argument("events", metavar="GROUP/EVENT...", nargs=-1, required=True)


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event.")
def list_command(*, as_json: bool) -> None:
    """List all kprobe and uprobe events of this machine, as the kernel shows them."""
    root = tracefs()
    for event, definition in list_events(root):
        group = event.name.partition("/")[0]
        enabled = _read(root / "events" / event.name / "enable").startswith("1")
        if as_json:
            shown = {
                "event": event.name,
                "definition": definition,
                "enabled": enabled,
                "ours": is_ours(group),
                "left": is_orphan(group),
            }
            click.echo(json.dumps(shown))
            continue
        notes = ["enabled"] if enabled else []
        notes += ["left behind by a killed run"] if is_orphan(group) else []
        comment = f"  # {', '.join(notes)}" if notes else ""
        click.echo(printable(definition + comment))


@click.command("show")
@click.argument("event", metavar="GROUP/EVENT")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(event: str, *, as_json: bool) -> None:
    """Show the fields of any event of the kernel, including tracepoints."""
    from usdt.tracefs.format import parse_format  # noqa: PLC0415 - with the tracer

    event_format = parse_format(_format_text(tracefs(), event))
    if as_json:
        click.echo(json.dumps(_to_json(event, event_format)))
        return
    click.echo(printable(f"{event}  (ID {event_format.number})"))
    for field in event_format.own:
        position = f"offset {field.offset}, {plural(field.size, 'byte')}"
        click.echo(printable(f"  {field.declaration + ';':<40} {position}"))
    click.echo(printable(f"  print fmt: {event_format.print_fmt}"))


def _to_json(event: str, event_format: EventFormat) -> dict[str, Any]:
    fields = [
        {
            "name": field.name,
            "type": field.declaration.rpartition(field.name)[0].strip(),
            "offset": field.offset,
            "size": field.size,
            "signed": field.signed,
            "kind": field.kind,
            "location": field.location,
        }
        for field in event_format.own
    ]
    return {
        "event": event,
        "id": event_format.number,
        "fields": fields,
        "print_fmt": event_format.print_fmt,
    }


def _format_text(root: Path, event: str) -> str:
    full_name = event.replace(":", "/", 1)
    if "/" not in full_name:
        matching = list(matching_events(root, event))
        full_name = matching[0] if len(matching) == 1 else event
    text = _read(_folder(root, full_name, event) / "format")
    if not text:
        raise TracingError(f"no event {event}; list probe events with: kprobe event list")
    return text


@click.command("enable")
@_events_argument
def enable(events: tuple[str, ...]) -> None:
    """Enable events in the tracer's shared buffer (trace, trace_pipe), for all users."""
    for event in events:
        write_control(_switchable(event) / "enable", "1")


@click.command("disable")
@_events_argument
def disable(events: tuple[str, ...]) -> None:
    """Disable events in the tracer's shared buffer."""
    for event in events:
        write_control(_switchable(event) / "enable", "0")


@click.command("filter")
@click.argument("event", metavar="GROUP/EVENT")
@click.argument("text", metavar="[FILTER]", required=False)
def set_filter(event: str, text: str | None) -> None:
    """Set the FILTER of an event in the shared buffer; 0 clears it. Without FILTER, show it."""
    path = _switchable(event) / "filter"
    if text is None:
        click.echo(printable_lines(path.read_text().rstrip("\n")))
        return
    try:
        write_control(path, text)
    except SyscallError as err:
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
        write_control(path, "0")  # the kernel keeps its message there until it is cleared
        reason = lines[-1].strip() if lines else err.strerror
        raise TracingError(f"{event}: filter {text!r} is refused: {reason}") from err


def _switchable(event: str) -> Path:
    # The folder of an event of any tracer that has the file "enable".
    path = _folder(tracefs(), event.replace(":", "/", 1), event)
    if not (path / "enable").exists():
        raise TracingError(f"no event {event}; list probe events with: kprobe event list")
    return path


def _folder(root: Path, full_name: str, event: str) -> Path:
    # The folder of GROUP/EVENT, which need not exist. Refuses names that lead elsewhere.
    group, _, name = full_name.partition("/")
    if not group or not name or ".." in (group, name) or "/" in name:
        raise TracingError(f"{event}: expected GROUP/EVENT, such as sched/sched_switch")
    return root / "events" / group / name


def _read(path: Path) -> str:
    # The text of a control file; "" if it cannot be read.
    try:
        return path.read_text()
    except OSError:
        return ""
