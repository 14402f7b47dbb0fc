"""What the kernel reports of processes, in whatever order the reports of its CPUs are read."""

from __future__ import annotations

import itertools
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from skips import requires_root

from usdt.bpf.perf.sideband import ExecRecord, ForkRecord, MmapRecord
from usdt.elf.debug_files import DEBUG_ROOT
from usdt.symbolize.file_cache import FileCache
from usdt.symbolize.mmap_tracker import MmapTracker
from usdt.symbolize.sources.build_id_files import BuildIdFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.bpf.perf.sideband import Record

CHILD, PARENT = 1 << 30, os.getpid()  # no process has the first number


@pytest.fixture
def tracker() -> Iterator[MmapTracker]:
    cache = FileCache(DEBUG_ROOT, BuildIdFiles())
    made = MmapTracker(cache.mapped)
    yield made
    made.close()
    cache.close()


def mapped(time: int, path: str, *, pid: int = CHILD, start: int = 0x1000) -> MmapRecord:
    return MmapRecord(time, pid, start, start + 0x1000, 0, (8, 1), 99, 0, path.encode())


def paths(tracker: MmapTracker, pid: int = CHILD) -> list[str]:
    return [mapping.path for mapping, _ in tracker.mappings(pid)]


def test_a_fork_that_is_read_late_keeps_the_mappings_after_it(tracker: MmapTracker) -> None:
    tracker.note([mapped(3, "/earlier process"), mapped(12, "/a"), mapped(13, "/b", start=0x5000)])
    tracker.note([ForkRecord(10, CHILD, PARENT)])
    assert paths(tracker) == ["/a", "/b"]
    assert tracker.ancestors(CHILD) == [PARENT]
    assert tracker.forked == [(CHILD, PARENT)]


def test_an_exec_that_is_read_late_is_one_of_the_program_that_runs(tracker: MmapTracker) -> None:
    tracker.note([mapped(12, "/program")])
    tracker.mapped.clear()  # as update() does
    assert tracker.note([ExecRecord(11, CHILD)]) == {CHILD}
    assert tracker.note([ForkRecord(10, CHILD, PARENT)]) == set()
    assert paths(tracker) == ["/program"]
    assert tracker.mapped == {CHILD}  # what was known of its files is of the program before
    assert tracker.forked == []  # it shares nothing with its parent any more
    assert tracker.ancestors(CHILD) == []


def test_a_process_with_the_number_of_an_earlier_one_has_only_its_own(tracker: MmapTracker) -> None:
    tracker.note([ForkRecord(1, CHILD, PARENT), ExecRecord(2, CHILD), mapped(3, "/first")])
    tracker.note([ForkRecord(10, CHILD, PARENT)])
    assert paths(tracker) == []
    assert tracker.ancestors(CHILD) == [PARENT]
    assert tracker.knows(CHILD)
    late: list[Record] = [mapped(4, "/first too"), ExecRecord(5, CHILD), ForkRecord(6, CHILD, 1)]
    assert tracker.note(late) == set()
    assert paths(tracker) == []
    assert tracker.ancestors(CHILD) == [PARENT]


def test_the_order_of_reading_does_not_matter(tracker: MmapTracker) -> None:
    for number, order in enumerate(itertools.permutations(range(5))):
        pid = CHILD + number
        records: list[Record] = [
            mapped(3, "/earlier process", pid=pid),
            ForkRecord(10, pid, PARENT),
            ExecRecord(11, pid),
            mapped(12, "/program", pid=pid),
            mapped(13, "/over it", pid=pid),
        ]
        for at in order:
            tracker.note([records[at]])
        assert paths(tracker, pid) == ["/program", "/over it"], order
        assert tracker.ancestors(pid) == [], order
        found = tracker.find(pid, 0x1800)
        assert found is not None
        assert found[0].path == "/over it", order


@requires_root
def test_a_process_that_has_ended_keeps_its_mappings(tracker: MmapTracker) -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait(20)
    tracker.update()  # its last report says that it ended
    tracker.update()
    assert os.path.realpath("/bin/true") in paths(tracker, process.pid)
    assert tracker.ancestors(process.pid) == []
