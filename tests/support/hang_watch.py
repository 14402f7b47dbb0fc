"""Where a test stands that takes too long: the stacks of all threads, on standard error.

pytest's own watch starts a thread for each test and waits for its end, which is a fifth of what
most of the tests take. This one is set anew only now and then: a test is shown when it has taken
once to one and a half times as long as is allowed.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time

__all__ = ("HangWatch",)


class HangWatch:
    """Tells stacks when no test has begun for a while.

    Args:
        seconds: how long a test may take; 0 for any time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._renewed = -seconds
        # Tests have another in its place.
        self._output = os.dup(sys.stderr.fileno()) if seconds else -1

    def begin(self) -> None:
        """A test begins."""
        now = time.monotonic()
        if self._seconds and now - self._renewed >= self._seconds / 2:
            faulthandler.dump_traceback_later(self._seconds * 1.5, file=self._output)
            self._renewed = now

    def pause(self) -> None:
        """No test is expected to begin."""
        if self._seconds:
            faulthandler.cancel_dump_traceback_later()
            self._renewed = -self._seconds

    def close(self) -> None:
        """Watch no more."""
        self.pause()
        if self._seconds:
            self._seconds = 0
            os.close(self._output)
