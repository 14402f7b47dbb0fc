"""The group of ``kprobe``'s commands: names, and where each is."""

from __future__ import annotations

import click

from tracing.commandline import LazyGroup

__all__ = ("kprobe",)

_COMMANDS = {
    "event": ("kprobe.cli.event:event", "The kernel's event tracer, by definitions."),
}


@click.group(cls=LazyGroup, commands_at=_COMMANDS)
@click.version_option(package_name="usdt-toolkit", prog_name="kprobe")
def kprobe() -> None:
    """Trace kernel functions, tracepoints and system calls by name and type."""
