"""A thread that copies the pages of an instance out of the kernel, to keep its buffer free."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING

from usdt.bpf.privileges import drop_capabilities
from usdt.tracefs.pages import PageLayout, read_page

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("RawRecord", "TracePipeReader")

RawRecord = tuple[int, int, memoryview]  # time in nanoseconds, CPU, bytes
_MAX_PAGES_READ = 256  # of one CPU in one pass
_BACKLOG = 64 << 20  # bytes kept by default
_COMMIT_TIME = 2_000_000  # nanoseconds after which a record that was begun is committed
_INTERVAL = 0.01  # seconds between two passes while there are records
_MAX_PAGES_TAKEN = 64  # of one CPU, merged by one take()


class _Cpu:
    def __init__(self, number: int, file: int) -> None:
        self.number = number
        self.file = file
        self.pages: deque[bytes] = deque()
        self.last = 0  # time of the last record taken
        self.incomplete = False  # the kernel may have more from before the last pass


class TracePipeReader:
    """Reads all ``per_cpu/cpuN/trace_pipe_raw`` of an instance.

    Args:
        root: mount point of tracefs.
        instance: the instance.
        backlog: bytes that are kept; more stays in the kernel, which counts what it drops.

    Attributes:
        arrived: an eventfd that is readable when there are records.
        damaged: number of pages that could not be read completely.
    """

    def __init__(self, root: Path, instance: Path, backlog: int = _BACKLOG) -> None:
        self._layout = PageLayout.parse((root / "events/header_page").read_text())
        self._cpus: list[_Cpu] = []
        self._lock = threading.Lock()
        self._last_pass = 0
        self._size = 0
        self._most = backlog
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
        """Start the thread; idempotent."""
        if not self._thread.is_alive() and not self._ending:
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until there are records, at most this long."""
        ready = select.poll()
        ready.register(self.arrived, select.POLLIN)
        if ready.poll(max(0, seconds) * 1000):
            os.eventfd_read(self.arrived)

    def stop_and_drain(self) -> None:
        """Stop the thread and read what is left."""
        self._stop()
        self._size = 0  # ignore the limit: little is left, and nothing more comes
        while self._read_pages():
            self._size = 0
        for cpu in self._cpus:
            cpu.incomplete = False

    def take(self, *, everything: bool = False) -> list[RawRecord]:
        """Return the next records, in order of time over all CPUs and calls.

        Records that are not older than the last pass are held back, because an older record of
        another CPU may still come.

        Args:
            everything: after stop_and_drain(), hold back nothing.
        """
        found: list[RawRecord] = self._waiting
        with self._lock:
            limit = self._last_pass
            taken = []
            for cpu in self._cpus:
                pages = [cpu.pages.popleft() for _ in range(min(_MAX_PAGES_TAKEN, len(cpu.pages)))]
                self._size -= sum(map(len, pages))
                taken.append((cpu, pages, bool(cpu.pages), bool(cpu.pages) or cpu.incomplete))
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
        """True if no records are left."""
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
        drop_capabilities()  # it only reads open files; they are each thread's own
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
            some = self._read_pages()
            os.eventfd_write(self.arrived, 1)
            # One more pass after the last records shows that no older ones come.
            wait = 1000 * _INTERVAL if some else None
            if some:
                pause.poll(1000 * _INTERVAL)

    def _read_pages(self) -> bool:
        # Read the pages of every CPU; return whether there were any.
        began = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - _COMMIT_TIME
        some = False
        for cpu in self._cpus:
            pages: list[bytes] = []
            incomplete = self._size > self._most
            for _ in range(0 if incomplete else _MAX_PAGES_READ):
                try:
                    data = os.read(cpu.file, self._layout.size)
                except (BlockingIOError, InterruptedError):
                    break
                if not data:
                    break
                pages.append(data)
            else:
                incomplete = True
            some = some or bool(pages)
            with self._lock:
                cpu.pages += pages
                cpu.incomplete = incomplete
                self._size += sum(map(len, pages))
        with self._lock:
            self._last_pass = began
        return some

    def _stop(self) -> None:
        self._ending = True
        if self._thread.is_alive():
            os.eventfd_write(self._end, 1)
            self._thread.join()

    def close(self) -> None:
        """Stop the thread and close the files; idempotent."""
        if self.arrived < 0:
            return
        self._stop()
        while self._cpus:
            os.close(self._cpus.pop().file)
        for number in (self.arrived, self._end):
            os.close(number)
        self.arrived = -1
