"""``kprobe event``: define and watch events of the kernel's event tracer."""

from __future__ import annotations

from usdt.engine.cli.click_group import LazyGroup

__all__ = ("event",)

event = LazyGroup(
    "event",
    help="Define and watch kprobe and uprobe events of the kernel's event tracer.",
    commands_at={
        "check": ("kprobe.cli.eventcheck:check", "Check whether a kernel accepts a definition."),
        "watch": ("kprobe.cli.eventwatch:watch", "Define events, print hits, remove the events."),
        "define": (
            "kprobe.cli.eventdefine:define",
            "Define events that stay until removed.",
        ),
        "list": ("kprobe.cli.eventlist:list_events", "List probe events."),
        "show": ("kprobe.cli.eventlist:show", "Show the fields of an event."),
        "enable": ("kprobe.cli.eventswitch:enable", "Enable events in the shared buffer."),
        "disable": ("kprobe.cli.eventswitch:disable", "Disable events in the shared buffer."),
        "filter": ("kprobe.cli.eventswitch:set_filter", "Show or set the filter of an event."),
        "remove": ("kprobe.cli.eventdefine:remove", "Remove events."),
        "clean": ("kprobe.cli.eventdefine:clean", "Remove events that killed runs left behind."),
    },
)
