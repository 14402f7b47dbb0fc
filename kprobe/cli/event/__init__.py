"""``kprobe event``: define and watch events of the kernel's event tracer.

definitions       read and define definitions; options that name them
check             the command of this name; watch: that, too; rendering: the hits that it shows
tracefs_events    commands on events that exist: list, show, enable, disable, filter
removal           remove, clean
"""

from __future__ import annotations

from usdt.engine.cli.click_group import LazyGroup

__all__ = ("event",)

_EVENTS = "kprobe.cli.event.tracefs_events"

event = LazyGroup(
    "event",
    help="Define and watch kprobe and uprobe events of the kernel's event tracer.",
    commands_at={
        "check": ("kprobe.cli.event.check:check", "Check whether a kernel accepts a definition."),
        "watch": ("kprobe.cli.event.watch:watch", "Define events, print hits, remove the events."),
        "define": (
            "kprobe.cli.event.definitions:define",
            "Define events that stay until they are removed.",
        ),
        "list": (f"{_EVENTS}:list_command", "List probe events."),
        "show": (f"{_EVENTS}:show", "Show the fields of an event."),
        "enable": (f"{_EVENTS}:enable", "Enable events in the shared buffer."),
        "disable": (f"{_EVENTS}:disable", "Disable events in the shared buffer."),
        "filter": (f"{_EVENTS}:set_filter", "Show or set the filter of an event."),
        "remove": ("kprobe.cli.event.removal:remove", "Remove events, by name or pattern."),
        "clean": ("kprobe.cli.event.removal:clean", "Remove events that killed runs left behind."),
    },
)
