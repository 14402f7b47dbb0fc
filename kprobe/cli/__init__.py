"""The ``kprobe`` command: one table of commands in ``group``, one module for most commands.

Importing this package imports nothing else: see :func:`main`.
"""

from __future__ import annotations

import sys
from typing import NoReturn

__all__ = ("main",)


def main() -> NoReturn:
    """Run the console script.

    Imports, which take most of the start time, happen inside, so that ^C shows no traceback.
    """
    try:
        words = sys.argv[1:]
        if words[:1] == ["info"] and not any(word[:1] == "-" or ":" in word for word in words):
            from kprobe.functions.symbols import start_loading  # noqa: PLC0415

            start_loading()  # the kernel writes the symbols while this process imports modules
        from kprobe.cli.group import kprobe  # noqa: PLC0415
        from usdt.engine.cli.click_group import run  # noqa: PLC0415

        run(kprobe, "kprobe")
    except KeyboardInterrupt:
        sys.exit(130)
