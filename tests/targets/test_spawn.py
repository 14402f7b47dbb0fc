"""usdt.targets.spawn: commands that are stopped before they run."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import as_nobody, copied_sleep, open_folder, until

from usdt.base.errors import TargetError
from usdt.procfs.mapped_files import mapped_files
from usdt.procfs.process import pid_exists, processes
from usdt.targets.spawn import StoppedCommand

WAYS = pytest.mark.parametrize("use_ptrace", [True, False], ids=["ptrace", "pipe"])
CHECKOUT = Path(__file__).parents[2]


def sleep_program() -> bytes:
    """sleep(1), to be damaged."""
    return Path(shutil.which("sleep") or "").read_bytes()


def damaged_program() -> bytes:
    """A program whose program headers have an impossible size: ENOEXEC."""
    data = sleep_program()
    return data[:54] + b"\1\0" + data[56:]


def our_children() -> list[int]:
    """Our children that are not reaped yet."""
    found = []
    for pid in processes():
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        found += [pid] if f"\nPPid:\t{os.getpid()}\n" in text else []
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody reaps does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def status_of(pid: int, name: str) -> str:
    """A line of /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{name}:"))


@WAYS
def test_nothing_runs_before_release(tmp_path: Path, *, use_ptrace: bool) -> None:
    made = tmp_path / "made"
    with StoppedCommand(["touch", str(made)], use_ptrace=use_ptrace) as command:
        assert command.hold_method == ("ptrace" if use_ptrace else "pipe")
        assert command.stopped
        time.sleep(0.02)
        assert command.poll() is None
        assert not made.exists()
        command.release()
        assert not command.stopped
        assert command.wait() == 0
        assert made.exists()


@WAYS
@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("exit 0", 0, id="success"),
        pytest.param("exit 3", 3, id="a code"),
        pytest.param("kill -TERM $$", 128 + 15, id="ended by a signal"),
        pytest.param("kill -PIPE $$", 128 + 13, id="SIGPIPE is not ignored"),
        pytest.param("kill -INT $$", 128 + 2, id="SIGINT is not ignored"),
        pytest.param("kill -XFSZ $$", 128 + 25, id="SIGXFSZ is not ignored"),
    ],
)
def test_how_it_ended(script: str, code: int, *, use_ptrace: bool) -> None:
    with StoppedCommand(["sh", "-c", script], use_ptrace=use_ptrace) as command:
        command.release()
        assert command.wait() == code
        assert command.poll() == command.exit_code == code


@WAYS
def test_the_program_is_known_before_it_runs(tmp_path: Path, *, use_ptrace: bool) -> None:
    program = copied_sleep(tmp_path / "with space")
    with StoppedCommand([str(program), "0"], use_ptrace=use_ptrace) as command:
        assert command.program.path == str(program)
        assert command.program.inode == program.stat().st_ino
        assert command.program.open_path
        assert Path(command.program.open_path).read_bytes() == program.read_bytes()


def test_at_exec_the_program_and_its_loader_are_mapped_but_no_library() -> None:
    with StoppedCommand(["sleep", "0"]) as command:
        paths = [file.path for file in mapped_files(command.pid)]
        assert paths[0] == command.program.path
        assert not [path for path in paths if "libc.so" in path]
        assert [path for path in command.files() if "libc.so" in path]


@WAYS
def test_what_it_will_map_is_told_before(*, use_ptrace: bool) -> None:
    with StoppedCommand([sys.executable, "-S", "-c", "input()"], use_ptrace=use_ptrace) as command:
        told = {Path(path).resolve() for path in command.files()}
    mine = {Path(file.path) for file in mapped_files(os.getpid())}
    startup = {path for path in mine if "libpython" in path.name or path.name.startswith("libc.")}
    assert {Path(sys.executable).resolve(), *startup} <= told


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["env", "A=b", "sleep", "1"], id="a word"),
        pytest.param(["sh", "-c", "cd /; (sleep 1; true)"], id="a word of a word"),
        pytest.param(["sh", "-c", "it's", "sleep"], id="beside one that cannot be split"),
    ],
)
def test_programs_that_words_name_are_told(words: list[str]) -> None:
    with StoppedCommand(words) as spawned:
        found = {Path(path).resolve().name for path in spawned.guess_programs()}
    assert "sleep" in found
    assert any(name.startswith("libc") for name in found)


