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
        words = sys.argv[1:]
        if words[:1] == ["info"] and not any(word[:1] == "-" or ":" in word for word in words):
            from kprobe.functions.symbols import start_loading  # noqa: PLC0415

            start_loading()  # the kernel's work, which goes on beside what is imported here
        from kprobe.cli.group import kprobe  # noqa: PLC0415
        from usdt.engine.cli.click_group import run  # noqa: PLC0415

        run(kprobe, "kprobe")
    except KeyboardInterrupt:
        sys.exit(130)
