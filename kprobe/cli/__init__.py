"""The ``kprobe`` command. Imports nothing by itself: see :func:`main`."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ("main",)


def main() -> NoReturn:
    """Entry point of the console script.

    What it imports takes most of the start, and ^C meanwhile must not show a traceback.
    """
    try:
        from kprobe.cli.group import kprobe  # noqa: PLC0415
        from tracing.commandline import run  # noqa: PLC0415

        run(kprobe, "kprobe")
    except KeyboardInterrupt:
        sys.exit(130)
