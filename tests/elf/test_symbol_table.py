"""Symbols at an address, with and without an index of all addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.elf import symbol_table
from usdt.elf.file import ElfFile
from usdt.elf.format import SHT_SYMTAB
from usdt.elf.symbol_table import SymbolTable

if TYPE_CHECKING:
    from pathlib import Path

    from usdt.elf.symbol import ElfSymbol

_SOURCE = """
int one(void) { return 1; }
int same(void) __attribute__((alias("one")));
static int two(void) { return 2; }
int number, other = 3;
_Thread_local int own;
int main(void) { return one() + two() + number + other + own; }
"""


def _at(path: Path, addresses: list[int], bias: int) -> list[list[ElfSymbol]]:
    with ElfFile(str(path)) as elf:
        section = next(one for one in elf.sections if one.type == SHT_SYMTAB)
        table = SymbolTable(elf, section, bias)
        return [found for at in addresses for found in (table.starting_at(at), table.data_at(at))]


@pytest.mark.parametrize("width", ["-m64", "-m32"])
@pytest.mark.parametrize("bias", [0, 0x1000])
def test_few_addresses_need_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: str, bias: int
) -> None:
    (tmp_path / "a.c").write_text(_SOURCE)
    command = [need_program("gcc"), width, "-O0", "a.c"]
    compile_in(tmp_path, command)
    path = tmp_path / "a.out"
    with ElfFile(str(path)) as elf:
        section = next(one for one in elf.sections if one.type == SHT_SYMTAB)
        names = ("one", "two", "number", "other", "main")
        addresses = [SymbolTable(elf, section).addresses(name)[0] - bias for name in names]
    addresses += [0, -bias, addresses[0] + 1, 1 << 63]
    monkeypatch.setattr(symbol_table, "_MAX_ASKED", 0)
    expected = _at(path, addresses, bias)
    assert {one.name for one in expected[0]} == {"one", "same"}
    monkeypatch.setattr(symbol_table, "_MAX_ASKED", 1 << 10)
    monkeypatch.delattr(SymbolTable, "_index")  # nothing builds it
    assert _at(path, addresses, bias) == expected
