"""The program of the far end: the copy that it keeps, and the command that it supervises."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import itertools
import os
import signal
import subprocess
import sys
import termios
import time
import zipfile
from pathlib import Path
from typing import Any, Self

import pytest
from fleets import own_python
from patience import patient
from processes import command_lines, until

from usdt.base.errors import TargetError
from usdt.fleet import far_end
from usdt.fleet.transport import far_command, template_words, transport_words
from usdt.fleet.zipapp import App

# Programs in place of the toolkit: the last word is the file for their results.
_SLEEPER = """
import os, signal, sys, time
def say(text):
    with open(sys.argv[-1], "w") as file:
        file.write(text + chr(10))
def stop(*_):
    try:
        say("stopped")
    finally:
        os._exit(0)
signal.signal(signal.SIGINT, stop)
say("started")
print("this is not among the results")
time.sleep(1000)
"""
_WORDS = """
import sys
with open(sys.argv[-1], "w") as file:
    print(sys.argv[1:-2], sys.flags.isolated, sys.flags.no_site, file=file)
"""
_OURS = "import sys; open(sys.argv[-1], 'w').write('ours\\n')"
_TALKER = """
import sys
for number in range(int(sys.argv[-3])):
    with open(sys.argv[-1], "w") as file:
        file.write("x" * 999 + chr(10))
"""
_CUT = "import os, sys; open(sys.argv[-1], 'w').write('no newline'); os._exit(3)"
_STUBBORN = _SLEEPER.replace("SIGINT, stop", "SIGINT, signal.SIG_IGN")


_IMPORTER = """
import sys, words
with open(sys.argv[-1], "w") as file:
    print(words.__file__, words.__cached__, words.WORD, file=file)
"""


_NUMBERS = itertools.count()


def app(source: str) -> App:
    """A toolkit that is one Python program, and no other test's: they look for its processes."""
    return kept_as(f"{source}\n# {os.getpid()} {next(_NUMBERS)}\n".encode())


def archive(**files: str) -> App:
    """A toolkit that is an archive of modules."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        for name, text in files.items():
            made.writestr(zipfile.ZipInfo(f"{name}.py"), text)
    return kept_as(content.getvalue())


def kept_as(content: bytes) -> App:
    return App(content, hashlib.sha256(content).hexdigest())


class Far:
    """The far end's command line, run by a shell as a transport would."""

    def __init__(self, home: Path, kept: App, *words: str, **more: Any) -> None:
        request = {"word": "W", "digest": kept.digest, "size": len(kept.content)}
        command = far_command({**request, "patience": 60, "beat": 60, "command": words, **more})
        self.child = subprocess.Popen(
            transport_words(template_words("sh -c {command} {node}", 5), "web1", command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": own_python(), "HOME": str(home)},
        )

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().decode().strip()

    def send(self, content: bytes) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(content)
        self.child.stdin.flush()

    def close(self) -> str:
        output, _ = self.child.communicate(timeout=100)
        return output.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()


def test_a_copy_is_sent_once_and_kept(tmp_path: Path) -> None:
    kept = app(_WORDS)
    with Far(tmp_path, kept, "count", "a b", "$(x)'\"\n") as far:
        assert far.line() == "usdt-fleet W need"
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
        assert far.line() == repr(["count", "a b", "$(x)'\"\n"]) + " 1 1"
        assert far.line() == "usdt-fleet W exit 0"
    (copy,) = (tmp_path / ".cache" / "usdt-fleet").iterdir()
    assert copy.name == f"usdt-{kept.digest}.pyz"
    assert (copy.stat().st_mode & 0o777, copy.read_bytes()) == (0o600, kept.content)
    with Far(tmp_path, kept) as far:
        assert far.line() == "usdt-fleet W run"


def test_a_copy_that_was_changed_is_sent_again(tmp_path: Path) -> None:
    kept = app(_OURS)
    folder = tmp_path / ".cache" / "usdt-fleet"
    folder.mkdir(parents=True, mode=0o700)
    (folder / f"usdt-{kept.digest}.pyz").write_text("print('theirs')")
    with Far(tmp_path, kept) as far:
        assert far.line() == "usdt-fleet W need"
        far.send(kept.content)
        assert [far.line(), far.line()] == ["usdt-fleet W run", "ours"]


def test_an_archive_is_unpacked_once_and_keeps_bytecode(tmp_path: Path) -> None:
    kept = archive(__main__=_IMPORTER, words="WORD = 'ours'\n")
    cache = tmp_path / ".cache" / "usdt-fleet"
    folder = cache / f"usdt-{kept.digest}"
    with Far(tmp_path, kept) as far:
        far.line()
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
        file, bytecode, word = far.line().split()
        far.close()
    assert (file, word) == (str(folder / "words.py"), "ours")
    assert Path(bytecode).is_file()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in cache.iterdir()} == {folder.name, f"{folder.name}.pyz"}
    first = (folder / "words.py").stat()
    with Far(tmp_path, kept) as far:
        assert [far.line(), far.line()] == ["usdt-fleet W run", f"{file} {bytecode} ours"]
        far.close()
    assert (folder / "words.py").stat() == first


