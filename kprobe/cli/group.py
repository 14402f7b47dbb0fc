"""The group of ``kprobe``'s commands: names, and where each is."""

from __future__ import annotations

import click

from usdt.engine.cli.click_group import LazyGroup

__all__ = ("kprobe",)

_COMMANDS = {
    "trace": ("kprobe.cli.trace:trace", "Print every hit."),
    "count": ("kprobe.cli.count:count", "Count hits in the kernel."),
    "hist": ("kprobe.cli.hist:hist", "Histograms of a value, made in the kernel."),
    "stats": ("kprobe.cli.stats:stats", "Count, least, average, greatest and sum of a value."),
    "latency": ("kprobe.cli.latency:latency", "Times from one probe to another."),
    "heatmap": ("kprobe.cli.heatmap:heatmap", "Histograms over time."),
    "list": ("kprobe.cli.listing:list_functions", "What can be traced."),
    "info": ("kprobe.cli.info:info", "Prototypes of functions, fields of tracepoints, types."),
    "dump": ("kprobe.cli.dump:dump", "Typed data as text."),
    "btf": ("kprobe.cli.btf:btf", "All types, as bpftool prints them, as C, as JSON."),
    "event": ("kprobe.cli.event:event", "The kernel's event tracer, by definitions."),
}


class _Group(LazyGroup):
    # ``kprobe 'PROBE(ITEM, …)'`` is short for ``kprobe trace``.
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
