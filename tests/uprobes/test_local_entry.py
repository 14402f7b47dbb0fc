"""Functions of 64-bit PowerPC: probes go where callers of the same file enter, too."""

from __future__ import annotations

import re
import subprocess

import fixtures
import pytest
from skips import need_program

from usdt.elf.file import ElfFile
from usdt.elf.symbol_table import _local_entry
from usdt.elf.symbol_tables import SymbolTables
from usdt.uprobes.functions import FunctionFile


def entries(path: object) -> dict[str, tuple[int, int]]:
    """Functions with a local entry: name → address, bytes to the entry; by readelf's account."""
    done = subprocess.run(
        [need_program("readelf", "binutils"), "-sW", str(path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    row = re.compile(r": ([0-9a-f]{16}) .* \[<localentry>: (\d+)\] +\d+ (\w+)$", re.MULTILINE)
    return {name: (int(at, 16), int(ahead)) for at, ahead, name in row.findall(done.stdout)}


def test_a_probe_on_a_function_is_at_its_local_entry() -> None:
    checked = 0
    for path in fixtures.cross("ppc64el")[:8]:
        known = entries(path)
        with FunctionFile(str(path)) as file:
            for name, (address, ahead) in known.items():
                (found,) = (one for one in file.find(name) if one.start == address)
                assert found.offset == file.elf.offset_of(address + ahead, executable=True)
                assert (found.symbol, found.offset_in_function) == (name, 0)
                # An offset counts from the symbol's address, as in objdump's lines.
                (inside,) = (one for one in file.find(f"{name}+4") if one.start == address)
                assert inside.offset == file.elf.offset_of(address + 4, executable=True)
                checked += 1
    assert checked > 20


def test_other_machines_have_no_local_entries() -> None:
    for cpu in ("arm64", "riscv64", "s390x"):
        path = fixtures.cross(cpu)[0]
        with SymbolTables(ElfFile(path)) as tables:
            assert tables.elf.machine != 21
            assert not any(one.local_entry for one in tables.matching(lambda _: True))


@pytest.mark.parametrize(
    ("other", "ahead"), [(0, 0), (0x20, 0), (0x40, 4), (0x60, 8), (0x80, 16), (0xC0, 64), (0xE0, 0)]
)
def test_st_other_says_how_far_it_is(other: int, ahead: int) -> None:
    assert _local_entry(other | 3) == ahead  # the low bits are the visibility
