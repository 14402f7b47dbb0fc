"""``top``: the command, for both groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from usdt.base.errors import TracingError
from usdt.bpf.capabilities import missing_capabilities, privilege_hint
from usdt.engine.cli.aggregate_options import interval_option
from usdt.engine.cli.click_group import combined
from usdt.engine.cli.target_options import process_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("top_command",)

_ORDERS = ["rate", "total", "p99", "name"]

_options = combined(
    process_option,
    click.option("-a", "--all", "all_processes", is_flag=True, help="Trace all processes."),
    click.option("-f", "--follow", is_flag=True, help="Also trace children of -p."),
    interval_option("Time between two readings.", default=1.0),
    click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="Stop after N tables."),
    click.option("-b", "--batch", is_flag=True, help="Print one table below the other."),
    click.option("--plain", is_flag=True, help="Draw the table without keys."),
    click.option("--latency", is_flag=True, help="Measure times of pairs and of calls as well."),
    click.option("--sort", type=click.Choice(_ORDERS), default="rate", help="What comes first."),
    click.option("--filter", "wanted", metavar="TEXT", default="", help="Show these names only."),
)


def top_command(
    default: str, text: str, show: Callable[[Sequence[str], dict[str, Any]], int]
) -> click.Command:
    """Return the command.

    Args:
        default: the probe, if none is given.
        text: its help.
        show: shows the probes, with the values of the options; returns the exit code.
    """

    def run(**values: Any) -> int:
        if values["pids"] and values["all_processes"]:
            raise click.UsageError("-p and -a exclude one another")
        if missing_capabilities():
            raise TracingError(f"tracing is not permitted: {privilege_hint()}")
        return show(values["probes"] or (default,), values)

    probes = click.argument("probes", metavar="[PROBE]...", nargs=-1)
    return click.command("top", help=text)(probes(_options(run)))
