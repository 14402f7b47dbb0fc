"""``usdt schema``: the JSON Schema of what the commands print with ``--json``."""

from __future__ import annotations

import sys
from importlib.resources import files

import click

__all__ = ("schema",)


@click.command("schema")
def schema() -> None:
    """Print the JSON Schema (2020-12) of one line of JSON output, of usdt and of kprobe."""
    sys.stdout.write(files("usdt").joinpath("schema.json").read_text())
