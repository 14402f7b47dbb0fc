"""Programs that a compiler made before are copied, and made anew where anything is different."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kept_builds import compile_in

# Says where it ran, and makes two files of one. With -v it speaks, with -x it fails.
_COMPILER = """#!/bin/sh
pwd >>{told}
[ "$1" != -v ] || echo hello
cat source "$1" >made 2>/dev/null
echo more >folder/more
[ "$1" != -x ]
"""


class _Compiler:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.path, self.kept, self._told = folder / "compiler", folder / "kept", folder / "told"
        self._folder, self._number = folder, 0
        self._told.touch()
        self.path.write_text(_COMPILER.format(told=self._told))
        self.path.chmod(0o755)

    @property
    def runs(self) -> list[str]:
        return self._told.read_text().splitlines()

    def compiled(self, source: str, *words: str, check: bool = True) -> Path:
        """What it made, in a folder of its own."""
        self._number += 1
        folder = self._folder / f"of{self._number}"
        (folder / "folder").mkdir(parents=True)
        (folder / "source").write_text(source)
        (folder / "lib.so").touch()
        command = [self.path, *(word.replace("HERE", str(folder)) for word in words)]
        compile_in(folder, command, check=check, kept=self.kept)
        return folder


@pytest.fixture
def compiler(tmp_path: Path) -> _Compiler:
    return _Compiler(tmp_path)


def test_equal_builds_are_one(compiler: _Compiler) -> None:
    for _ in range(2):
        folder = compiler.compiled("one\n", "HERE/source")
        assert (folder / "made").read_text() == "one\none\n"
        assert (folder / "folder/more").read_text() == "more\n"
    (place,) = compiler.runs
    assert Path(place, "made").exists(), "debug information names files here"
    assert (folder / "made").stat().st_nlink == 1, "tests change what is theirs"


def test_others_are_made_anew(compiler: _Compiler) -> None:
    assert (compiler.compiled("one\n") / "made").read_text() == "one\n"
    assert (compiler.compiled("two\n") / "made").read_text() == "two\n"
    compiler.compiled("two\n", "-O2")
    assert len(compiler.runs) == 3
    later = _Compiler(compiler.path.parent / "later")
    later.kept = compiler.kept
    later.compiled("two\n", "-O2")
    assert len(later.runs) == 1, "another compiler"


@pytest.mark.parametrize("option", ["-x", "-v"])
def test_what_fails_or_speaks_is_not_kept(compiler: _Compiler, option: str) -> None:
    for _ in range(2):
        folder = compiler.compiled("one\n", option, check=False)
        assert compiler.runs[-1] == str(folder), "messages name the test's folder"
    if option == "-x":
        with pytest.raises(subprocess.CalledProcessError):
            compiler.compiled("one\n", option)


def test_what_nobody_used_for_a_month_goes(compiler: _Compiler) -> None:
    compiler.compiled("one\n")
    (mark,) = compiler.kept.glob("*/complete")
    os.utime(mark, (0, 0))
    compiler.compiled("two\n")
    assert not mark.exists()
    compiler.compiled("one\n")
    assert len(compiler.runs) == 3


def test_each_test_builds_where_nothing_can_be_kept(compiler: _Compiler, tmp_path: Path) -> None:
    compiler.kept = tmp_path / "compiler/kept"
    folders = [compiler.compiled("one\n") for _ in range(2)]
    assert compiler.runs == [*map(str, folders)]


def test_programs_load_libraries_beside_them(compiler: _Compiler) -> None:
    for word in ("HERE/lib.so", "-Wl,-rpath,HERE"):
        folder = compiler.compiled("one\n", word)
        assert compiler.runs[-1] == str(folder)
