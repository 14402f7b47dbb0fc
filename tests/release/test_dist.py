"""What is released: two builds are the same bytes, and the source distribution is whole."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
from builds import EPOCH, build, checkout, distributions
from house import ROOT

from usdt.base.version import VERSION

if TYPE_CHECKING:
    from pathlib import Path

_DEBIAN = ROOT / "contrib/debian"
#: Files of a checkout that are of no use without its history.
_OF_GIT = {".gitignore"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with a source distribution, the wheel made of it and the single file.

    The second is built from another folder, of files of another age that only their owner can read.
    """
    source, first = distributions(tmp_path_factory)
    other = checkout(tmp_path_factory.mktemp("source") / "another/place")
    for path in other.rglob("*.*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (int(EPOCH) - 1000, int(EPOCH) - 1000))
            path.chmod(path.stat().st_mode & 0o700)
    folders = [first, tmp_path_factory.mktemp("dist")]
    build(other, folders[1])
    for place, folder in zip((source, other), folders, strict=True):
        words = [sys.executable, "tools/pyz.py", folder / "usdt.pyz"]
        subprocess.run(words, cwd=place, check=True, capture_output=True)
    return folders


@pytest.fixture(scope="module")
def sdist(built: list[Path]) -> Path:
    (found,) = built[0].glob("*.tar.gz")
    return found


@pytest.mark.parametrize("pattern", ["*.tar.gz", "*.whl", "usdt.pyz"])
def test_two_builds_are_the_same_bytes(built: list[Path], pattern: str) -> None:
    paths = [path for folder in built for path in folder.glob(pattern)]
    assert len({path.name for path in paths}) == 1
    first, second = (hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
    assert first == second


def test_the_source_distribution_tells_nothing_of_who_built_it(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        entries = archive.getmembers()
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {
        (0, 0, "", "")
    }
    assert {entry.mtime for entry in entries} == {int(EPOCH)}
    assert {oct(entry.mode) for entry in entries} == {"0o644", "0o755"}
    assert all(entry.isfile() or entry.isdir() for entry in entries)


def test_the_source_distribution_has_every_file_of_the_repository(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs a git checkout: its files are what is looked for")
    wanted = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    assert not wanted - names - _OF_GIT
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_pip_installs_the_source_distribution(sdist: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    done = subprocess.run(
        [*pip, "--python", tmp_path / "venv", "install", "--quiet", "--no-compile", sdist],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for words in (
        ["usdt", "decode", "8@%rdi"],
        ["kprobe", "--version"],
        ["usdt", "help", "spans.md"],
    ):
        command = [tmp_path / "venv/bin" / words[0], *words[1:]]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
        assert shown.stdout
    assert (tmp_path / "venv/share/man/man1/usdt-trace.1").is_file()


def test_the_changelog_of_debian_begins_with_the_version() -> None:
    first = (_DEBIAN / "changelog").read_text().splitlines()[0]
    assert re.match(r"usdt-toolkit \((.*)-\d+\) ", first)[1] == VERSION


def test_the_copyright_of_debian_names_every_library_inside() -> None:
    text = (_DEBIAN / "copyright").read_text()
    patterns = re.findall(r"^Files: (.*)$", text, re.MULTILINE)
    vendored = {
        path for path in (ROOT / "usdt/pictures/vendor").iterdir() if path.suffix in {".js", ".css"}
    }
    assert not {
        path.name
        for path in vendored
        if not any(path.relative_to(ROOT).match(one) for one in patterns[1:])
    }