def test_commands_that_come_at_once_unpack_one_folder(tmp_path: Path) -> None:
    kept = archive(__main__=_IMPORTER, words="WORD = 'ours'\n")
    cache = tmp_path / ".cache" / "usdt-fleet"
    with contextlib.ExitStack() as stack:
        several = [stack.enter_context(Far(tmp_path, kept)) for _ in range(4)]
        for far in several:  # none has a copy before all have asked for it
            assert far.line() == "usdt-fleet W need"
        for far in several:
            far.send(kept.content)
        for far in several:
            assert far.line() == "usdt-fleet W run"
            file, _, word = far.line().split()
            assert (Path(file).name, word) == ("words.py", "ours")
            far.close()
    folder = f"usdt-{kept.digest}"
    assert {path.name for path in cache.iterdir()} == {folder, f"{folder}.pyz"}


@pytest.mark.parametrize("damage", ["cut", "gone", "open to others"])
def test_a_folder_that_was_changed_is_unpacked_again(tmp_path: Path, damage: str) -> None:
    kept = archive(__main__=_IMPORTER, words="WORD = 'ours'\n")
    folder = tmp_path / ".cache" / "usdt-fleet" / f"usdt-{kept.digest}"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "__main__.py").write_text(_IMPORTER)
    (folder / "words.py").write_text("WORD = 'ours'\n")
    match damage:
        case "cut":
            os.truncate(folder / "words.py", 0)
        case "gone":
            (folder / "words.py").unlink()
        case _:
            (folder / "more.py").touch()
            folder.chmod(0o777)
    with Far(tmp_path, kept) as far:
        far.line()
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
        assert far.line().endswith(" ours")
        far.close()
    assert {path.name for path in folder.glob("*.py")} == {"__main__.py", "words.py"}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_archive_that_cannot_be_unpacked_is_run_as_it_is(tmp_path: Path) -> None:
    kept = archive(__main__=_IMPORTER, words="WORD = 'ours'\n")
    cache = tmp_path / ".cache" / "usdt-fleet"
    cache.mkdir(parents=True, mode=0o700)
    (cache / f"usdt-{kept.digest}").write_text("in the way")
    with Far(tmp_path, kept) as far:
        far.line()
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
        assert far.line().startswith(str(cache / f"usdt-{kept.digest}.pyz" / "words.py"))
        far.close()
    assert len([*cache.iterdir()]) == 2  # nothing is left of the attempt


def test_clean_removes_copies_and_their_folders(tmp_path: Path) -> None:
    kept = archive(__main__=_IMPORTER, words="WORD = 'ours'\n")
    cache = tmp_path / ".cache" / "usdt-fleet"
    with Far(tmp_path, kept) as far:
        far.line()
        far.send(kept.content)
        far.close()
    (cache / "usdt-0123").mkdir()  # its copy is gone
    (cache / ".usdt-4567.1.2").mkdir()  # a run has died
    with Far(tmp_path, kept, clean=True) as far:
        assert far.line() == "usdt-fleet W clean 1"
        far.close()
    assert not cache.exists()


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    kept = app(_OURS)
    folder = tmp_path / ".cache" / "usdt-fleet"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    (folder / f"usdt-{kept.digest}.pyz").write_text(kept.content.decode())
    with Far(tmp_path, kept) as far:
        assert far.line() == "usdt-fleet W need"  # /tmp has none
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
    temporary = Path(f"/tmp/usdt-fleet-{os.geteuid()}")
    assert temporary.stat().st_mode & 0o777 == 0o700
    with Far(tmp_path, kept, clean=True) as far:
        assert far.line().startswith("usdt-fleet W clean ")
    assert not (temporary / f"usdt-{kept.digest}.pyz").exists()


