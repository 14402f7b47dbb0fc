"""``kprobe event``: the kernel's event tracer, by definitions of probe events."""

from __future__ import annotations

from usdt.engine.cli.click_group import LazyGroup

__all__ = ("event",)

event = LazyGroup(
    "event",
    help="The kernel's event tracer: definitions of kprobe and uprobe events.",
    commands_at={
        "check": ("kprobe.cli.eventcheck:check", "Whether a kernel would take a definition."),
        "watch": ("kprobe.cli.eventwatch:watch", "Define events, print hits, remove them."),
        "define": ("kprobe.cli.eventdefine:define", "Define events that stay."),
        "list": ("kprobe.cli.eventlist:list_events", "Probe events there are."),
        "show": ("kprobe.cli.eventlist:show", "The fields of an event."),
        "enable": ("kprobe.cli.eventswitch:enable", "Switch events on, for everybody."),
        "disable": ("kprobe.cli.eventswitch:disable", "Switch them off."),
        "filter": ("kprobe.cli.eventswitch:set_filter", "Let only some records through."),
        "remove": ("kprobe.cli.eventdefine:remove", "Remove events."),
        "clean": ("kprobe.cli.eventdefine:clean", "Remove what killed runs left behind."),
    },
)
