"""usdt.procfs.mapped_files: the files that real processes have mapped, and paths to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import as_nobody, copied_sleep, open_folder, running, sleeps, until
from skips import need_program

from usdt.base.errors import TargetError
from usdt.procfs.mapped_files import (
    MapsPoller,
    executable_of,
    file_identity,
    files_of_processes,
    mapped_files,
    same_file,
)
from usdt.procfs.maps import read_maps
from usdt.procfs.process import command_name, is_kernel_thread, processes

ABSENT = 2**22 + 1  # above PID_MAX_LIMIT, include/linux/threads.h


def test_one_file_for_each_device_and_inode() -> None:
    files = mapped_files(os.getpid())
    keys = [(file.device, file.inode) for file in files]
    assert len(keys) == len(set(keys))
    libc = next(file for file in files if Path(file.path).name.startswith("libc.so"))
    assert libc.open_path
    assert Path(libc.open_path).stat().st_ino == Path(libc.path).stat().st_ino == libc.inode


def test_files_of_several_processes_are_given_once() -> None:
    nobody = 1 << 22  # PID_MAX_LIMIT
    pids = [os.getpid(), os.getpid(), nobody]
    files = list(files_of_processes(pids, skip_errors=True))
    assert len({identity for *_, identity in files}) == len(files) > 1
    with pytest.raises(TargetError):
        list(files_of_processes(pids))


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


def test_kernel_threads_map_nothing() -> None:
    kthreads = (pid for pid in processes() if is_kernel_thread(pid))
    pid = next(kthreads, None)
    if pid is None:
        pytest.skip("needs kernel threads to be visible: not in a pid namespace")
    assert executable_of(pid) is None
    assert mapped_files(pid) == []
    assert not is_kernel_thread(os.getpid())


def test_a_zombie_maps_nothing() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert executable_of(child.pid) is None
        assert read_maps(child.pid) == []


def test_files_are_identified_as_the_kernel_shows_them(tmp_path: Path) -> None:
    program = copied_sleep(tmp_path / "sleeper")
    device, inode = file_identity(str(program))
    assert inode == program.stat().st_ino
    with running(program, "60", program="sleeper") as child:
        mapped = mapped_files(child.pid)[0]
        assert (mapped.device, mapped.inode) == (device, inode)
        assert same_file(str(program), mapped)


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
        assert same_file(by_root, mapped)
        assert not same_file(f"/proc/{child.pid}/root/bin/sh", mapped)
        assert Path(mapped.open_path).read_bytes() == Path(by_root).read_bytes()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("missing", "No such file", id="missing"),
        pytest.param("empty", ": empty file, not an ELF file$", id="empty"),
        pytest.param("", "directory", id="a folder"),
    ],
)
def test_what_cannot_be_identified(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(TargetError, match=reason):
        file_identity(str(tmp_path / name))


# The module is a library in every Python; some have _json and its like built in.
LOADER = """
import sys
print("ready", flush=True)
sys.stdin.readline()
import _codecs_jp
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
        assert Path(fresh.path).name.startswith("_codecs_jp")
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
