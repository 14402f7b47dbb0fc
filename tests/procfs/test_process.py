"""usdt.procfs.process and namespaces: IDs, names and ends of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import as_nobody, copied_sleep, running, sleeps, until
from skips import need_program

from usdt.base.errors import TargetError
from usdt.procfs.mapped_files import (
    executable_of,
    mapped_files,
)
from usdt.procfs.maps import read_maps
from usdt.procfs.namespaces import (
    in_initial_pid_namespace,
    namespace_pids,
    pid_namespace,
    pid_visible_to_bpf,
)
from usdt.procfs.process import (
    command_name,
    is_kernel_thread,
    open_pidfd,
    parent,
    processes_named,
    start_time,
    thread_group,
)

ABSENT = 2**22 + 1  # above PID_MAX_LIMIT, include/linux/threads.h


def test_another_users_process_is_refused_in_words() -> None:
    parent = os.getpid()
    message = as_nobody(lambda: read_maps(parent))
    assert message == (
        f"TargetError: process {parent} belongs to another user (uid 0); "
        "needs CAP_SYS_PTRACE: run as root"
    )


@pytest.mark.parametrize(
    "look",
    [
        read_maps,
        mapped_files,
        executable_of,
        command_name,
        thread_group,
        namespace_pids,
        is_kernel_thread,
        start_time,
        open_pidfd,
    ],
    ids=lambda look: look.__name__,
)
def test_a_process_that_is_not_there(look: object) -> None:
    with pytest.raises(TargetError, match=f"^no process {ABSENT}; list"):
        look(ABSENT)  # type: ignore[operator]


def test_a_thread_is_taken_for_its_process() -> None:
    ready, done = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    try:
        assert thread.native_id is not None
        found = thread_group(thread.native_id)
        assert found.pid == os.getpid()
        assert f"{thread.native_id} is a thread of process {os.getpid()}" in found.note
        assert not thread_group(os.getpid()).note
        assert {f.path for f in mapped_files(thread.native_id)} == {
            f.path for f in mapped_files(os.getpid())
        }
    finally:
        done.set()
        thread.join()


def test_the_command_name_may_hold_anything(tmp_path: Path) -> None:
    name = "a) R 1\n(b"
    with running(copied_sleep(tmp_path / name), "60", program=name) as child:
        assert command_name(child.pid) == name
        assert start_time(child.pid) > start_time(os.getpid())
        assert thread_group(child.pid).pid == child.pid


def test_a_pidfd_becomes_readable_at_the_end() -> None:
    import select

    with running("sleep", "60") as child:
        pidfd = open_pidfd(child.pid)
        assert select.select([pidfd], [], [], 0)[0] == []
        child.kill()
        assert select.select([pidfd], [], [], 10)[0] == [pidfd]
        os.close(pidfd)


@pytest.mark.root
def test_inside_a_pid_namespace_ids_are_not_those_of_the_kernel() -> None:
    need_program("unshare", "util-linux")
    script = (
        "from usdt.procfs.namespaces import *; import os;"
        "print(in_initial_pid_namespace(), pid_visible_to_bpf(os.getpid()), pid_namespace()[1])"
    )
    answer = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", script],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    ).stdout.split()  # fmt: skip
    assert answer[:2] == ["False", "True"]
    assert int(answer[2]) != pid_namespace()[1]


@pytest.mark.root
def test_a_containers_ids_are_told_outermost_first() -> None:
    need_program("unshare", "util-linux")
    with running("unshare", "--pid", "--fork", "--kill-child", "sleep", "60") as child:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        if not children.exists():
            pytest.skip("needs a kernel with CONFIG_PROC_CHILDREN")
        until(children.read_text, "unshare to fork")
        inner = int(children.read_text())
        until(lambda: sleeps(inner, "sleep"), "sleep to run")
        assert namespace_pids(inner) == (inner, 1)
        assert pid_visible_to_bpf(inner) == in_initial_pid_namespace()
        assert parent(inner) == child.pid


def test_processes_are_found_by_name(tmp_path: Path) -> None:
    program = copied_sleep(tmp_path / "a-very-long-name3.11")
    with running(str(program), "100") as one, running(str(program), "100") as two:
        until(lambda: command_name(two.pid) == command_name(one.pid) == "a-very-long-nam", "exec")
        expected = sorted([one.pid, two.pid])
        for name in (
            "a-very-long-name3.11",
            "a-very-long-name",
            "a-very-long-name3",
            "a-very-long-nam",
        ):
            assert processes_named(name) == expected, name
        with pytest.raises(TargetError) as caught:
            processes_named("a-very-long-na")
    assert str(caught.value).startswith(
        "-p a-very-long-na: no process of this name; did you mean a-very-long-nam"
    )
    with pytest.raises(TargetError, match=r"no process of this name; list them with: ps -e$"):
        processes_named("?" * 40)
