"""``usdt export``: probes to metrics for good."""

from __future__ import annotations

import click

from usdt.base.errors import TracingError
from usdt.bpf.capabilities import missing_capabilities, privilege_hint
from usdt.engine.cli.click_group import plural, say
from usdt.export.config import load_config
from usdt.export.endpoints import parse_listen

__all__ = ("export",)

# \b keeps click from filling the paragraphs below it.
_HELP = """Export probes as metrics for Prometheus, until ^C.

\b
[[metric]]
name = "queries"
help = "Queries that were started"
type = "counter"
probe = "postgresql:query__start"
program = "postgres"

\b
usdt export CONFIG.toml
usdt export CONFIG.toml --check
curl http://127.0.0.1:9435/metrics

SIGHUP reads the file again. Metrics that it does not change keep their values.
"""


@click.command("export", help=_HELP)
@click.argument("config", metavar="CONFIG.toml")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Answer here, instead of where the file says; default 127.0.0.1:9435.",
)
@click.option("--check", is_flag=True, help="Check the file, and attach nothing.")
def export(config: str, listen: str | None, *, check: bool) -> None:
    """Export metrics until ^C."""
    read = load_config(config)
    endpoint = read.listen if listen is None else parse_listen(listen)
    if check:
        click.echo(
            f"{config}: {plural(len(read.metrics), 'metric')},"
            f" {plural(len(read.spans), 'span')}, no mistakes found"
        )
        return
    if missing_capabilities():
        raise TracingError(f"tracing is not permitted: {privilege_hint()}")
    from usdt.export.exporter import run_exporter  # noqa: PLC0415 - --check needs no engine

    run_exporter(config, read, endpoint, say)