def test_a_folder_that_cannot_take_the_copy_is_named(tmp_path: Path) -> None:
    kept = app(_OURS)
    folder = tmp_path / ".cache" / "usdt-fleet"
    with Far(tmp_path, kept) as far:
        assert far.line() == "usdt-fleet W need"
        folder.rmdir()
        far.send(kept.content)
        assert far.line() == (
            f"usdt-fleet W fail {folder}: no copy of the toolkit: No such file or directory"
        )


def test_damage_on_the_way_is_found(tmp_path: Path) -> None:
    kept = app("print(1)")
    with Far(tmp_path, kept) as far:
        assert far.line() == "usdt-fleet W need"
        far.send(b"x" * len(kept.content))
        assert far.line().startswith("usdt-fleet W fail the toolkit has arrived damaged")
    with Far(tmp_path, kept) as far:
        assert far.line() == "usdt-fleet W need"
        assert far.close() == (
            "usdt-fleet W fail the connection closed before the toolkit had arrived\n"
        )
    assert not [*(tmp_path / ".cache" / "usdt-fleet").iterdir()]


@pytest.mark.parametrize(
    ("source", "end"),
    [
        (_SLEEPER, "stopped\nusdt-fleet W exit 0\n"),
        (_STUBBORN, "usdt-fleet W exit 137\n"),
    ],
    ids=["a command that ends", "a command that does not"],
)  # fmt: skip
def test_the_end_of_standard_input_ends_the_command(tmp_path: Path, source: str, end: str) -> None:
    kept = app(source)
    with Far(tmp_path, kept) as far:
        far.line()
        far.send(kept.content)
        assert [far.line(), far.line()] == ["usdt-fleet W run", "started"]
        began = time.monotonic()
        assert far.close() == end
        assert time.monotonic() - began < 30
    assert not running(kept)


def test_a_long_silence_ends_the_command_and_a_byte_does_not(tmp_path: Path) -> None:
    kept, patience = app(_SLEEPER), 3
    with Far(tmp_path, kept, patience=patience) as far:
        far.line()
        far.send(kept.content)
        assert [far.line(), far.line()] == ["usdt-fleet W run", "started"]
        os.kill(far.child.pid, signal.SIGSTOP)  # a machine that is busy
        far.send(b"\n")
        time.sleep(patience + 0.2)
        began = time.monotonic()
        os.kill(far.child.pid, signal.SIGCONT)
        assert [far.line() for _ in range(3)] == [
            "stopped",
            f"usdt-fleet W fail it ended early: nothing was heard for {patience} s",
            "usdt-fleet W exit 0",
        ]
        assert time.monotonic() - began > patience
    assert not running(kept)


def test_a_reader_that_vanishes_without_a_word_ends_the_command(tmp_path: Path) -> None:
    kept = app(_TALKER)
    with Far(tmp_path, kept, "1000000000", patience=0.5) as far:
        far.line()
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
        until(lambda: not running(kept), "the command to end")  # nobody reads
        assert far.child.wait(30) != 0


def test_a_slow_reader_that_is_there_gets_all(tmp_path: Path) -> None:
    kept = app(_TALKER)
    with Far(tmp_path, kept, "500") as far:
        far.line()
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
        assert far.child.stdout is not None
        pipe = far.child.stdout.fileno()
        # Lines share a page only if they fit into it: a full pipe has 40,000 bytes or more of them.
        until(lambda: unread(pipe) >= 40_000, "the pipe to be full", patient(30))
        lines = [far.line() for _ in range(501)]
    assert lines == ["x" * 999] * 500 + ["usdt-fleet W exit 0"]


def unread(pipe: int) -> int:
    """The bytes in a pipe."""
    content = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(content, sys.byteorder)


def test_a_command_that_says_nothing_is_alive(tmp_path: Path) -> None:
    kept = app(_SLEEPER)
    with Far(tmp_path, kept, beat=0.1) as far:
        far.line()
        far.send(kept.content)
        assert far.line() == "usdt-fleet W run"
        lines = [far.line()]
        while "started" not in lines:  # it may take longer to start than we are silent
            lines.append(far.line())
        lines += [far.line(), far.line()]
        far.close()
    assert {*lines} == {"usdt-fleet W alive", "started"}


def test_the_end_has_a_line_of_its_own(tmp_path: Path) -> None:
    kept = app(_CUT)
    with Far(tmp_path, kept) as far:
        far.line()
        far.send(kept.content)
        lines = [far.line() for _ in range(3)]
    assert lines == ["usdt-fleet W run", "no newline", "usdt-fleet W exit 3"]


