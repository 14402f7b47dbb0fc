"""usdt.targets.search.target_files: words that people write, and the files they mean."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import as_nobody, copied_sleep, libc_of, open_folder, running, system_libc
from skips import need_program

from usdt.base.errors import TargetError
from usdt.targets.search.target_files import (
    Target,
    is_file_pattern,
    matches_file,
    resolve_target,
    resolve_targets,
)

PYTHON = Path(sys.executable).resolve()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("{here}/program", id="absolute"),
        pytest.param("./program", id="relative"),
        pytest.param("folder/../program", id="relative with dots"),
        pytest.param("~/program", id="of the home directory"),
        pytest.param("program", id="a bare word names a file here"),
    ],
)
def test_paths(here: Path, word: str) -> None:
    program = copied_sleep(here / "program")
    given = word.format(here=here)
    assert resolve_target(given) == Target(str(program), str(program), given)
    assert os.fspath(resolve_target(given)) == str(program)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("word", ["libc", "{name}"])
def test_a_library(word: str) -> None:
    target = resolve_target(word.format(name=system_libc().name))
    assert Path(target.path).samefile(system_libc())
    assert Path(target.open_path).samefile(system_libc())


def test_a_program_here_goes_before_path_and_a_text_here_after_it(here: Path) -> None:
    assert resolve_target("sleep").path == shutil.which("sleep")
    (here / "sleep").write_text("a text")
    assert resolve_target("sleep").path == shutil.which("sleep")
    assert resolve_target("./sleep").path == f"{here}/sleep"
    copied_sleep(here / "sleep")
    assert resolve_target("sleep").path == f"{here}/sleep"
    (here / "onlyhere").write_text("a text")
    assert resolve_target("onlyhere").path == f"{here}/onlyhere"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        pytest.param("/nonexistent/x", "/nonexistent/x: no such file", id="a path to nothing"),
        pytest.param("~/x", "~/x: no such file", id="home, to nothing"),
        pytest.param("./folder", "./folder: is a directory; name", id="a directory"),
        pytest.param("folder", "folder: is a directory; name", id="a directory as a bare word"),
        pytest.param("/dev/null", "/dev/null: is not a regular file", id="a device"),
        pytest.param("./fifo", "./fifo: is not a regular file", id="a pipe"),
        pytest.param("./text/x", "./text/x: Not a directory", id="a file as a directory"),
        pytest.param("", "'': not a file's name", id="nothing"),
        pytest.param("a\0b", r"'a\x00b': not a file's name", id="a NUL byte"),
        pytest.param(
            "libcx",
            "libcx: no file, library or program of that name (searched the current directory, ",
            id="a misspelling",
        ),
    ],
)
def test_what_is_no_target(here: Path, word: str, message: str) -> None:
    (here / "folder").mkdir()
    (here / "text").touch()
    os.mkfifo(here / "fifo")
    with pytest.raises(TargetError) as caught:
        resolve_target(word)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("word", "end"),
    [
        pytest.param("slep", "; nearest: sleep)", id="a program"),
        pytest.param("libcx", "; nearest: libc.so.6)", id="a library"),
        pytest.param("xyzzyplughfrotz", "running processes)", id="nothing is near"),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_nearest_name_is_offered(word: str, end: str) -> None:
    with pytest.raises(TargetError) as caught:
        resolve_target(word)
    assert str(caught.value).endswith(end)


def test_a_file_that_must_not_be_read() -> None:
    with open_folder() as folder:
        path = copied_sleep(folder / "secret")
        path.chmod(0o700)
        answer = as_nobody(lambda: resolve_target(str(path)).path)
    reason = "no permission to read it; run as root or as its owner"
    assert answer == f"TargetError: {path}: {reason}"


def test_a_library_that_only_a_process_knows(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "elsewhere"):
        (here / name).mkdir()
    word = f"libprobing_{os.getpid()}"
    one = copied_sleep(here / "one" / f"{word}.so.1")
    two = copied_sleep(here / "two" / f"{word}.so.1")
    monkeypatch.chdir(here / "elsewhere")
    with running(one, "60", program=one.name):
        assert resolve_target(word).path == str(one)
        with running(two, "60", program=two.name), pytest.raises(TargetError) as caught:
            resolve_target(word)
    assert str(caught.value) == (
        f"{word}: 2 files of that name are mapped by running processes "
        f"({one}, {two}): give a path, or a process with -p"
    )


@pytest.mark.usefixtures("here")
def test_javas_library_needs_no_running_java() -> None:
    need_program("java", "default-jre-headless")
    assert Path(resolve_target("libjvm.so").path).name == "libjvm.so"


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("libc", id="a library's name"),
        pytest.param("{libc}", id="its path"),
        pytest.param("{link}", id="a link to it"),
    ],
)
def test_files_of_a_process_are_reached_through_it(here: Path, word: str) -> None:
    link = here / "link"
    link.symlink_to(libc_of(os.getpid()))
    target = resolve_target(word.format(libc=libc_of(os.getpid()), link=link), pid=os.getpid())
    assert Path(target.path) == libc_of(os.getpid())
    assert target.open_path.startswith(f"/proc/{os.getpid()}/")
    assert Path(target.open_path).read_bytes() == libc_of(os.getpid()).read_bytes()


@pytest.mark.parametrize("word", ["{name}", "{path}", "python", "python3"])
def test_the_program_of_a_process(word: str) -> None:
    with running(PYTHON, "-S", "-c", "input()", program=PYTHON.name) as child:
        target = resolve_target(word.format(name=PYTHON.name, path=PYTHON), pid=child.pid)
        assert target.path == str(PYTHON)
        assert Path(target.open_path).samefile(PYTHON)


def test_the_command_name_of_a_process(tmp_path: Path) -> None:
    program = copied_sleep(tmp_path / "program")
    (tmp_path / "alias").symlink_to(program)
    with running(tmp_path / "alias", "60", program="program") as child:
        assert resolve_target("alias", pid=child.pid).path == str(program)


@pytest.mark.parametrize(
    ("word", "start", "end"),
    [
        pytest.param(
            "/nonexistent",
            "/nonexistent: no such file in the mount namespace of process ",
            "",
            id="a path to nothing",
        ),
        pytest.param("/usr", "/usr: is a directory", "", id="a directory"),
        pytest.param(
            "libcx",
            "libcx: no file, library or program of that name (searched the files mapped by ",
            "; nearest: libc.so.6)",
            id="a misspelling",
        ),
    ],
)
def test_what_a_process_does_not_have(word: str, start: str, end: str) -> None:
    with pytest.raises(TargetError) as caught:
        resolve_target(word, pid=os.getpid())
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(end)


@pytest.mark.root
def test_a_deleted_file_is_the_one_that_runs(tmp_path: Path) -> None:
    program = copied_sleep(tmp_path / "program")
    original = program.read_bytes()
    with running(program, "60", program="program") as child:
        program.unlink()
        for word in ("program", str(program)):
            target = resolve_target(word, pid=child.pid)
            assert target.path == str(program)
            assert Path(target.open_path).read_bytes() == original


@pytest.mark.root
def test_of_a_replaced_file_the_path_is_the_new_one_and_the_name_the_running_one(
    tmp_path: Path,
) -> None:
    program = copied_sleep(tmp_path / "program")
    original = program.read_bytes()
    with running(program, "60", program="program") as child:
        program.unlink()
        program.write_text("the new one")
        target = resolve_target("program", pid=child.pid)
        assert Path(target.open_path).read_bytes() == original
        target = resolve_target(str(program), pid=child.pid)
        assert Path(target.open_path).read_bytes() == original


@pytest.mark.root
def test_names_are_those_of_the_process(tmp_path: Path) -> None:
    need_program("unshare", "util-linux")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    program = copied_sleep(inside / "program")
    (inside / "link").symlink_to(outside / "other")
    (inside / "other").write_text("inside")
    (outside / "other").write_text("outside")
    (outside / "only").write_text("hidden by the mount")
    script = f"mount --bind {inside} {outside} && exec {outside}/program 60"
    with running("unshare", "-m", "sh", "-c", script, program="program") as child:
        for word in ("program", f"{outside}/program"):
            target = resolve_target(word, pid=child.pid)
            assert target.path == f"{outside}/program"
            assert Path(target.open_path).read_bytes() == program.read_bytes()
        for name in ("other", "link"):
            target = resolve_target(f"{outside}/{name}", pid=child.pid)
            assert Path(target.open_path).read_text() == "inside"
        with pytest.raises(TargetError, match="no such file in the mount namespace"):
            resolve_target(f"{outside}/only", pid=child.pid)


@pytest.mark.root
def test_our_name_of_a_file_that_the_process_knows_by_another(tmp_path: Path) -> None:
    need_program("unshare", "util-linux")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    program = copied_sleep(ours / "program")
    hidden = f"mount --bind {ours} {theirs} && mount -t tmpfs none {ours}"
    script = f"{hidden} && exec {theirs}/program 60"
    with running("unshare", "-m", "sh", "-c", script, program="program") as child:
        target = resolve_target(str(program), pid=child.pid)
        assert target.path == f"{theirs}/program"
        assert Path(target.open_path).read_bytes() == program.read_bytes()


@pytest.mark.root
def test_a_process_in_a_chroot(tmp_path: Path) -> None:
    chroot, gcc = need_program("chroot", "coreutils"), need_program("gcc")
    source = tmp_path / "static.c"
    source.write_text("#include <unistd.h>\nint main(void) { return pause(); }\n")
    program = tmp_path / "new" / "bin" / "waiting"
    program.parent.mkdir(parents=True)
    subprocess.run([gcc, "-static", "-o", program, source], check=True)
    with running(chroot, tmp_path / "new", "/bin/waiting", program="waiting") as child:
        for word in ("waiting", "/bin/waiting", str(program)):
            target = resolve_target(word, pid=child.pid)
            assert Path(target.open_path).read_bytes() == program.read_bytes()


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(TargetError, match=r"^no process 4194305; list processes with: ps -e$"):
        resolve_target("libc", pid=4194305)


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*", "/usr/lib/libc.so.6", True),
        ("libc*", "/usr/lib/libc.so.6", True),
        ("lib[a-b]*", "/usr/lib/libc.so.6", False),
        ("/usr/*/libc.so.?", "/usr/lib/libc.so.6", True),
        ("/usr/*", "/usr/lib/libc.so.6", False),
        ("/*/*/*", "/usr/lib/libc.so.6", True),
        ("./lib*", "libc.so.6", True),
        ("lib/*", "./lib/libc.so.6", True),
    ],
)
def test_a_pattern_matches_the_last_component_or_the_whole_path(
    pattern: str, path: str, *, fits: bool
) -> None:
    assert matches_file(pattern, path) is fits


def test_files_by_a_pattern(here: Path) -> None:
    programs = [copied_sleep(here / name) for name in ("test_b", "test_a", "odd*name")]
    (here / "test_text").write_text("no program")
    (here / "test_folder").mkdir()
    assert [one.path for one in resolve_targets("./test_*")] == [str(programs[1]), str(programs[0])]
    assert not is_file_pattern("./odd*name")
    assert [one.path for one in resolve_targets("./odd*name")] == [str(programs[2])]
    with pytest.raises(TargetError, match=r"\./x\*: no program or library matches this pattern"):
        resolve_targets("./x*")
    with pytest.raises(TargetError, match="without a slash selects among the files of processes"):
        resolve_targets("te*")
    with running(str(programs[0]), "100", program="test_b") as process:
        found = [one.path for one in resolve_targets("t*", pid=process.pid)]
        assert found == [str(programs[0])]
        assert resolve_targets(f"{here}/*", pid=process.pid)[0].path == str(programs[0])
        with pytest.raises(TargetError, match=r"that process .* has mapped matches this pattern"):
            resolve_targets("./test_a*", pid=process.pid)
