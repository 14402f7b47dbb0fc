"""The ``usdt`` command. Imports nothing by itself: see :func:`main`."""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ("main",)


def main() -> NoReturn:
    """Entry point of the console script.

    What it imports takes most of the start, and ^C meanwhile must not show a traceback.
    """
    try:
        from usdt.cli.group import usdt  # noqa: PLC0415
        from usdt.engine.cli.click_group import run  # noqa: PLC0415

        run(usdt, "usdt")
    except KeyboardInterrupt:
        sys.exit(130)
