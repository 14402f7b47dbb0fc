"""The table of the ``kprobe`` command: name of each command, its module, and its line of help."""

from __future__ import annotations

import click

from usdt.engine.cli.click_group import LazyGroup

__all__ = ("kprobe",)


def _tracing(name: str) -> click.Command:
    from kprobe.cli.tracing_help import EXAMPLES, PROBES  # noqa: PLC0415 - when the command runs
    from usdt.engine.cli.commands import tracing_command  # noqa: PLC0415

    return tracing_command(name, "kprobe", EXAMPLES[name], probes=PROBES)


_COMMANDS = {
    "trace": (_tracing, "Print every hit."),
    "count": (_tracing, "Count hits in the kernel."),
    "hist": (_tracing, "Show a histogram of a value, computed in the kernel."),
    "stats": (_tracing, "Show count, min, avg, max and sum of a value."),
    "latency": (_tracing, "Show a histogram of the time between two probes."),
    "heatmap": (_tracing, "Show a histogram over time."),
    "list": ("kprobe.cli.listing:list_functions", "List functions, tracepoints and system calls."),
    "info": ("kprobe.cli.info:info", "Show C prototypes, fields of tracepoints, and types."),
    "dump": ("kprobe.cli.dump:dump", "Show typed data as text."),
    "btf": ("kprobe.cli.btf:btf", "Print all types: raw as bpftool does, as C, or as JSON."),
    "event": ("kprobe.cli.event:event", "Define and watch events of the kernel's event tracer."),
}


class _Group(LazyGroup):
    # ``kprobe 'PROBE(ITEM, …)'`` means ``kprobe trace 'PROBE(ITEM, …)'``.
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and set(":(") & set(args[0]):
            args = ["trace", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, commands_at=_COMMANDS)
@click.version_option(package_name="usdt-toolkit", prog_name="kprobe")
def kprobe() -> None:
    """Trace kernel functions, tracepoints and system calls by name and type."""
