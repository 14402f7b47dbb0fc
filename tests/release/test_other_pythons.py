"""Debug information is read, and its files are closed, by every Python of this machine.

Those before 3.11.5 match patterns otherwise, and those from 3.12 on free errors otherwise: the
oldest and the newest read damaged files. ``make test-pythons`` has all of them do everything.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from dwarf_programs import program
from house import ROOT
from pythons import OTHERS, each_other_python, interpreter

_ASK = """
from usdt.uprobes.debug_info import debug_of
debug = debug_of({path!r}, {path!r})
print(debug.btf.size_of(debug.type_id("struct header")))
"""


def _run(python: str, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [interpreter(python), *words],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{sysconfig.get_paths()['purelib']}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(cache),  # no index that another Python has made
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@each_other_python
def test_types_are_read_by_other_pythons(python: str, tmp_path: Path) -> None:
    done = _run(python, tmp_path, "-c", _ASK.format(path=str(program("gccO2v5", "values"))))
    assert (done.stdout, done.stderr) == ("16\n", "")


@pytest.mark.parametrize("python", [OTHERS[0], OTHERS[-1]], ids=lambda name: Path(name).name)
def test_damaged_files_are_closed_by_other_pythons(python: str, tmp_path: Path) -> None:
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    chosen = ("tests/dwarf/test_damage.py", "-k", "changed_files")
    done = _run(python, tmp_path, *words, *chosen)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
