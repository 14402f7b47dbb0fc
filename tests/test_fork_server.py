"""Commands that a test run forks are as those that users start: tests/support/fork_server.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import fork_server
import pytest
import skips
from fixtures import build
from fork_server import Command
from patience import patient
from tracing_tools import KPROBE, USDT, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[[list[str]], "Command | subprocess.Popen[str]"]

_TIMEOUT = patient(60)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test run that has a server of commands."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER", os.environ.get("PYTEST_XDIST_WORKER", "gw0"))
    monkeypatch.delenv("USDT_COLD", raising=False)


@pytest.fixture(params=["forked", "executed"])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a command in one of both ways."""
    forked = request.param == "forked"
    monkeypatch.setenv("PYTEST_XDIST_WORKER", os.environ.get("PYTEST_XDIST_WORKER", "gw0"))
    monkeypatch.setenv("USDT_COLD", "" if forked else "1")

    def start(words: list[str]) -> Command | subprocess.Popen[str]:
        process = fork_server.started(words)
        assert isinstance(process, Command) == forked
        return process

    return start


@pytest.mark.parametrize(
    ("words", "code", "out", "err"),
    [
        ([USDT, "schema"], 0, '"$schema"', ""),
        ([KPROBE, "help"], 0, "Usage: kprobe", ""),
        ([USDT, "nosuch"], 2, "", "Error: No such command 'nosuch'"),
        ([USDT, "list", "/dev/null"], 1, "", "Error: "),
    ],
)
def test_words_output_and_exit_code(
    start: Start, words: list[str], code: int, out: str, err: str
) -> None:
    process = start(words)
    texts = process.communicate(timeout=_TIMEOUT)
    assert process.wait(_TIMEOUT) == process.poll() == process.returncode == code
    assert all(what in text for what, text in zip((out, err), texts, strict=True)), texts


def test_environment_and_folder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").symlink_to(build("default", "args"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, err = start([USDT, "list", "here"]).communicate(timeout=_TIMEOUT)
    assert "\x1b[" in out, (out, err)


def _tracing(start: Start) -> Command | subprocess.Popen[str]:
    process = start([USDT, "trace", "-a", f"{build('default', 'args')}:args:count3"])
    assert process.stderr is not None
    assert process.stderr.readline().startswith("tracing 1 site")
    return process


def test_a_process_of_its_own(start: Start) -> None:
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    process = _tracing(start)
    folder = Path(f"/proc/{process.pid}")
    assert (folder / "comm").read_text() == "usdt\n"
    assert (folder / "exe").readlink() == Path(sys.executable).resolve()
    status = (folder / "status").read_text()
    assert f"\nNSsid:\t{os.getsid(0)}\n" in status
    assert f"\nNSpgid:\t{os.getpgid(0)}\n" in status
    held = []
    for fd in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it looks at processes meanwhile
            held.append(str(fd.readlink()))
    assert held.count("/dev/null") == 1
    assert not [what for what in held if what.startswith("socket:")]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=_TIMEOUT)
    assert (process.wait(), out, err) == (0, "", "0 events, 0 lost\n")
    process.send_signal(signal.SIGINT)  # does nothing
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


def test_an_end_by_a_signal(start: Start) -> None:
    process = _tracing(start)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.kill()
    assert process.wait(_TIMEOUT) == -signal.SIGKILL
    until(lambda: not Path(f"/proc/{process.pid}").exists(), "nothing of it to be left")
    process.communicate()


@pytest.mark.usefixtures("start")
def test_a_command_that_takes_too_long() -> None:
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    words = [USDT, "trace", "-a", f"{build('default', 'args')}:args:count3"]
    with pytest.raises(subprocess.TimeoutExpired):
        fork_server.run(words, timeout=1)
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


def test_what_starts_as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    monkeypatch.delenv("USDT_COLD", raising=False)
    words = ["env", USDT, "--version"]
    assert not isinstance(process := fork_server.started(words), Command)
    assert process.communicate(timeout=_TIMEOUT)[0].startswith("usdt ")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    assert not isinstance(process := fork_server.started(words[1:]), Command)
    assert process.communicate(timeout=_TIMEOUT)[0].startswith("usdt ")