def test_words_that_name_no_program_are_nothing(tmp_path: Path) -> None:
    (tmp_path / "lost").write_text("#!/nonexistent\n")
    (tmp_path / "lost").chmod(0o755)
    with StoppedCommand(
        ["echo", "-sleep", "", "nosuchprogram", "/tmp", f"{tmp_path}/lost"]
    ) as spawned:
        assert spawned.guess_programs() == []


@WAYS
def test_scripts(tmp_path: Path, *, use_ptrace: bool) -> None:
    path = tmp_path / "script"
    path.write_text("#!/usr/bin/env sh\nexit $1\n")
    path.chmod(0o755)
    with StoppedCommand([str(path), "7"], use_ptrace=use_ptrace) as command:
        shell = Path(shutil.which("sh") or "").resolve()
        assert shell in {Path(name).resolve() for name in command.files()}
        command.release()
        assert command.wait() == 7


@WAYS
def test_a_text_without_interpreter_is_run_by_the_shell(
    tmp_path: Path, *, use_ptrace: bool
) -> None:
    path = tmp_path / "text"
    path.write_text("exit $(($1 + 1))\n")
    path.chmod(0o755)
    with StoppedCommand([str(path), "7"], use_ptrace=use_ptrace) as command:
        command.release()
        assert command.wait() == 8


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param([], "the command is empty", id="no words"),
        pytest.param([""], "the command is empty", id="an empty word"),
        pytest.param(["nosuch"], "nosuch: command not found on PATH; give", id="not on PATH"),
        pytest.param(["./nosuch"], "-c ./nosuch: No such file or dir", id="a path to nothing"),
        pytest.param(["./plain"], "./plain: not executable (try: chmod", id="not executable"),
        pytest.param(["./folder"], "./folder: is a directory", id="a directory"),
        pytest.param(["true", "a\0b"], "'true': a word of the command contains a NUL", id="NUL"),
        pytest.param(["./lost"], "./lost: its interpreter /nonexistent: No such", id="a script"),
        pytest.param(["./broken"], "./broken: cannot be executed: ", id="a damaged program"),
        pytest.param(["./orphan"], "./orphan: its interpreter does not exist", id="no ld.so"),
    ],
)
@WAYS
def test_commands_that_cannot_be_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    message: str,
    *,
    use_ptrace: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("plain").write_text("#!/bin/sh\n")
    Path("lost").write_text("#!/nonexistent\n")
    Path("broken").write_bytes(damaged_program())
    Path("orphan").write_bytes(sleep_program().replace(b"/ld-", b"/xx-", 1))
    for name in ("lost", "broken", "orphan"):
        Path(name).chmod(0o755)
    before = our_children()
    with (
        pytest.raises(TargetError) as caught,
        StoppedCommand(argv, use_ptrace=use_ptrace) as command,
    ):
        command.release()
    assert str(caught.value).startswith(message)
    assert our_children() == before


@WAYS
def test_never_released_it_is_killed(*, use_ptrace: bool) -> None:
    with StoppedCommand(["sleep", "60"], use_ptrace=use_ptrace) as command:
        assert pid_exists(command.pid)
    assert not pid_exists(command.pid)
    assert command.exit_code == 128 + 9
    command.close()
    command.release()
    assert command.wait() == 128 + 9


@WAYS
def test_released_it_is_ended_with_the_context(*, use_ptrace: bool) -> None:
    with StoppedCommand(["sleep", "60"], use_ptrace=use_ptrace) as command:
        command.release()
        command.release()
    assert command.poll() == 128 + 15
    command.close()


def test_what_ignores_sigterm_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usdt.targets.spawn.TERMINATION_SECONDS", 0.1)
    with StoppedCommand(["sh", "-c", "trap '' TERM; echo; exec sleep 60"]) as command:
        command.release()
        # "ignored" is in force once SigIgn has bit 14.
        until(lambda: int(status_of(command.pid, "SigIgn"), 16) >> 14 & 1, "the trap")
        assert command.end() is None
        assert command.end() is None
    assert alive(command.pid)
    command.kill()
    assert command.wait() == 128 + 9


@WAYS
def test_killed_while_it_waits(*, use_ptrace: bool) -> None:
    with StoppedCommand(["sleep", "60"], use_ptrace=use_ptrace) as command:
        os.kill(command.pid, signal.SIGKILL)
        until(lambda: not alive(command.pid), "the end")
        command.release()
        assert command.wait() == 128 + 9


