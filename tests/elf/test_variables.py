"""Where variables of programs and libraries are: in the file itself, or where another has them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from cross import library_of
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from skips import need_program

from usdt.base.errors import TracingError
from usdt.elf.file import ElfFile
from usdt.elf.got_slots import read_slots
from usdt.elf.symbol_tables import SymbolTables
from usdt.elf.variables import Place, VariablePlaces

if TYPE_CHECKING:
    from pathlib import Path

_LIBRARY = """
int shared = 1, unused = 2;
extern int other_name __attribute__((alias("shared")));
static int own = 3;
__attribute__((visibility("protected"))) int protected = 4;
__thread int tl = 5;
int step(int n) { shared += n; own += n; protected += n; return tl += n; }
"""
_MAIN = """
extern int shared, unused;
int step(int), exported = 6, table[4];
int main(void) { return step(shared + unused + exported++ + table[1]); }
"""


def build(folder: Path, name: str, source: str, *options: str) -> Path:
    (folder / f"{name}.c").write_text(source)
    command = [need_program("gcc"), "-O1", f"{name}.c", *options, "-o", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and "-m32" in options:
        pytest.skip("needs a compiler of 32-bit programs: apt-get install gcc-multilib")
    assert done.returncode == 0, done.stderr
    return folder / name


def places(path: Path, *names: str) -> dict[str, Place | str]:
    """What is found of each name: a place, or why there is none."""
    found: dict[str, Place | str] = {}
    with ElfFile(str(path)) as elf, SymbolTables(elf) as symbols:
        known = VariablePlaces(elf, symbols)
        for name in names:
            (symbol,) = symbols.variables(name)
            try:
                imported = symbol.imported
                found[name] = known.imported(name) if imported else known.defined(symbol.address)
            except TracingError as err:
                found[name] = str(err)
    return found


def slots(path: Path) -> dict[str, int]:
    with ElfFile(str(path)) as elf:
        return {name.decode(): address for name, address in read_slots(elf)}


def address(path: Path, name: str) -> int:
    with ElfFile(str(path)) as elf, SymbolTables(elf) as symbols:
        (symbol,) = symbols.variables(name)
        return symbol.address


@pytest.mark.parametrize("word", [(), ("-m32",)], ids=["64 bits", "32 bits"])
def test_a_library_finds_what_it_exports_by_its_table(
    word: tuple[str, ...], tmp_path: Path
) -> None:
    library = build(tmp_path, "lib.so", _LIBRARY, *word, "-fPIC", "-shared")
    found = places(library, "shared", "other_name", "unused", "own", "protected")
    slot = Place(slots(library)["shared"], indirect=True)
    assert found["shared"] == found["other_name"] == slot
    assert found["own"] == Place(address(library, "own"))
    assert found["protected"] == Place(address(library, "protected"))
    assert "lib.so exports it without using it" in str(found["unused"])


def test_a_library_that_binds_its_own_symbols(tmp_path: Path) -> None:
    library = build(tmp_path, "lib.so", _LIBRARY, "-fPIC", "-shared", "-Wl,-Bsymbolic")
    assert places(library, "shared", "unused") == {
        name: Place(address(library, name)) for name in ("shared", "unused")
    }


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-fPIE", "-pie", "-rdynamic"), id="position-independent"),
        pytest.param(("-fno-pie", "-no-pie", "-rdynamic"), id="at a fixed address"),
    ],
)
def test_a_program_has_copies(options: tuple[str, ...], tmp_path: Path) -> None:
    build(tmp_path, "lib.so", _LIBRARY, "-fPIC", "-shared")
    program = build(tmp_path, "main", _MAIN, *options, "./lib.so")
    names = ("shared", "unused", "exported", "table")
    assert places(program, *names) == {name: Place(address(program, name)) for name in names}


def test_a_program_without_copies_uses_its_table(tmp_path: Path) -> None:
    build(tmp_path, "lib.so", _LIBRARY, "-fPIC", "-shared")
    program = build(tmp_path, "main", _MAIN, "-fPIC", "-pie", "./lib.so")
    known = slots(program)
    assert places(program, "shared", "unused") == {
        name: Place(known[name], indirect=True) for name in ("shared", "unused")
    }


def test_what_a_program_does_not_refer_to_is_unknown(tmp_path: Path) -> None:
    library = build(tmp_path, "lib.so", "extern int far; int *p = &far;", "-fPIC", "-shared")
    found = places(library, "far")
    assert "it is defined in another file" in str(found["far"])


def test_thread_local_variables_are_known_as_such(tmp_path: Path) -> None:
    library = build(tmp_path, "lib.so", _LIBRARY, "-fPIC", "-shared")
    with ElfFile(str(library)) as elf, SymbolTables(elf) as symbols:
        assert [one.type for one in symbols.variables("tl")] == [6]
        assert symbols.named("tl") == []


_MACHINES = ("aarch64", "arm", "mips64el", "ppc64le", "riscv64", "s390x")


@pytest.mark.parametrize("machine", _MACHINES)
def test_libraries_of_each_cpu(machine: str, tmp_path: Path) -> None:
    source = "int shared = 1; static int own; int step(int n) { own += n; return shared += n; }"
    library = library_of(machine, source, tmp_path)
    found = places(library, "shared", "own")
    assert found["own"] == Place(address(library, "own"))
    if machine == "mips64el":
        assert "programs of mips64el that may have a copy are not supported" in str(found["shared"])
        return
    place = found["shared"]
    assert isinstance(place, Place)
    assert place.indirect
    assert slots(library)["shared"] == place.address
    with library.open("rb") as file:
        elf = ELFFile(file)
        tables = [one for one in elf.iter_sections() if isinstance(one, RelocationSection)]
        rows = [(one, word) for one in tables for word in one.iter_relocations()]
        words = [(elf.get_section(one["sh_link"]), word) for one, word in rows]
        named = {
            word["r_offset"]: symbols.get_symbol(word["r_info_sym"]).name for symbols, word in words
        }
    assert named[place.address] == "shared"
