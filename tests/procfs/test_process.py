"""usdt.procfs.process: lines of /proc/PID/maps, and the files of real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import as_nobody, copied_sleep, open_folder, running, sleeps, until
from skips import need_program

from usdt.base.errors import TargetError
from usdt.procfs import process
from usdt.procfs.process import (
    Mapping,
    MapsPoller,
    command_name,
    executable_of,
    file_identity,
    mapped_files,
    parse_maps,
    processes,
    read_maps,
    thread_group,
)

LINE = b"5581d0a3e000-5581d0a43000 r-xp 00002000 fe:01 262357                     "
FIELDS: dict[str, Any] = {
    "start": 0x5581D0A3E000,
    "end": 0x5581D0A43000,
    "permissions": "r-xp",
    "offset": 0x2000,
    "device": (0xFE, 1),
    "inode": 262357,
}
ABSENT = 2**22 + 1  # above PID_MAX_LIMIT, include/linux/threads.h


@pytest.mark.parametrize(
    ("name", "path", "deleted"),
    [
        pytest.param(b"/usr/bin/cat", "/usr/bin/cat", False, id="a program"),
        pytest.param(b"/opt/a b/c  d", "/opt/a b/c  d", False, id="spaces in the name"),
        pytest.param(b"/opt/a ", "/opt/a ", False, id="a space at its end"),
        pytest.param(b"/opt/a\\012b", "/opt/a\nb", False, id="a newline, which the kernel escapes"),
        pytest.param(b"/opt/\xe9", "/opt/\udce9", False, id="bytes that are not UTF-8"),
        pytest.param(b"/usr/lib/x.so (deleted)", "/usr/lib/x.so", True, id="a deleted file"),
        pytest.param(b"/memfd:jit (deleted)", "/memfd:jit", True, id="a memfd"),
        pytest.param(b"[vdso]", "[vdso]", False, id="the kernel's own library"),
        pytest.param(
            b"[anon: a (deleted)", "[anon: a (deleted)", False, id="a name given by prctl"
        ),
        pytest.param(b"", "", False, id="anonymous memory"),
    ],
)
def test_a_line_of_maps(name: bytes, path: str, *, deleted: bool) -> None:
    expected = Mapping(**FIELDS, path=path, deleted=deleted)
    assert parse_maps(LINE + name + b"\n") == [expected]
    assert expected.executable


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"5581d0a3e000", id="one word"),
        pytest.param(b"5581d0a3e000-5581d0a43000 r-xp 00002000 fe:01", id="no inode"),
        pytest.param(LINE.replace(b"262357", b"x"), id="an inode that is no number"),
        pytest.param(LINE.replace(b"fe:01", b"fe"), id="half a device"),
        pytest.param(LINE.replace(b"r-xp", b"\xff"), id="permissions that are no ASCII"),
    ],
)
def test_a_damaged_line_is_passed_over(line: bytes) -> None:
    good = LINE + b"/usr/bin/cat"
    assert [m.path for m in parse_maps(line + b"\n" + good + b"\n")] == ["/usr/bin/cat"]


@given(st.binary(max_size=200))
def test_any_bytes_parse(data: bytes) -> None:
    assert all(isinstance(mapping, Mapping) for mapping in parse_maps(LINE + data))


def test_every_line_of_a_real_process_is_parsed() -> None:
    with running("sleep", "60", program="sleep") as child:
        data = Path(f"/proc/{child.pid}/maps").read_bytes()
    lines, mappings = data.splitlines(), parse_maps(data)
    starts = [f"{m.start:08x}-{m.end:08x} {m.permissions}".encode() for m in mappings]
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_one_file_for_each_device_and_inode() -> None:
    files = mapped_files(os.getpid())
    keys = [(file.device, file.inode) for file in files]
    assert len(keys) == len(set(keys))
    libc = next(file for file in files if Path(file.path).name.startswith("libc.so"))
    assert libc.open_path
    assert Path(libc.open_path).stat().st_ino == Path(libc.path).stat().st_ino == libc.inode


def test_data_files_are_given_only_if_asked_for(tmp_path: Path) -> None:
    import mmap

    data = tmp_path / "data"
    data.write_bytes(b"x" * 4096)
    with data.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        executable = mapped_files(os.getpid())
        all_files = mapped_files(os.getpid(), executable_only=False)
    assert str(data) in {file.path for file in all_files}
    assert str(data) not in {file.path for file in executable}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("with space", id="a space"),
        pytest.param("new\nline", id="a newline"),
        pytest.param("gone (deleted)", id="a name that looks deleted"),
        pytest.param("\udcff", id="bytes that are not UTF-8"),
    ],
)
def test_a_program_of_an_odd_name(tmp_path: Path, name: str) -> None:
    program = copied_sleep(tmp_path / name)
    with running(program, "60", program=name) as child:
        found = executable_of(child.pid)
        mapped = mapped_files(child.pid)[0]
    assert found is not None
    assert found.path == mapped.path == str(program)
    assert not found.deleted
    assert not mapped.deleted


@pytest.mark.root
def test_a_deleted_program_is_still_reached(tmp_path: Path) -> None:
    program = copied_sleep(tmp_path / "sleeper")
    original = program.read_bytes()
    with running(program, "60", program="sleeper") as child:
        program.unlink()
        found, mapped = executable_of(child.pid), mapped_files(child.pid)[0]
        assert found is not None
        for file in (found, mapped):
            assert file.open_path is not None
            assert (file.path, file.deleted) == (str(program), True)
            assert Path(file.open_path).read_bytes() == original


@pytest.mark.root
def test_a_replaced_program_is_not_mistaken_for_its_successor(tmp_path: Path) -> None:
    program = copied_sleep(tmp_path / "sleeper")
    original = program.read_bytes()
    with running(program, "60", program="sleeper") as child:
        program.unlink()
        program.write_bytes(b"another file of the same name")
        mapped = mapped_files(child.pid)[0]
        assert mapped.deleted
        assert mapped.open_path is not None
        assert Path(mapped.open_path).read_bytes() == original


MEMFD = """
import os, shutil
fd = os.memfd_create("probes")
with open(shutil.which("sleep"), "rb") as source: os.write(fd, source.read())
os.execve(fd, ["sleep", "60"], os.environ)
"""


@pytest.mark.root
def test_a_program_that_never_had_a_name() -> None:
    sleep = shutil.which("sleep")
    assert sleep
    with running(sys.executable, "-c", MEMFD, program="memfd:probes") as child:
        mapped = next(f for f in mapped_files(child.pid) if "memfd" in f.path)
        assert mapped.path == "/memfd:probes"
        assert mapped.deleted
        assert mapped.open_path is not None
        assert Path(mapped.open_path).read_bytes() == Path(sleep).read_bytes()


@pytest.mark.root
def test_a_name_means_another_file_in_another_mount_namespace(tmp_path: Path) -> None:
    need_program("unshare", "util-linux")
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    copied_sleep(inside / "program")
    (outside / "program").write_bytes(b"not the program that runs")
    script = f"mount --bind {inside} {outside} && exec {outside}/program 60"
    with running("unshare", "-m", "sh", "-c", script, program="program") as child:
        mapped = mapped_files(child.pid)[0]
        assert mapped.path == f"{outside}/program"
        assert mapped.open_path is not None
        assert Path(mapped.open_path).read_bytes() == (inside / "program").read_bytes()


def test_without_privilege_files_are_reached_by_their_names() -> None:
    with open_folder() as folder:
        program = copied_sleep(folder / "sleeper")

        def question() -> object:
            with subprocess.Popen([program, "60"]) as child:
                until(lambda: sleeps(child.pid, "sleeper"), "the program to start")
                before = mapped_files(child.pid)
                program_before, library = before[0].open_path, before[1].open_path
                program.rename(folder / "moved")
                moved = mapped_files(child.pid)[0].open_path
                child.kill()
            return [program_before, library, moved, child.pid]

        folder.chmod(0o777)
        by_name, library, by_exe, pid = as_nobody(question)
    assert by_name == f"/proc/{pid}/root{program}"
    assert library.startswith(f"/proc/{pid}/root/")
    # After the rename /proc/PID/maps shows the new name.
    assert by_exe == f"/proc/{pid}/root{folder}/moved"


def test_without_privilege_a_deleted_program_is_reached_and_a_deleted_library_is_not() -> None:
    with open_folder() as folder:
        folder.chmod(0o777)
        program = copied_sleep(folder / "sleeper")
        library = folder / "library"
        shutil.copy("/proc/self/exe", library)

        def question() -> object:
            import mmap

            with library.open("rb") as file:
                flags = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_EXEC}
                with mmap.mmap(file.fileno(), 0, **flags):
                    library.unlink()
                    files = mapped_files(os.getpid())
                    mine = [f.open_path for f in files if f.path == str(library)]
            with subprocess.Popen([program, "60"]) as child:
                until(lambda: sleeps(child.pid, "sleeper"), "the program to start")
                program.unlink()
                reached = mapped_files(child.pid)[0].open_path
                child.kill()
            return [mine, reached == f"/proc/{child.pid}/exe"]

        assert as_nobody(question) == [[None], True]


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
        process.namespace_pids,
        process.is_kernel_thread,
        process.start_time,
        process.open_pidfd,
    ],
    ids=lambda look: look.__name__,
)
def test_a_process_that_is_not_there(look: object) -> None:
    with pytest.raises(TargetError, match=f"^no process {ABSENT}$"):
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


def test_kernel_threads_map_nothing() -> None:
    kthreads = (pid for pid in processes() if process.is_kernel_thread(pid))
    pid = next(kthreads, None)
    if pid is None:
        pytest.skip("needs kernel threads to be visible: not in a pid namespace")
    assert executable_of(pid) is None
    assert mapped_files(pid) == []
    assert not process.is_kernel_thread(os.getpid())


def test_a_zombie_maps_nothing() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert executable_of(child.pid) is None
        assert read_maps(child.pid) == []


def test_the_command_name_may_hold_anything(tmp_path: Path) -> None:
    name = "a) R 1\n(b"
    with running(copied_sleep(tmp_path / name), "60", program=name) as child:
        assert command_name(child.pid) == name
        assert process.start_time(child.pid) > process.start_time(os.getpid())
        assert thread_group(child.pid).pid == child.pid


def test_files_are_identified_as_the_kernel_shows_them(tmp_path: Path) -> None:
    program = copied_sleep(tmp_path / "sleeper")
    device, inode = file_identity(str(program))
    assert inode == program.stat().st_ino
    with running(program, "60", program="sleeper") as child:
        mapped = mapped_files(child.pid)[0]
        assert (mapped.device, mapped.inode) == (device, inode)
        assert process.same_file(str(program), mapped)


@pytest.mark.root
def test_on_overlayfs_too(tmp_path: Path) -> None:
    need_program("unshare", "util-linux")
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    copied_sleep(tmp_path / "lower" / "sleeper")
    options = ",".join(
        f"{key}={tmp_path / name}"
        for key, name in (("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work"))
    )
    merged = tmp_path / "merged"
    script = f"mount -t overlay overlay -o {options} {merged} && exec {merged}/sleeper 60"
    probe = subprocess.run(
        ["unshare", "-m", "sh", "-c", script.replace("60", "0")],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"needs overlayfs: {probe.stderr.strip()}")
    with running("unshare", "-m", "sh", "-c", script, program="sleeper") as child:
        mapped = mapped_files(child.pid)[0]
        by_root = f"/proc/{child.pid}/root{merged}/sleeper"
        assert mapped.path == f"{merged}/sleeper"
        assert mapped.open_path is not None
        assert process.same_file(by_root, mapped)
        assert not process.same_file(f"/proc/{child.pid}/root/bin/sh", mapped)
        assert Path(mapped.open_path).read_bytes() == Path(by_root).read_bytes()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("missing", "No such file", id="missing"),
        pytest.param("empty", "empty", id="empty"),
        pytest.param("", "directory", id="a folder"),
    ],
)
def test_what_cannot_be_identified(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(TargetError, match=reason):
        file_identity(str(tmp_path / name))


LOADER = """
import sys
print("ready", flush=True)
sys.stdin.readline()
import _json
print("loaded", flush=True)
sys.stdin.readline()
"""


def test_libraries_loaded_later_are_told_once() -> None:
    with running(sys.executable, "-S", "-c", LOADER) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == b"ready\n"
        watch = MapsPoller(child.pid)
        first = watch.changed()
        assert {file.path for file in first} == {file.path for file in mapped_files(child.pid)}
        assert watch.changed() == []
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"loaded\n"
        (fresh,) = watch.changed()
        assert Path(fresh.path).name.startswith("_json")
        assert watch.changed() == []
        assert watch.alive
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.wait()
        assert watch.changed() == []
        assert not watch.alive


def test_a_program_executed_later_is_seen() -> None:
    with running("sh", "-c", "read x; exec sleep 60") as child:
        assert child.stdin
        watch = MapsPoller(child.pid)
        until(watch.changed, "the shell to be mapped")
        child.stdin.write(b"\n")
        child.stdin.flush()
        until(lambda: command_name(child.pid) == "sleep", "exec")
        fresh: list[str] = []

        def seen() -> bool:
            fresh.extend(Path(file.path).name for file in watch.changed())
            return "sleep" in fresh

        until(seen, "the new program")


def test_watching_a_process_that_never_was() -> None:
    watch = MapsPoller(ABSENT)
    assert watch.changed() == []
    assert not watch.alive


def test_a_pidfd_becomes_readable_at_the_end() -> None:
    import select

    with running("sleep", "60") as child:
        pidfd = process.open_pidfd(child.pid)
        assert select.select([pidfd], [], [], 0)[0] == []
        child.kill()
        assert select.select([pidfd], [], [], 10)[0] == [pidfd]
        os.close(pidfd)


@pytest.mark.root
def test_inside_a_pid_namespace_ids_are_not_those_of_the_kernel() -> None:
    need_program("unshare", "util-linux")
    script = (
        "from usdt.procfs.process import *; import os;"
        "print(in_initial_pid_namespace(), pid_visible_to_bpf(os.getpid()), pid_namespace()[1])"
    )
    answer = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", script],
        capture_output=True, text=True, check=True, cwd=Path(process.__file__).parents[2],
    ).stdout.split()  # fmt: skip
    assert answer[:2] == ["False", "True"]
    assert int(answer[2]) != process.pid_namespace()[1]


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
        assert process.namespace_pids(inner) == (inner, 1)
        assert process.pid_visible_to_bpf(inner) == process.in_initial_pid_namespace()
        assert process.parent(inner) == child.pid
