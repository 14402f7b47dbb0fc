"""A thread that only copies pages of an instance out of the kernel, whatever else goes on."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING

from usdt.tracefs.pages import PageLayout, read_page

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("RawRecord", "TracePipeReader")

RawRecord = tuple[int, int, memoryview]  # time in nanoseconds, CPU, bytes
_PAGES = 256  # of one CPU in one go
_BACKLOG = 256 << 20  # bytes kept; what is more stays with the kernel, which counts what it drops
_COMMITTED = 2_000_000  # nanoseconds after which a record that was begun is surely written
_PACE = 0.01  # seconds between two sweeps while there is something
_TAKEN = 64  # pages of one CPU that are merged in one go


class _Cpu:
    def __init__(self, number: int, file: int) -> None:
        self.number = number
        self.file = file
        self.pages: deque[bytes] = deque()
        self.last = 0  # time of the last record taken
        self.cut = False  # whether the kernel may have more from before the last sweep


class TracePipeReader:
    """Reads all ``per_cpu/cpuN/trace_pipe_raw`` of an instance.

    Attributes:
        arrived: an eventfd that is readable when there is something to take.
        damaged: pages that could not be read to their end.
    """

    def __init__(self, root: Path, instance: Path) -> None:
        self._layout = PageLayout.parse((root / "events/header_page").read_text())
        self._cpus: list[_Cpu] = []
        self._lock = threading.Lock()
        self._swept = 0
        self._size = 0
        self._waiting: list[RawRecord] = []
        self._ending = False
        self.damaged = 0
        self.arrived = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._end = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="usdt-pages", daemon=True)
        try:
            for path in sorted((instance / "per_cpu").glob("cpu*")):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                file = os.open(path / "trace_pipe_raw", flags)
                self._cpus.append(_Cpu(int(path.name[3:]), file))
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Begin to read; again is fine."""
        if not self._thread.is_alive() and not self._ending:
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until there is something to take, at most so long."""
        ready = select.poll()
        ready.register(self.arrived, select.POLLIN)
        if ready.poll(max(0, seconds) * 1000):
            os.eventfd_read(self.arrived)

    def finish(self) -> None:
        """Read what is left, and end."""
        self._stop()
        self._size = 0  # what is there is little, and nothing more comes
        while self._sweep():
            self._size = 0
        for cpu in self._cpus:
            cpu.cut = False

    def take(self, *, everything: bool = False) -> list[RawRecord]:
        """What there is, in order of time over all CPUs and calls.

        What is younger than a moment before the last reading waits: an older record of another CPU
        may still come. ``everything``, after finish(), ends that.
        """
        found: list[RawRecord] = self._waiting
        with self._lock:
            limit = self._swept
            taken = []
            for cpu in self._cpus:
                pages = [cpu.pages.popleft() for _ in range(min(_TAKEN, len(cpu.pages)))]
                self._size -= sum(map(len, pages))
                taken.append((cpu, pages, bool(cpu.pages), bool(cpu.pages) or cpu.cut))
        if everything:
            limit = 1 << 64
        again = False
        for cpu, pages, more, rest in taken:
            self._unpack(cpu, pages, found)
            again = again or more
            if rest:
                limit = min(limit, cpu.last)
        found.sort(key=itemgetter(0))
        cut = len(found)
        while cut and found[cut - 1][0] > limit:
            cut -= 1
        self._waiting = found[cut:]
        if again and not self._ending:
            os.eventfd_write(self.arrived, 1)
        return found[:cut]

    @property
    def empty(self) -> bool:
        """Whether nothing is left to take."""
        with self._lock:
            return not self._waiting and not any(cpu.pages for cpu in self._cpus)

    def _unpack(self, cpu: _Cpu, pages: list[bytes], found: list[RawRecord]) -> None:
        for data in pages:
            page = read_page(data, self._layout)
            self.damaged += page.damaged
            found += [(when, cpu.number, record) for when, record in page.events]
            if page.events:
                cpu.last = page.events[-1][0]

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._end, select.POLLIN)
        for cpu in self._cpus:
            poller.register(cpu.file, select.POLLIN)
        pause = select.poll()
        pause.register(self._end, select.POLLIN)
        wait: float | None = None
        while not self._ending:
            poller.poll(wait)
            if self._ending:
                return
            some = self._sweep()
            os.eventfd_write(self.arrived, 1)
            # Once more after the last: only then is it known that nothing older comes.
            wait = 1000 * _PACE if some else None
            if some:
                pause.poll(1000 * _PACE)

    def _sweep(self) -> bool:
        # Read what every CPU has; whether there was anything.
        began = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - _COMMITTED
        some = False
        for cpu in self._cpus:
            pages: list[bytes] = []
            cut = self._size > _BACKLOG
            for _ in range(0 if cut else _PAGES):
                try:
                    data = os.read(cpu.file, self._layout.size)
                except (BlockingIOError, InterruptedError):
                    break
                if not data:
                    break
                pages.append(data)
            else:
                cut = True
            some = some or bool(pages)
            with self._lock:
                cpu.pages += pages
                cpu.cut = cut
                self._size += sum(map(len, pages))
        with self._lock:
            self._swept = began
        return some

    def _stop(self) -> None:
        self._ending = True
        if self._thread.is_alive():
            os.eventfd_write(self._end, 1)
            self._thread.join()

    def close(self) -> None:
        """End, and close the files; again is fine."""
        if self.arrived < 0:
            return
        self._stop()
        while self._cpus:
            os.close(self._cpus.pop().file)
        for number in (self.arrived, self._end):
            os.close(number)
        self.arrived = -1
