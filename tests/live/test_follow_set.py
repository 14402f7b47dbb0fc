"""The kernel's set of followed tasks by itself, and what is told of new mappings."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import patient
from tracing_tools import until

from usdt.base.errors import TracingError
from usdt.bpf.perf.sideband import LostRecord, MmapRecord, PerfSideband
from usdt.engine.compiler.codegen.task_filter import FOLLOWED
from usdt.engine.run.options import TargetOptions
from usdt.engine.runtime.follow import FollowLosses, TaskSet
from usdt.procfs.namespaces import nested_pid_namespace
from usdt.procfs.process import parent
from usdt.targets import target_set
from usdt.targets.follow_forks import ForkFollower, descendants
from usdt.targets.target_set import TargetSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.targets.traced_files import TracedFile


@pytest.fixture
def followed() -> Iterator[TaskSet]:
    """A set that nobody is in."""
    with TaskSet(_namespace()) as made:
        yield made


def _namespace() -> tuple[int, int] | None:
    return nested_pid_namespace()


def size(followed: TaskSet) -> int:
    """How many are in it."""
    return len(list(followed.maps[FOLLOWED].keys()))


@contextlib.contextmanager
def shells(number: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many children of ours that wait for a line."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(number):
            child = subprocess.Popen(["sh", "-c", "read line; true"], stdin=subprocess.PIPE)
            stack.callback(child.wait, 20)
            assert child.stdin is not None
            stack.callback(child.stdin.close)
            found.append(child)
        yield found


def test_children_come_and_go(followed: TaskSet) -> None:
    assert followed.empty
    followed.add(os.getpid())
    with shells(3):
        assert size(followed) == 1 + 3
    until(lambda: size(followed) == 1, "children to leave")
    followed.remove(os.getpid())
    assert followed.empty
    followed.remove(os.getpid())
    with shells(1):
        assert followed.empty, "a stranger's child"
    assert followed.losses() == FollowLosses(0, 0, 0)


def test_who_has_ended_counts_until_nobody_waits_for_it(followed: TaskSet) -> None:
    followed.add(os.getpid())
    with subprocess.Popen(["true"]) as child:
        until(lambda: _state(child.pid) == "Z", "the child to end")
        assert size(followed) == 1 + 1
        followed.remove(os.getpid())
        assert followed.empty
    until(lambda: size(followed) == 0, "the child to leave")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_threads_are_in_it_by_themselves(followed: TaskSet) -> None:
    followed.add(os.getpid())
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert size(followed) == 1 + 4
    done.set()
    for thread in threads:
        thread.join()
    until(lambda: size(followed) == 1, "threads to leave")


def test_what_found_no_room_is_counted() -> None:
    with TaskSet(_namespace(), max_tasks=3) as followed:
        followed.add(os.getpid())
        with shells(5):
            assert size(followed) == 3
            assert followed.losses().full == 3
        until(lambda: size(followed) == 1, "children to leave")
        with shells(2):
            assert size(followed) == 3, "room that is free again is used"
        assert followed.losses().full == 3


def test_what_found_no_room_is_said() -> None:
    script = "read go; sleep 60 & sleep 60 & sleep 60 & echo; kill $!; wait"
    with subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with ForkFollower([child.pid], _namespace(), max_tasks=2) as family:
            assert list(family.loss_notes()) == []
            child.stdin.write(b"\n")
            child.stdin.flush()
            child.stdout.readline()
            (complaint,) = family.loss_notes()
        os.killpg(child.pid, signal.SIGKILL)
    assert "full: 2 children were not traced, nor their own" in complaint


def test_more_processes_than_there_is_room_for_are_refused() -> None:
    with TaskSet(_namespace(), max_tasks=2) as followed:
        followed.add(1)
        followed.add(2)
        with pytest.raises(TracingError, match="more than 2 processes and threads to follow"):
            followed.add(3)


def test_it_stays_right_while_tasks_come_and_go_by_the_thousand(followed: TaskSet) -> None:
    followed.add(os.getpid())
    script = "i=0; while [ $i -lt 500 ]; do (:); i=$((i+1)); done"
    others = [subprocess.Popen(["sh", "-c", script]) for _ in range(2)]
    followed.remove(os.getpid())
    strangers = [subprocess.Popen(["sh", "-c", script]) for _ in range(2)]
    for child in (*others, *strangers):
        assert child.wait(patient(100)) == 0
    until(lambda: followed.empty, "everybody to leave")
    assert followed.losses().missed == 0


# ---------------------------------------------------------------- who is there at the start


def test_descendants_are_found_by_their_parents() -> None:
    script = "sh -c 'sh -c \"echo; read line\"; true'; true"
    with subprocess.Popen(
        ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = list(descendants([child.pid]))
        assert [parent(pid) for pid in found] == [child.pid, found[0]]
        assert set(found) < set(descendants([os.getpid()]))
        with ForkFollower([child.pid], _namespace()) as family:
            assert family.pids == (child.pid, *found)


def test_the_tracer_itself_is_left_out() -> None:
    assert os.getpid() in descendants([os.getppid()])
    with ForkFollower([os.getppid()], _namespace()) as family:
        assert os.getpid() not in family.pids


# ---------------------------------------------------------------- new mappings


def test_mappings_of_anybody_are_told(tmp_path: Path) -> None:
    program = Path(shutil.copy("/bin/true", tmp_path / "a program"))
    with PerfSideband() as events:
        list(events.take())
        subprocess.run([program], check=True)
        poller = select.poll()
        for number in events.descriptors:
            poller.register(number, select.POLLIN)
        assert poller.poll(10_000)
        found = [event for event in events.take() if isinstance(event, MmapRecord)]
        own = [event for event in found if event.path == bytes(program)]
        assert own
        assert own[0].inode == program.stat().st_ino
        assert own[0].pid not in (0, os.getpid())
        with program.open("rb") as file:
            flags = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_EXEC}
            mmap.mmap(file.fileno(), 4096, **flags).close()
        mine = [e for e in events.take() if isinstance(e, MmapRecord) and e.pid == os.getpid()]
        assert [event.path for event in mine] == [bytes(program)]


def test_executable_memory_without_a_file_is_no_new_file() -> None:
    flags = {
        "flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        "prot": mmap.PROT_READ | mmap.PROT_EXEC,
    }
    with PerfSideband() as sideband, ForkFollower([os.getppid()], _namespace()) as family:
        mmap.mmap(-1, 4096, **flags).close()
        mine = [record for record in sideband.take() if getattr(record, "pid", 0) == os.getpid()]
        assert 0 in [record.inode for record in mine]
        assert not [new for new in family.fresh() if new and not new.identity[1]]


# Maps a file more often than is reported in one go.
_MAPS = (
    "import mmap, sys; file = open(sys.argv[1], 'rb');"
    "[mmap.mmap(file.fileno(), 4096, flags=2, prot=5).close() for _ in range(3000)]"
)


def test_lost_reports_ask_for_one_scan_of_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[float] = []

    def scan() -> Iterator[TracedFile]:
        scans.append(time.monotonic())
        time.sleep(0.1)
        yield from ()

    path = tmp_path / ("a long name" * 20)
    path.write_bytes(bytes(4096))
    words = [sys.executable, "-c", _MAPS, path]
    monkeypatch.setattr(target_set, "_mapped_anywhere", scan)
    with TargetSet(TargetOptions(pids=(os.getppid(),), follow=True), None, []) as targets:

        def scanned() -> bool:
            subprocess.run(words, check=True)
            targets.new_files()
            return len(scans) > 3

        until(scanned, "scans for what is lost")
    assert min(after - before for before, after in itertools.pairwise(scans)) > 0.4


def test_a_buffer_that_overflows_says_so(tmp_path: Path) -> None:
    path = tmp_path / ("a long name" * 20)
    path.write_bytes(bytes(4096))
    with PerfSideband() as events:
        subprocess.run([sys.executable, "-c", _MAPS, path], check=True)
        found = list(events.take())
        # What was lost is said as soon as something finds room again.
        subprocess.run([sys.executable, "-c", _MAPS, path], check=True)
        found += events.take()
    assert sum(event.count for event in found if isinstance(event, LostRecord)) > 0
    assert [e for e in found if isinstance(e, MmapRecord) and e.path == bytes(path)]
