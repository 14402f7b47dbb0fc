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
from fixtures import build
from fork_server import Command
from patience import patient
from tracing_tools import KPROBE, USDT, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[[list[str]], "Command | subprocess.Popen[str]"]

_TIMEOUT = patient(60)


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
