"""A file that another process truncates and rewrites all the time while it is read."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from debug_programs import compiled
from elfwriter import note, probe_elf
from house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_TRUNCATE = """
import os, sys
data = open(sys.argv[1], "rb").read()
with open(sys.argv[1], "r+b", buffering=0) as file:
    while os.getppid() == int(sys.argv[2]):
        for size in (len(data) // 2, 0):
            os.ftruncate(file.fileno(), size)
            os.pwrite(file.fileno(), data, 0)
"""
_READ = """
import os, sys, time
os.environ["XDG_CACHE_HOME"] = "/dev/null/none"
from usdt.base.errors import TracingError
from usdt.dwarf.info import DebugInfo
from usdt.elf.file import ElfFile
from usdt.elf.symbol_tables import SymbolTables
from usdt.probes.probe import read_probes

def notes(path):
    read_probes(path)

def symbols(path):
    with SymbolTables(ElfFile(path), debug_root="/nonexistent") as tables:
        tables.matching(lambda name: True)
        tables.find(0x1000)
        if not tables._tables:
            raise TracingError("damaged")

def types(path):
    with ElfFile(path) as elf, DebugInfo.of(elf) as info:
        info.type_id("int")

read, path = vars()[sys.argv[1]], sys.argv[2]
whole = damaged = 0
end = time.monotonic() + 100
while (whole < 5 or damaged < 100) and time.monotonic() < end:
    try:
        read(path)
        whole += 1
    except TracingError as err:
        assert "\\n" not in str(err)
        damaged += 1
    except AttributeError:  # no debug information was found
        damaged += 1
print(whole >= 5, damaged >= 100)
"""


@pytest.mark.parametrize("what", ["notes", "symbols", "types"])
def test_a_file_that_is_truncated_while_it_is_read_is_an_error(what: str, tmp_path: Path) -> None:
    if what == "notes":
        path = tmp_path / "file"
        path.write_bytes(probe_elf(b"".join(note(name=b"n%d" % one) for one in range(200))))
    else:
        path = compiled(tmp_path, "gcc")
    words = [sys.executable, "-c", _TRUNCATE, str(path), str(os.getpid())]
    with subprocess.Popen(words) as truncating:
        try:
            done = subprocess.run(
                [sys.executable, "-c", _READ, what, str(path)],
                env={"PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            truncating.kill()
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
