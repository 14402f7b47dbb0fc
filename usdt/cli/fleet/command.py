"""``usdt fleet``: run the same command on many machines, and show one answer."""

from __future__ import annotations

from typing import Any

import click

from usdt.engine.cli.click_group import Seconds
from usdt.engine.cli.options import output_options
from usdt.engine.output.parquet import is_parquet

__all__ = ("fleet",)

# \b keeps click from filling the paragraphs below it.
_HELP = """Run a command on many machines, and add up their results.

The machines need Python 3.11 and nothing else: they receive the toolkit, and keep it in a cache.

\b
usdt fleet --nodes 'web[1-400]' -- count -a 'postgresql:query__start' -d 10
usdt fleet --nodes @db --by host -- latency -a mysql:query__start mysql:query__done -d 10
usdt fleet --nodes 'web[1-3]' -- kprobe count 'vfs_read' --by comm -d 5
usdt fleet --nodes 'web[1-400]' -- list /usr/sbin/nginx
usdt fleet --nodes 'web[1-400]' --clean
"""


@click.command("fleet", help=_HELP)
@click.option("--nodes", metavar="SET", required=True, help="Machines: web[1-400],db1 or @group.")
@click.option(
    "--via",
    default="ssh",
    show_default=True,
    metavar="TRANSPORT",
    help="ssh, clush, kubectl, srun, or a command with {node}.",
)
@click.option("--sudo", is_flag=True, help="Run as root on each machine, by sudo -n.")
@click.option(
    "--fanout", type=click.IntRange(1), default=512, show_default=True, help="Machines at a time."
)
@click.option(
    "--timeout",
    type=Seconds(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="DURATION",
    help="Give up on machines that do not start, or end, in this time.",
)
@click.option(
    "--silence",
    type=Seconds(1),
    default=30.0,
    show_default=True,
    metavar="DURATION",
    help="Take a connection for lost if nothing comes through for this time, at both ends.",
)
@click.option(
    "--update",
    type=Seconds(0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="DURATION",
    help="How often machines send the results that they have.",
)
@click.option("--by", type=click.Choice(["host"]), help="Keep the machines apart.")
@click.option("--clean", is_flag=True, help="Remove the toolkit from the caches of the machines.")
@click.option("-v", "--verbose", is_flag=True, help="Show what each machine says.")
@output_options
@click.argument("command", nargs=-1, metavar="-- COMMAND...")
def fleet(command: tuple[str, ...], **values: Any) -> int:
    """Run a command on many machines."""
    from usdt.cli.fleet.far_command import Answer, FarCommand, parsed  # noqa: PLC0415 - not for --help
    from usdt.cli.fleet.run import Run, output_file  # noqa: PLC0415 - not for --help
    from usdt.fleet.nodes import expanded  # noqa: PLC0415 - not for --help

    if values["clean"] and command:
        raise click.UsageError("--clean takes no command")
    parquet = is_parquet(values["output"])
    values["as_json"] = values["as_json"] or parquet
    far = FarCommand()
    if not values["clean"]:
        far = parsed(command, values["update"], as_json=values["as_json"])
    if parquet and (values["clean"] or far.answer is Answer.TEXT):
        raise click.UsageError(f"-o {values['output']}: Parquet is for events and results")
    if (values["output"] or "").lower().endswith((".svg", ".html")):
        raise click.UsageError(
            f"-o {values['output']}: a fleet draws no pictures; save a stream with --json -o FILE, "
            "and draw it with: usdt flame FILE, or usdt report FILE --html PAGE"
        )
    if values["by"] and far.answer is not Answer.RESULTS:
        raise click.UsageError("--by host is for results; events carry the machine anyway")
    names = expanded(values["nodes"])
    with output_file(values["output"]) as output:
        return Run(values, far, names, output).run()
