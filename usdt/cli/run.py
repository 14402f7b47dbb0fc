"""``usdt run``: run a program in bpftrace's language."""

from __future__ import annotations

from typing import Any

import click

from usdt.engine.cli.programs.run import run_options, run_program

__all__ = ("run",)


@click.command(context_settings={"ignore_unknown_options": False})
@run_options
def run(**values: Any) -> int:
    r"""Run a program in bpftrace's language.

    \b
    usdt run script.bt
    usdt run -e 'uprobe:libc:malloc { @[comm] = count(); }'
    """
    return run_program(values)
