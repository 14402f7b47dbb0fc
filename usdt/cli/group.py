"""The group of all subcommands: each is a module of its own, imported when it is run."""

from __future__ import annotations

import click

from usdt.engine.cli.click_group import LazyGroup

__all__ = ("usdt",)

_COMMANDS = {
    "list": ("usdt.cli.listing:list_probes", "Probes of files, libraries and processes."),
    "info": ("usdt.cli.info:info", "Each call site, and where each argument lives."),
    "check": ("usdt.cli.check:check", "Would each probe attach and decode? Exit 1 if not."),
    "trace": ("usdt.cli.trace:trace", "Print every hit."),
    "record": ("usdt.cli.record:record", "Write every hit to a file, at full speed."),
    "report": ("usdt.cli.report:report", "Decode a recording."),
    "count": ("usdt.cli.count:count", "Count hits in the kernel."),
    "hist": ("usdt.cli.hist:hist", "A histogram, made in the kernel."),
    "stats": ("usdt.cli.stats:stats", "Count, min, avg, max and sum, in the kernel."),
    "latency": ("usdt.cli.latency:latency", "Times between two probes, as a histogram."),
    "heatmap": ("usdt.cli.heatmap:heatmap", "The same over time."),
    "events": ("usdt.cli.events:events", "Probes as definitions for tracefs's uprobe_events."),
    "attach": ("usdt.cli.attach:attach", "Attach somebody else's pinned BPF program."),
    "decode": ("usdt.cli.decode:decode", "What an argument string means, for any CPU."),
    "features": ("usdt.cli.features:features", "What this kernel offers, which path is used."),
}


# \b keeps click from filling the paragraph below it.
_HELP = """See what a program with USDT probes does, at once, on a production machine.

\b
usdt list /usr/bin/python3.11
usdt trace -p PID 'python:gc__start(arg0)'
usdt trace -p PID 'postgresql:query__start(str(arg0))'
"""


@click.group(cls=LazyGroup, commands_at=_COMMANDS, help=_HELP)
@click.version_option(package_name="usdt-toolkit", prog_name="usdt")
def usdt() -> None:
    """See what a program with USDT probes does."""
