"""Debug information is read by every Python of this system: those before 3.11.5 match otherwise."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
from dwarf_programs import program

_ASK = """
from usdt.uprobes.debug_info import debug_of
debug = debug_of({path!r}, {path!r})
print(debug.btf.size_of(debug.type_id("struct header")))
"""
_PYTHONS = sorted(
    str(path) for path in Path("/usr/bin").glob("python3.1[0-9]") if path.name >= "python3.11"
)


@pytest.mark.parametrize("python", _PYTHONS or [None])
def test_types_are_read_by_the_systems_own_python(python: str | None, tmp_path: Path) -> None:
    if python is None:
        pytest.skip("needs a Python of the system, 3.11 or newer: apt-get install python3")
    root = Path(__file__).resolve().parents[1]
    path = program("gccO2v5", "values")
    done = subprocess.run(
        [python, "-c", _ASK.format(path=str(path))],
        env={
            "PYTHONPATH": f"{root}:{sysconfig.get_paths()['purelib']}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(tmp_path),  # no index that another Python has made
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("16\n", "")
