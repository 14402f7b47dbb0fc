"""Debug information is read, and its files are closed, by every Python of this machine.

Those before 3.11.5 match patterns otherwise, and those from 3.12 on free errors otherwise.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from dwarf_programs import program

_ROOT = Path(__file__).resolve().parents[1]
_ASK = """
from usdt.uprobes.debug_info import debug_of
debug = debug_of({path!r}, {path!r})
print(debug.btf.size_of(debug.type_id("struct header")))
"""


def _pythons() -> list[str]:
    # Of the system and of pyenv, but for the one that runs this.
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/bin").glob("python3.1[1-9]"), *pyenv.glob("3.1[1-9].*/bin/python3.1[1-9]")]
    real = Path(sys.executable).resolve()
    return sorted(str(path) for path in found if path.resolve() != real)


each_python = pytest.mark.parametrize("python", _pythons() or [None])


def _run(python: str | None, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    if python is None:
        pytest.skip("needs another Python, 3.11 or newer: apt-get install python3")
    return subprocess.run(
        [python, *words],
        cwd=_ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{_ROOT}:{sysconfig.get_paths()['purelib']}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(cache),  # no index that another Python has made
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@each_python
def test_types_are_read_by_other_pythons(python: str | None, tmp_path: Path) -> None:
    done = _run(python, tmp_path, "-c", _ASK.format(path=str(program("gccO2v5", "values"))))
    assert (done.stdout, done.stderr) == ("16\n", "")


@each_python
def test_damaged_files_are_closed_by_other_pythons(python: str | None, tmp_path: Path) -> None:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    chosen = ("tests/dwarf/test_damage.py", "-k", "changed_files")
    done = _run(python, tmp_path, *words, *chosen)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
