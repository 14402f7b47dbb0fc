"""``kprobe event list`` and ``show``: list probe events; show the fields of an event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kprobe.cli.eventdefine import matches
from usdt.base.errors import TracingError
from usdt.base.text import printable
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.tracefs.format import EventFormat

__all__ = ("list_events", "show")


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_events(*, as_json: bool) -> int:
    """List all probe events of this machine, as the kernel shows them."""
    from usdt.tracefs.definitions import list_events  # noqa: PLC0415 - with the tracer
    from usdt.tracefs.owner import is_orphan, is_ours  # noqa: PLC0415

    root = tracefs()
    for event, line in list_events(root):
        group = event.name.partition("/")[0]
        enabled = _read(root / "events" / event.name / "enable").startswith("1")
        if as_json:
            row: dict[str, Any] = {"event": event.name, "definition": line, "enabled": enabled}
            click.echo(json.dumps({**row, "ours": is_ours(group), "left": is_orphan(group)}))
            continue
        notes = ["enabled"] if enabled else []
        notes += ["left behind by a killed run"] if is_orphan(group) else []
        tail = f"  # {', '.join(notes)}" if notes else ""
        click.echo(printable(line + tail))
    return 0


@click.command("show")
@click.argument("event", metavar="GROUP/EVENT")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(event: str, *, as_json: bool) -> int:
    """Show the fields of any event of the kernel, including tracepoints."""
    from usdt.tracefs.format import parse_format  # noqa: PLC0415 - with the tracer

    root = tracefs()
    form = parse_format(_format(root, event))
    if as_json:
        click.echo(json.dumps(_described(event, form)))
        return 0
    click.echo(printable(f"{event}  (ID {form.number})"))
    for field in form.own:
        where = f"offset {field.offset}, {field.size} bytes"
        click.echo(printable(f"  {field.declaration + ';':<40} {where}"))
    click.echo(printable(f"  print fmt: {form.print_fmt}"))
    return 0


def _described(event: str, form: EventFormat) -> dict[str, Any]:
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
        for field in form.own
    ]
    return {"event": event, "id": form.number, "fields": fields, "print_fmt": form.print_fmt}


def _format(root: Path, event: str) -> str:
    group, slash, name = event.replace(":", "/", 1).partition("/")
    if not slash:
        from usdt.tracefs.definitions import list_events  # noqa: PLC0415 - rare

        found = {other.name for other, _ in list_events(root) if matches(other.name, event)}
        if len(found) == 1:
            group, _, name = found.pop().partition("/")
    if not name or ".." in (group, name) or "/" in name:
        raise TracingError(f"{event}: expected GROUP/EVENT, such as sched/sched_switch")
    text = _read(root / "events" / group / name / "format")
    if not text:
        raise TracingError(f"no event {event}; list probe events with: kprobe event list")
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
