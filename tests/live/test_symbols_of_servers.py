"""Recordings shown where their programs are not, with files of a debuginfod server."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import pty
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from fixtures import build
from skips import need_program, requires_root
from tracing_tools import USDT, one_error, private, run_usdt

from usdt.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = requires_root


class Moved(NamedTuple):
    """A recording of a program that has gone, its stack then, and a server that has the program."""

    recording: Path
    stack: list[dict[str, Any]]
    server: str
    build_id: str


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder, as debuginfod would; ``delay`` seconds after each request."""

    delay = 0.0

    def do_GET(self) -> None:
        """Wait, then answer."""
        time.sleep(self.delay)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    handler = functools.partial(Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moved]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = private(build("default", "loop"), tmp_path)
    recording = tmp_path / "it.usdt"
    command = f"{program} -q -n 1"
    done = run_usdt("record", "-o", recording, "loop:hit(ustack)", "-c", command)
    assert done.returncode == 0, done.stderr
    (event,) = shown(recording)
    with ElfFile(program) as elf:
        build_id = elf.build_id
    assert build_id
    folder = tmp_path / "served" / "buildid" / build_id
    folder.mkdir(parents=True)
    objcopy = need_program("objcopy", "binutils")
    subprocess.run([objcopy, "--only-keep-debug", program, folder / "debuginfo"], check=True)
    subprocess.run([objcopy, "--strip-all", program, folder / "executable"], check=True)
    program.unlink()
    with serving(tmp_path / "served") as server:
        yield Moved(recording, event["args"]["ustack"], server, build_id)


def shown(recording: Path, *words: object) -> list[dict[str, Any]]:
    done = run_usdt("report", recording, "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_report_downloads_what_it_needs_once(
    moved: Moved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", f"ima:enforcing {moved.server}")
    assert shown(moved.recording)[0]["args"]["ustack"] != moved.stack
    assert not (tmp_path / "cache" / "debuginfod_client").exists()
    assert shown(moved.recording, "--debuginfod")[0]["args"]["ustack"] == moved.stack
    (tmp_path / "served").rename(tmp_path / "away")
    assert shown(moved.recording)[0]["args"]["ustack"] == moved.stack, "from the cache"


def test_a_download_that_takes_long_is_shown_on_a_terminal_alone(
    moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", moved.server)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(Files, "delay", 0.6)  # longer than nothing is shown
    main, terminal = pty.openpty()
    words = [USDT, "report", moved.recording, "--debuginfod"]
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=terminal, check=True, timeout=60)
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # the end
        while piece := os.read(main, 4096):
            text += piece
    os.close(main)
    assert f"\r\x1b[Kdownloading {moved.server}/buildid/".encode() in text
    assert text.rpartition(b"\x1b[K")[2] == b"1 event, 0 lost\r\n"


def test_a_server_that_does_not_have_it(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", f"{moved.server}/elsewhere")
    done = run_usdt("report", moved.recording, "--debuginfod")
    assert done.returncode == 0, done.stderr
    notice, closing = done.stderr.splitlines()
    assert f"its build ID is {moved.build_id}, and no such file is here" in notice
    assert closing == "1 event, 0 lost"


def test_downloads_are_kept_where_the_clients_of_elfutils_are_told_to(
    moved: Moved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", moved.server)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "elsewhere" / "kept"))
    assert shown(moved.recording, "--debuginfod")[0]["args"]["ustack"] == moved.stack
    kept = tmp_path / "elsewhere" / "kept" / moved.build_id
    assert (kept / "debuginfo").is_file()
    assert not (tmp_path / "cache" / "debuginfod_client").exists()
    assert shown(moved.recording)[0]["args"]["ustack"] == moved.stack, "from there"
    kept.parent.chmod(0o777)
    assert shown(moved.recording)[0]["args"]["ustack"] != moved.stack, "others can write there"


@pytest.mark.parametrize("servers", ["", "ftp://127.0.0.1 nonsense"])
def test_no_server_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", servers)
    error = one_error(run_usdt("report", tmp_path / "x", "--debuginfod"), code=2)
    assert error.startswith("--debuginfod needs servers, http:// or https://, in the environment")


def test_a_live_command_names_the_functions_of_a_stripped_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: Moved
) -> None:
    monkeypatch.setenv("DEBUGINFOD_URLS", moved.server)
    program = tmp_path / "loop"
    served = tmp_path / "served" / "buildid" / moved.build_id / "executable"
    program.write_bytes(served.read_bytes())
    program.chmod(0o755)
    words = ("--debuginfod", "--ustack", "--json", "loop:hit", "-c", f"{program} -q -n 1")
    done = run_usdt("trace", *words)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if '"ustack"' in line)
    stack = json.loads(line)["args"]["ustack"]
    assert [one["symbol"] for one in stack] == [one["symbol"] for one in moved.stack]
