"""C++ classes with virtual functions are found by their symbols, without a search."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from kept_builds import compile_in
from skips import need_program

from usdt.dwarf.index import index, type_search
from usdt.dwarf.index.class_units import class_units
from usdt.dwarf.index.type_search import TypeSearch
from usdt.dwarf.info import DebugInfo
from usdt.dwarf.units.constants import TypeKind
from usdt.elf.file import ElfFile

HEADER = """
class Thread { public: virtual ~Thread(); virtual int run() const; long member; };
namespace vm { namespace gc {
class Heap {
public:
    Heap(); virtual int size() const;
    struct Region { char name[40]; }; Region first;
};
} }
struct Plain { int one; int twice() const; };
inline int ask(const Thread *one) { return one->run(); }
"""
FIRST = """
#include "all.h"
int Plain::twice() const { return 2 * one; }
int main() { Thread one; vm::gc::Heap heap; return ask(&one) + heap.size(); }
"""
LAST = """
#include "all.h"
Thread::~Thread() {}
int Thread::run() const { return 1; }
vm::gc::Heap::Heap() {}
int vm::gc::Heap::size() const { return 2; }
"""
NAMES = ("Thread", "vm::gc::Heap")
BUILDS = [
    pytest.param("g++", ("-gdwarf-5",), id="g++, DWARF 5"),
    pytest.param("g++", ("-gdwarf-4", "-gz"), id="g++, DWARF 4, compressed"),
    pytest.param("clang++", ("-gdwarf-5", "-gdwarf-aranges"), id="clang++, DWARF 5"),
]


@pytest.fixture(autouse=True)
def small_files_and_a_new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask symbols about small files, too; no index of an earlier run."""
    monkeypatch.setattr(type_search, "_MIN_LARGE", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def built(folder: Path, compiler: str, *options: str) -> Path:
    """A copy of a program of two units, of which the second has the vtables."""
    program = folder / "program"
    program.write_bytes(_contents(compiler, *options))
    return program


@functools.cache
def _contents(compiler: str, *options: str) -> bytes:
    need_program(compiler)
    with TemporaryDirectory() as folder:
        for name, text in (("all.h", HEADER), ("first.cpp", FIRST), ("last.cpp", LAST)):
            Path(folder, name).write_text(text)
        command = [compiler, "-g", *options, "first.cpp", "last.cpp", "-o", "program"]
        compile_in(Path(folder), command)
        return Path(folder, "program").read_bytes()


@pytest.mark.parametrize(("compiler", "options"), BUILDS)
def test_symbols_lead_to_the_unit_with_the_vtable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(index, "build", None)
    monkeypatch.setattr(TypeSearch, "positions", None)  # nothing is searched
    with ElfFile(built(tmp_path, compiler, *options)) as elf, DebugInfo.of(elf) as info:
        sizes = [info.btf.size_of(info.type_id(name)) for name in NAMES]
        last = info._files.main.headers[1].at
        assert [class_units(info._files.main, name)[0] for name in NAMES] == [last, last]
    assert sizes == [16, 48]


@pytest.mark.parametrize(("compiler", "options"), BUILDS[:2])
def test_it_finds_what_the_index_has(
    tmp_path: Path, compiler: str, options: tuple[str, ...]
) -> None:
    with ElfFile(built(tmp_path, compiler, *options)) as elf, DebugInfo.of(elf) as info:
        listed = list(info._index.types())
        found = [(kind, name, TypeSearch(info._files).find(kind, name)) for kind, name, _ in listed]
        assert len(listed) >= len(NAMES)
        assert found == listed
        assert TypeSearch(info._files).find(TypeKind.UNION, "Thread") is None


@pytest.mark.parametrize(
    "name", ["Plain", "Threa", "hread", "vm", "vm::gc", "Heap", "", "::", "a b", "std::string"]
)
def test_other_names_are_left_to_the_search(tmp_path: Path, name: str) -> None:
    with ElfFile(built(tmp_path, "g++")) as elf, DebugInfo.of(elf) as info:
        assert class_units(info._files.main, name) == []


@pytest.mark.parametrize(
    ("missing", "options"),
    [
        (".debug_aranges", ("-R", ".debug_aranges")),
        (".symtab", ("--strip-all", "--keep-section=.debug_*")),
    ],
)
def test_without_symbols_or_ranges_the_name_is_searched(
    tmp_path: Path, missing: str, options: tuple[str, ...]
) -> None:
    program = built(tmp_path, "g++")
    need_program("objcopy")
    subprocess.run(["objcopy", *options, program], check=True, timeout=60)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        assert elf.section(missing) is None
        assert class_units(info._files.main, "Thread") == []
        assert info.btf.size_of(info.type_id("Thread")) == 16


@pytest.mark.parametrize("position", [4, 10, 14, 32])
def test_damaged_ranges_lead_to_the_search(tmp_path: Path, position: int) -> None:
    program = built(tmp_path, "g++")
    with ElfFile(program) as elf:
        start = elf.section(".debug_aranges").offset
    data = bytearray(program.read_bytes())
    data[start + position - 4 : start + position + 4] = b"\xfe" * 8
    program.write_bytes(data)
    with ElfFile(program) as elf, DebugInfo.of(elf) as info:
        assert info.btf.size_of(info.type_id("Thread")) == 16