def _in_shell(line: str, *words: str) -> subprocess.Popen[str]:
    skips.need_program("gcc", "gcc")
    return subprocess.Popen(
        ["bash", "-c", line, "bash", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": fork_server.shell_path()},
    )


def _traces(line: str) -> subprocess.Popen[str]:
    """A shell's line that becomes a command that traces."""
    process = _in_shell(line, f"{build('default', 'args')}:args:count3")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("tracing 1 site")
    return process


def _is_forked(process: subprocess.Popen[str]) -> bool:
    """Whether the program that asks for a fork stands for the command."""
    return Path(f"/proc/{process.pid}/exe").readlink() != Path(sys.executable).resolve()


@pytest.mark.usefixtures("served")
def test_words_streams_and_exit_codes_in_a_shell(tmp_path: Path) -> None:
    line = """
        cd "$1"; ln -s "$2" 'a program'; usdt list 'a program' | head -1
        NAME= usdt nosuch ''; echo $?; kprobe help | head -1
        echo nothing | usdt report -; echo $?"""
    out, err = _in_shell(line, str(tmp_path), str(build("default", "args"))).communicate(
        timeout=_TIMEOUT
    )
    first, *others = out.splitlines()
    assert first.startswith(f"{tmp_path}/a program ")
    assert [line.split()[0] for line in others] == ["2", "Usage:", "1"], out
    assert "No such command 'nosuch'" in err
    assert err.count("Error: ") == 2, err


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    "line",
    [
        pytest.param("usdt schema >/dev/full", id="a full disk"),
        pytest.param("usdt schema >&-", id="no stdout"),
        pytest.param("usdt nosuch 2>/dev/full", id="no place for the error"),
        pytest.param("usdt list /dev/null", id="an error"),
    ],
)
def test_it_ends_as_python_does(line: str) -> None:
    forked, cold = (
        _in_shell(f"{before}{line}; echo $?").communicate(timeout=_TIMEOUT)
        for before in ("", "USDT_COLD=1 ")
    )
    assert forked == cold


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_a_command_of_a_shell(number: signal.Signals) -> None:
    with _traces('exec usdt trace -a "$1"') as process:
        assert _is_forked(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=_TIMEOUT)
    assert (process.returncode, out, err) == (0, "", "0 events, 0 lost\n")


@pytest.mark.usefixtures("served")
def test_a_variable_that_python_does_not_read_starts_nothing_cold() -> None:
    with _traces(f'export PYTHON={os.getpid()}; exec usdt trace -a "$1"') as process:
        assert _is_forked(process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=_TIMEOUT)


@pytest.mark.usefixtures("served")
def test_signals_that_a_shell_ignores_are_ignored() -> None:
    with _traces('trap "" INT; exec usdt trace -a "$1"') as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        assert process.communicate(timeout=_TIMEOUT)[1] == "0 events, 0 lost\n"
    assert process.returncode == 0


@pytest.mark.usefixtures("served")
def test_a_command_of_a_shell_is_killed_with_it() -> None:
    with _traces('exec usdt trace -a "$1"') as process:
        process.kill()
        process.communicate(timeout=_TIMEOUT)  # ends when nobody has the pipes
    assert process.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize(
    "before",
    [
        pytest.param("exec 3< /dev/null;", id="a file"),
        pytest.param("umask 027;", id="umask"),
        pytest.param("ulimit -n 512;", id="a limit"),
        pytest.param("export PYTHONWARNINGS=ignore;", id="Python's environment"),
        pytest.param("export USDT_COLD=1;", id="asked for"),
    ],
)
def test_what_a_fork_would_not_have_starts_cold(before: str) -> None:
    with _traces(f'{before} exec usdt trace -a "$1"') as process:
        assert not _is_forked(process)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=_TIMEOUT)[1] == "0 events, 0 lost\n"


@pytest.mark.usefixtures("served")
@pytest.mark.root
def test_another_namespace_starts_cold() -> None:
    skips.need_program("unshare", "util-linux")
    with _traces('exec unshare --uts usdt trace -a "$1"') as process:
        assert not _is_forked(process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=_TIMEOUT)