def test_waiting_has_an_end() -> None:
    with StoppedCommand(["sleep", "60"]) as command:
        command.release()
        began = time.monotonic()
        assert command.wait(0.05) is None
        assert 0.05 <= time.monotonic() - began < 100
        assert select.select([command], [], [], 0)[0] == []
        command.kill()
        assert select.select([command], [], [], 10)[0] == [command]
        assert command.wait(10) == 128 + 9


TRACER = """
import sys, threading
from usdt.targets.spawn import StoppedCommand
def main():
    global command
    command = StoppedCommand(["sleep", "60"], use_ptrace=sys.argv[1] == "True", user=user)
    if "release" in sys.argv:
        command.release()
    print(command.pid, flush=True)
user = sys.argv[2] or None
if "thread" in sys.argv:
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
else:
    main()
sys.stdin.read()
"""


def _kill_tracer(*words: object) -> int:
    # Starts a tracer with a command, and kills it. Returns the process ID of the command.
    with subprocess.Popen(
        [sys.executable, "-c", TRACER, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=CHECKOUT,
    ) as tracer:
        assert tracer.stdout
        pid = int(tracer.stdout.readline())
        assert alive(pid)
        tracer.kill()
    return pid


@WAYS
@pytest.mark.parametrize("state", ["held", "release"])
@pytest.mark.parametrize("user", ["", "nobody"])
def test_it_does_not_outlive_a_tracer_that_dies(user: str, state: str, *, use_ptrace: bool) -> None:
    if user and os.geteuid():
        pytest.skip("needs root")
    pid = _kill_tracer(use_ptrace, user, state)
    until(lambda: not alive(pid), "the command to end")


@WAYS
def test_a_command_of_another_thread_outlives_that_thread(*, use_ptrace: bool) -> None:
    # PR_SET_PDEATHSIG is about threads: the end of this one would end the command at once.
    pid = _kill_tracer(use_ptrace, "", "release", "thread")
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


HANDED_ON = """
import os, sys
from usdt.targets.spawn import StoppedCommand
script = "cat; echo $WORD >&2; ls /proc/self/fd"
environment = {**os.environ, "WORD": "handed on"}
use_ptrace = sys.argv[1] == "True"
with StoppedCommand(["sh", "-c", script], environment=environment, use_ptrace=use_ptrace) as c:
    c.release()
    c.wait()
"""


@WAYS
def test_streams_and_environment_are_handed_on_and_no_descriptor_else(*, use_ptrace: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANDED_ON, str(use_ptrace)],
        input="through stdin\n",
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
    )
    # 3 is the descriptor with which ls reads the folder.
    assert done.stdout.splitlines() == ["through stdin", "0", "1", "2", "3"]
    assert done.stderr == "handed on\n"


def test_signals_before_exec_are_not_taken_for_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    # The child is sent signals between PTRACE_SEIZE and exec, the moment this is about.
    send_go = StoppedCommand._send_go

    def disturbed(command: StoppedCommand) -> None:
        for number in (signal.SIGWINCH, signal.SIGURG, signal.SIGSTOP, signal.SIGCONT):
            os.kill(command.pid, number)
        send_go(command)

    monkeypatch.setattr(StoppedCommand, "_send_go", disturbed)
    with StoppedCommand(["sh", "-c", "exit 5"]) as command:
        assert command.hold_method == "ptrace"
        assert Path(command.program.path).samefile(shutil.which("sh") or "")
        command.release()
        assert command.wait() == 5


def test_set_user_id_programs_are_held_by_the_pipe_and_keep_their_rights() -> None:
    with open_folder() as folder:
        program = folder / "id"
        shutil.copy(shutil.which("id") or "", program)
        program.chmod(0o4755)

        def question() -> object:
            read, write = os.pipe()
            os.dup2(write, 1)
            with StoppedCommand([str(program), "-u"], environment={}) as command:
                hold_method = command.hold_method
                command.release()
                command.wait()
            return [hold_method, os.read(read, 10).decode()]

        assert as_nobody(question) == ["pipe", "0\n"]


def test_another_user_traces_as_well() -> None:
    def question() -> object:
        with StoppedCommand(["sleep", "0"], environment={}) as command:
            command.release()
            return [command.hold_method, command.program.path, command.wait()]

    sleep = str(Path(shutil.which("sleep") or "").resolve())
    assert as_nobody(question) in (["ptrace", sleep, 0], ["pipe", sleep, 0])


def test_threads_are_no_obstacle() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with StoppedCommand(["true"]) as command:
            command.release()
            assert command.wait() == 0
    finally:
        done.set()
        thread.join()
