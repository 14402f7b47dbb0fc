"""The table of the ``usdt`` command: name of each command, its module, and its line of help."""

from __future__ import annotations

import click

from usdt.engine.cli.click_group import LazyGroup

__all__ = ("usdt",)


def _tracing(name: str) -> click.Command:
    from usdt.cli.tracing_help import EXAMPLES, PROBES  # noqa: PLC0415 - when the command runs
    from usdt.engine.cli.commands import tracing_command  # noqa: PLC0415

    return tracing_command(name, "usdt", EXAMPLES[name], probes=PROBES, tracefs=True)


_COMMANDS = {
    "list": ("usdt.cli.listing:list_probes", "List probes of files, libraries and processes."),
    "info": ("usdt.cli.info:info", "Show call sites, and where each argument lives."),
    "check": ("usdt.cli.check:check", "Check that probes would attach and decode."),
    "trace": (_tracing, "Print every hit."),
    "record": ("usdt.cli.record:record", "Write every hit to a file, at full speed."),
    "report": ("usdt.cli.report:report", "Decode a recording."),
    "count": (_tracing, "Count hits in the kernel."),
    "hist": (_tracing, "Show a histogram of a value, computed in the kernel."),
    "stats": (_tracing, "Show count, min, avg, max and sum of a value."),
    "latency": (_tracing, "Show a histogram of the time between two probes."),
    "heatmap": (_tracing, "Show a histogram over time."),
    "events": (
        "usdt.cli.events:events",
        "Show probes as definitions for uprobe_events of tracefs.",
    ),
    "attach": ("usdt.cli.attach:attach", "Attach a pinned BPF program to a probe."),
    "decode": ("usdt.cli.decode:decode", "Decode argument strings, for any CPU."),
    "features": ("usdt.cli.features:features", "Show what this kernel supports."),
}


# \b keeps click from filling the paragraph below it.
_HELP = """Trace USDT probes and functions of running programs.

\b
usdt list /usr/bin/python3.11
usdt trace -p PID 'python:gc__start(arg0)'
usdt trace -p PID 'postgresql:query__start(str(arg0))'
"""


@click.group(cls=LazyGroup, commands_at=_COMMANDS, help=_HELP)
@click.version_option(package_name="usdt-toolkit", prog_name="usdt")
def usdt() -> None:
    """Trace USDT probes and functions of running programs."""
