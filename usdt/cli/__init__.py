"""The ``usdt`` command.

``group`` has the table of commands; most commands have a module of their own. ``files`` has those
that read files and trace nothing. This package imports nothing of the toolkit at import time.
"""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False  # importing typing takes 5 ms, in which ^C would show a traceback
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ("main", "script")


def main() -> NoReturn:
    """Run the command and raise SystemExit.

    Imports, which take most of the start time, happen inside, so that ^C shows no traceback.
    """
    _collect_less_garbage()
    try:
        from usdt.base.interrupts import note_interrupts  # noqa: PLC0415

        note_interrupts()
        from usdt.base.terminal.own_modules import find_own_modules  # noqa: PLC0415

        find_own_modules()
        from usdt.base.terminal.click_import import import_click  # noqa: PLC0415

        import_click()
        from usdt.cli.group import usdt  # noqa: PLC0415
        from usdt.engine.cli.click_group import run  # noqa: PLC0415

        run(usdt, "usdt")
    except KeyboardInterrupt:
        sys.exit(130)


def script() -> NoReturn:
    """Run the console script: the command in a process of its own."""
    _collect_less_garbage()
    try:
        from usdt.base.terminal.quick_exit import run_and_leave  # noqa: PLC0415

        run_and_leave(main)
    except KeyboardInterrupt:
        sys.exit(130)


def _collect_less_garbage() -> None:
    gc.set_threshold(100_000)  # imports make many objects and hardly any garbage
