"""The ``kprobe`` command."""

from __future__ import annotations

from typing import NoReturn

import click

from tracing.commandline import LazyGroup, run

__all__ = ("kprobe", "main")

_COMMANDS: dict[str, tuple[str, str]] = {}


@click.group(cls=LazyGroup, commands_at=_COMMANDS)
@click.version_option(package_name="usdt-toolkit", prog_name="kprobe")
def kprobe() -> None:
    """Trace kernel functions by name and type.

    This version has no kernel probes yet: the command is here so that its name is taken. User
    programs are traced by the usdt command.
    """


def main() -> NoReturn:
    """Entry point of the console script."""
    run(kprobe, "kprobe")
