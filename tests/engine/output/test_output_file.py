"""Where lines go: files, pipes with slow and vanished readers, devices that are full."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import SyscallError, TargetError
from usdt.engine.output.output_file import Lines, OutputFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A named pipe and the number of its reading end."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    yield str(path), reader
    with contextlib.suppress(OSError):
        os.close(reader)


def test_a_file_is_emptied_and_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("something older and longer\n")
    with OutputFile(str(path)) as sink:
        sink.write(["one\n", "two\n"])
        assert path.read_text() == "one\ntwo\n", "nothing is held back"
        sink.write([])
        sink.write(["three\n"])
    assert path.read_text() == "one\ntwo\nthree\n"
    assert not os.access(path, os.X_OK)


def test_what_is_there_stays_until_there_is_something_to_write(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("older")
    with OutputFile(str(path)) as sink:
        assert path.read_text() == "older"
        sink.write_bytes(b"new")
        assert path.read_text() == "new"
    with OutputFile(str(path)):
        pass
    assert path.read_text() == "", "a run that found nothing found nothing"


def test_a_run_that_fails_before_leaves_no_trace(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("older")
    for path in (old, new):
        with contextlib.suppress(TargetError), OutputFile(str(path)):
            raise TargetError("no such process")
    assert old.read_text() == "older"
    assert not new.exists()
    with contextlib.suppress(TargetError), OutputFile(str(new)) as sink:
        sink.write(["one line\n"])
        raise TargetError("ended")
    assert new.read_text() == "one line\n", "what was written is kept"


def test_standard_output_stays_open(capfd: pytest.CaptureFixture[str]) -> None:
    with OutputFile(None) as sink:
        sink.write(["to whoever reads\n"])
        sink.check_reader()
    os.write(1, b"and on\n")
    assert capfd.readouterr().out == "to whoever reads\nand on\n"


def test_close_is_idempotent(tmp_path: Path) -> None:
    sink = OutputFile(str(tmp_path / "out"))
    sink.close()
    sink.close()
    with pytest.raises(SyscallError) as caught:
        sink.write(["x\n"])
    assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("é漢\U0001f600", "é漢\U0001f600".encode(), id="UTF-8"),
        pytest.param("a\udcffb", b"a\\udcffb", id="a byte that is not"),
    ],
)
def test_any_text_can_be_written(text: str, expected: bytes, tmp_path: Path) -> None:
    with OutputFile(str(tmp_path / "out")) as sink:
        sink.write([text, "\n"])
    assert (tmp_path / "out").read_bytes() == expected + b"\n"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        pytest.param("missing/out", "cannot be written: No such file or directory", id="no folder"),
        pytest.param(".", "cannot be written: Is a directory", id="a folder"),
        pytest.param("file/out", "cannot be written: Not a directory", id="below a file"),
    ],
)
def test_what_cannot_be_opened(place: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / place)
    with pytest.raises(TargetError) as caught:
        OutputFile(path)
    assert str(caught.value) == f"{path}: {reason}"


def test_a_full_disk_is_an_error() -> None:
    with OutputFile("/dev/full") as sink, pytest.raises(SyscallError) as caught:
        sink.write(["x\n"])
    assert str(caught.value) == "write to /dev/full: No space left on device"
    assert caught.value.errno == errno.ENOSPC


def test_every_batch_is_one_write(pipe: tuple[str, int]) -> None:
    path, reader = pipe
    with OutputFile(path) as sink:
        for batch in (["a\n"], ["b\n", "c\n"], [f"{n}\n" for n in range(500)]):
            sink.write(batch)
            assert os.read(reader, 1 << 16) == "".join(batch).encode()
        sink.write(Lines([b"a\n", b"b\nc\n", b"d\n"], 4))
        assert os.read(reader, 1 << 16) == b"a\nb\nc\nd\n"


def test_a_reader_that_has_gone(pipe: tuple[str, int]) -> None:
    path, reader = pipe
    with OutputFile(path) as sink:
        sink.check_reader()
        sink.write(["x\n"])
        sink.check_reader()
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            sink.check_reader()
        with pytest.raises(BrokenPipeError):
            sink.write(["x\n"])


@pytest.mark.parametrize("encoded", [False, True])
def test_a_pipe_that_somebody_made_non_blocking(pipe: tuple[str, int], *, encoded: bool) -> None:
    path, reader = pipe
    lines = [f"{n:0100}\n" for n in range(20000)]  # 2 MB: far more than a pipe holds
    # More pieces than writev(2) takes.
    pieces = Lines([line.encode() for line in lines], len(lines))
    got: list[bytes] = []

    def read() -> None:
        os.set_blocking(reader, True)
        while data := os.read(reader, 1 << 15):
            got.append(data)
            if len(got) < 10:
                time.sleep(0.002)

    with OutputFile(path) as sink:
        flags = fcntl.fcntl(sink._number, fcntl.F_GETFL)
        fcntl.fcntl(sink._number, fcntl.F_SETFL, flags | os.O_NONBLOCK)
        thread = threading.Thread(target=read)
        thread.start()
        sink.write(pieces if encoded else lines)
    thread.join()
    assert b"".join(got).decode() == "".join(lines)


def test_a_json_line_says_how_many_hits_a_probe_lost(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with OutputFile(str(path)) as sink:
        sink.write_loss('p:"q"', 5)
        sink.write_loss("p:q", 0)
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {"lost": 5, "probe": 'p:"q"'}