def test_what_a_command_prints_can_be_its_answer(tmp_path: Path) -> None:
    kept = app("import sys; print(sys.argv[1:])")
    with Far(tmp_path, kept, "list", printed=True) as far:
        far.line()
        far.send(kept.content)
        assert [far.line(), far.line()] == ["usdt-fleet W run", "['list']"]


def test_old_copies_go_when_a_new_one_comes(tmp_path: Path) -> None:
    folder = tmp_path / ".cache" / "usdt-fleet"
    folder.mkdir(parents=True, mode=0o700)
    day = 86400
    for name, days in (("a", 1), ("b", 2), ("c", 3), ("d", 4), ("busy", 5), ("e", 6), ("f", 31)):
        copy = folder / f"usdt-{name}.pyz"
        copy.touch()
        os.utime(copy, times=(time.time() - days * day,) * 2)
        copy.with_suffix("").mkdir()  # unpacked
    partial = folder / ".usdt-died.1.2"
    partial.touch()
    os.utime(partial, times=(time.time() - 32 * day,) * 2)
    with (folder / "usdt-busy.pyz").open() as busy:
        fcntl.flock(busy, fcntl.LOCK_SH)  # as a run does
        kept = app(_OURS)
        with Far(tmp_path, kept) as far:
            assert far.line() == "usdt-fleet W need"
            far.send(kept.content)
            assert far.line() == "usdt-fleet W run"
    names = {path.name.removeprefix("usdt-") for path in folder.iterdir()}
    unpacked = {"a", "b", "c", "d", "busy"}
    assert names == {*unpacked, *(f"{name}.pyz" for name in {*unpacked, kept.digest})}


def test_the_death_of_the_transport_ends_the_command(tmp_path: Path) -> None:
    kept = app(_SLEEPER)
    with Far(tmp_path, kept) as far:
        far.line()
        far.send(kept.content)
        assert [far.line(), far.line()] == ["usdt-fleet W run", "started"]
        assert running(kept)
        for pipe in (far.child.stdin, far.child.stdout):
            assert pipe is not None
            pipe.close()
        until(lambda: not running(kept), "the command to end")


def running(kept: App) -> list[int]:
    """The processes that run this copy."""
    name = f"usdt-{kept.digest}.pyz".encode()
    return [pid for pid, words in command_lines() if name in words]


@pytest.mark.parametrize(
    ("version", "found"), [("3.9.2", "3.9.2"), (None, "none")], ids=["old Python", "no Python"]
)
def test_a_machine_without_a_recent_python_says_so(
    tmp_path: Path, version: str | None, found: str
) -> None:
    shell = Path("/bin/sh").resolve()
    (tmp_path / "sh").symlink_to(shell)
    if version:
        old = tmp_path / "python3"
        old.write_text(f"#!/bin/sh\ncase $2 in *version_info*) exit 1 ;; esac\necho {version}\n")
        old.chmod(0o755)
    # The system's own is named by its path, which is not there under chroot only: so take it out.
    command = far_command({"word": "W"}).replace("/usr/bin/python3 ", "")
    done = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": str(tmp_path)},
        executable=shell,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == (
        f"usdt-fleet W fail needs Python 3.11 or newer, found {found}\n",
        1,
    )


def test_the_far_end_needs_the_standard_library_only() -> None:
    text = Path(far_end.__file__).read_text()
    assert "import usdt" not in text
    assert "from usdt" not in text


@pytest.mark.parametrize(
    ("via", "said"),
    [
        ("no\x1bsuch {node}", r"no\x1bsuch {node}: there is no program no\x1bsuch on this machine"),
        ("srun", "srun: there is no program srun on this machine: install slurm-client"),
        ("sh -c", "sh -c: has no {node}: every machine would be the same one"),
        ("", ": empty; give ssh, clush, kubectl, srun or a command with {node}"),
    ],
)
def test_a_transport_that_cannot_work_is_an_error(
    via: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/bin")
    with pytest.raises(TargetError) as caught:
        template_words(via, 5)
    assert str(caught.value).removeprefix("--via").removeprefix(" ") == said


def test_clush_is_found_beside_python(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ClusterShell", reason="needs ClusterShell: pip install ClusterShell")
    monkeypatch.setenv("PATH", "/nowhere")
    assert template_words("clush", 5)[0] == f"{Path(sys.executable).parent}/clush"
