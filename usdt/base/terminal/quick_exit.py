"""The end of a command without the last step of Python's end.

Python takes all modules apart before it ends, whose memory the kernel frees anyway: a twentieth of
a short run.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

__all__ = ("run_and_leave",)


def run_and_leave(main: Callable[[], NoReturn]) -> NoReturn:
    """Run a command to its SystemExit; have the process end then as soon as nothing is left to do.

    Python awaits threads and calls what was registered with atexit before. It ends the process
    itself after any other exception, and where it has something to say about the exit code.
    """
    codes: list[object] = []
    # Python calls the first one last. Where others came before, as that of a measurement of
    # coverage, they are not to be missed.
    number = getattr(atexit, "_ncallbacks", None)  # of CPython
    if number is not None and not number():
        atexit.register(_leave, codes)
    try:
        main()
    except SystemExit as end:
        codes.append(end.code)
        raise


def _leave(codes: list[object]) -> None:
    for code in codes:
        if code is None or isinstance(code, int):
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except (OSError, ValueError):  # Python tries it again, and reports it
                return
            os._exit((code or 0) & 0xFF)
