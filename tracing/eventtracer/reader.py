"""Records of an instance as they come: raw pages of every CPU, merged by time."""

from __future__ import annotations

import errno
import heapq
import os
import re
import select
import time
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Self

from tracing.eventtracer.pages import PageLayout, read_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("RawReader", "Record")

Record = tuple[int, int, memoryview]  # time in nanoseconds, CPU, bytes
_PAGES = 256  # of one CPU in one go
_COMMITTED = 2_000_000  # nanoseconds after which a record that was begun is surely written


class RawReader:
    """Reads ``per_cpu/cpuN/trace_pipe_raw`` of an instance; a context manager.

    Attributes:
        lost: records that were overwritten before they were read.
        uncounted: whether there were some of which the kernel does not know how many.
        damaged: pages that could not be read to their end.
    """

    def __init__(self, root: Path, instance: Path) -> None:
        self._layout = PageLayout.parse((root / "events/header_page").read_text())
        self._files: dict[int, int] = {}
        self._poller = select.poll()
        self.lost = 0
        self.uncounted = False
        self.damaged = 0
        self._waiting: list[Record] = []
        self._more = False  # whether the CPU read last has more
        try:
            for path in sorted((instance / "per_cpu").iterdir()):
                match = re.fullmatch(r"cpu(\d+)", path.name)
                if match is None:
                    continue
                number = os.open(
                    path / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                )
                self._files[number] = int(match[1])
                self._poller.register(number, select.POLLIN)
        except BaseException:
            self.close()
            raise

    def wait(self, seconds: float) -> None:
        """Wait until there is something to read, at most so long."""
        self._poller.poll(max(0, seconds) * 1000)

    def read(self, *, everything: bool = False) -> list[Record]:
        """What there is, of all CPUs, in order of time, over all calls.

        What is younger than a moment before this call waits for the next one: an older record of
        another CPU may still come. ``everything`` ends that, for the last call.
        """
        limit = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - _COMMITTED
        parts = [self._waiting]
        for number, cpu in self._files.items():
            found = list(self._of_cpu(number, cpu))
            if self._more and found:
                limit = min(limit, found[-1][0])
            parts.append(found)
        merged = list(heapq.merge(*parts, key=itemgetter(0)))
        cut = len(merged) if everything else bisect_right(merged, limit, key=itemgetter(0))
        self._waiting = merged[cut:]
        return merged[:cut]

    def _of_cpu(self, number: int, cpu: int) -> Iterator[Record]:
        self._more = False
        for _ in range(_PAGES):
            try:
                data = os.read(number, self._layout.size)
            except BlockingIOError:
                return
            except OSError as err:
                if err.errno in (errno.EAGAIN, errno.EINTR):
                    return
                raise
            if not data:
                return
            page = read_page(data, self._layout)
            self.lost += max(0, page.lost)
            self.uncounted |= page.lost < 0
            self.damaged += page.damaged
            for when, record in page.events:
                yield when, cpu, record
        self._more = True

    def close(self) -> None:
        """Close the files; again is fine."""
        while self._files:
            os.close(self._files.popitem()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
