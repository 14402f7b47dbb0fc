"""Lines of instructions, compared with what CPython itself says of thousands of code objects."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from usdt.cpython.location_table import line_of, line_ranges

_ROOT = Path(__file__).resolve().parents[2]
_CHECK = """
import sys, glob, types, os
from usdt.cpython.location_table import line_of, line_ranges

def codes(code):
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from codes(one)

number = 0
folder = os.path.dirname(os.__file__)
for path in sorted(glob.glob(folder + "/[a-l]*.py"))[:40]:
    with open(path, "rb") as file:
        top = compile(file.read(), path, "exec")
    for code in codes(top):
        number += 1
        found = {}
        for start, end, line in line_ranges(code.co_linetable, code.co_firstlineno):
            for offset in range(start, end, 2):
                found[offset] = line
        said = {2 * index: place[0] for index, place in enumerate(code.co_positions())}
        assert found == said, (path, code.co_name)
        middle = len(code.co_code) // 4 * 2
        assert line_of(code.co_linetable, code.co_firstlineno, middle) == said[middle]
print(number)
"""


def _pythons() -> list[str]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [*Path("/usr/bin").glob("python3.1[1-9]"), *pyenv.glob("3.1[1-9].*/bin/python3.1[1-9]")]
    return sorted({sys.executable, *map(str, found)})


@pytest.mark.parametrize("python", _pythons())
def test_every_instruction_has_the_line_that_this_python_gives_it(python: str) -> None:
    done = subprocess.run(
        [python, "-c", _CHECK],
        env={"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000


def test_a_damaged_table_ends_early() -> None:
    assert line_ranges(b"", 7) == []
    assert line_ranges(b"\x01\x02", 7) == []  # no entry begins so
    assert line_of(b"\xf0", 7, 0) is None  # the number is missing
    assert line_of(b"\xf0\x7f\x7f", 7, 0) is None  # it is cut off
    assert line_of(b"\x80\x00", 7, 0) == 7
    assert line_of(b"\x80\x00", 7, 2) is None  # after its end


def test_any_bytes_are_read_in_time_and_without_an_error() -> None:
    seeded = random.Random(3)
    for _ in range(300):
        table = seeded.randbytes(200)
        ranges = line_ranges(table, 1)
        assert len(ranges) <= len(table)
