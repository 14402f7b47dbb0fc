"""``kprobe event``: the kernel's event tracer, by definitions of probe events."""

from __future__ import annotations

from tracing.commandline import LazyGroup

__all__ = ("event",)

event = LazyGroup(
    "event",
    help="The kernel's event tracer: definitions of kprobe and uprobe events.",
    commands_at={
        "check": ("kprobe.cli.eventcheck:check", "Whether a kernel would take a definition."),
    },
)
